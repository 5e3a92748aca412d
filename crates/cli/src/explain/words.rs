//! What the parts of a verdict are called, in the short page, in full and as HTML.

use lowtide_explain::{
    Activity, Cause, CodeLine, Culprit, DeviceKind, Engine, Holding, Lever, Place, Source, TensorGroup, Verdict,
};

use crate::output::printable;

/// The cause, and how sure it is.
pub(super) fn cause(verdict: &Verdict) -> String {
    let open = if verdict.is_open() { "not clear, because there was room for it: likeliest " } else { "" };
    format!("{open}{} ({:.0} % sure)", cause_words(verdict), (verdict.certainty * 100.0).round())
}

/// The cause in plain words; a control group's limit is called that.
fn cause_words(verdict: &Verdict) -> &'static str {
    match (verdict.cause, verdict.source) {
        (Cause::HostMemory, Source::Cgroup) => "the memory limit of the container or job (control group) was reached",
        (Cause::HostMemory, Source::Scheduler) if matches!(verdict.engine, Engine::Ray | Engine::Kubernetes) => {
            "the node's memory ran out"
        }
        (Cause::HostMemory, Source::Scheduler) if verdict.engine == Engine::Spark => {
            "the memory limit of the container was reached"
        }
        (Cause::HostMemory, Source::Scheduler) => "the scheduler's memory limit for the job was reached",
        (Cause::HostMemory, Source::SharedMemory) => "shared memory (/dev/shm) is full",
        (Cause::HostMemory, Source::Allocator) => "the machine's own memory ran out",
        _ => verdict.cause_words(),
    }
}

/// The culprit with its shape and size, as far as they are known.
pub(super) fn named(culprit: &Culprit) -> String {
    let size = culprit.bytes.map_or(String::new(), |bytes| format!(" = {bytes}"));
    format!("{}{size}", without_size(culprit))
}

/// The culprit with its shape, as far as that is known.
pub(super) fn without_size(culprit: &Culprit) -> String {
    let shape: Vec<String> = culprit.shape.iter().map(u64::to_string).collect();
    let shape = match (shape.is_empty(), &culprit.dtype) {
        (true, _) => String::new(),
        (false, Some(dtype)) => format!(", {} in {dtype}", shape.join(" x ")),
        (false, None) => format!(", {}", shape.join(" x ")),
    };
    format!("{}{shape}", culprit.name)
}

/// Which memory it was: `GPU 0`, `the machine`.
pub(super) fn memory(verdict: &Verdict) -> String {
    let kind = match verdict.device_kind {
        Some(DeviceKind::Tpu) => "TPU",
        Some(DeviceKind::Npu) => "NPU",
        _ => "GPU",
    };
    match (verdict.place, verdict.device) {
        (Place::Device, Some(index)) => format!("{kind} {index}"),
        (Place::Device, None) => format!("the {kind}"),
        (Place::Host, _) if verdict.source == Source::Cgroup => "the container or job".to_owned(),
        (Place::Host, _) => "the machine".to_owned(),
    }
}

/// What happened, as surely as the log tells it.
pub(super) fn happening(verdict: &Verdict) -> String {
    let is_open = verdict.place == Place::Host && verdict.certainty < 0.5;
    let happening = match verdict.source {
        Source::ExitStatus if is_open => return "a process was killed, perhaps for memory".to_owned(),
        Source::DataWorker if is_open => return "a worker process died, perhaps for memory".to_owned(),
        _ => match verdict.heap {
            Some(heap) => heap.happening().to_owned(),
            None => format!("{} ran out of memory", memory(verdict)),
        },
    };
    match verdict.ended_by {
        Some(_) => format!("{happening}, which the run got over; another error ended it"),
        None => happening,
    }
}

/// When it was: the phase, the step, the time.
pub(super) fn moment(verdict: &Verdict) -> Vec<String> {
    let phase = verdict.phase.map(|phase| match phase {
        Activity::Loading => "while loading".to_owned(),
        Activity::Saving => "while saving".to_owned(),
        other => format!("in {other}"),
    });
    let step = match verdict.step {
        Some(step) => Some(format!("after step {step}")),
        None => verdict.before_first_step.then(|| "before the first step".to_owned()),
    };
    let time = verdict.time.as_ref().map(|time| format!("at {}", printable(time)));
    [phase, step, time].into_iter().flatten().collect()
}

/// What it may be where the text does not decide, each with what shows whether it is.
pub(super) fn possibilities(verdict: &Verdict) -> Vec<String> {
    verdict.possibilities.iter().map(|it| format!("May be: {}; {}", it.text, it.test)).collect()
}

/// What made it worse; where the text leaves several things open, those are told as such.
pub(super) fn also(verdict: &Verdict) -> impl Iterator<Item = &Cause> {
    let is_open = |cause: &&Cause| verdict.possibilities.iter().any(|it| it.cause == **cause);
    verdict.contributing.iter().filter(move |cause| !is_open(cause))
}

/// Which rank of a job failed first, and whose errors follow from that.
pub(super) fn ranks(verdict: &Verdict) -> Vec<String> {
    let Some(ranks) = &verdict.ranks else { return Vec::new() };
    let by = if ranks.by_launcher { ", as the launcher saw it" } else { "" };
    let also = match ranks.also_out_of_memory.len() {
        0 => String::new(),
        _ => format!("; {} ran out too", numbered_ranks(&ranks.also_out_of_memory)),
    };
    let mut sentences = vec![format!("Rank {} ran out of memory first{by}{also}", ranks.first)];
    if let Some(error) = ranks.consequences.first() {
        let known: Vec<u64> = ranks.consequences.iter().filter_map(|error| error.rank).collect();
        let who = if known.is_empty() { "other ranks".to_owned() } else { numbered_ranks(&known) };
        sentences.push(format!(
            "What {who} reported follows from it, a lost peer (line {}: {})",
            error.line,
            printable(&error.text)
        ));
    }
    sentences
}

/// `rank 1`, `ranks 0, 2 and 3`, and of many the first ones.
fn numbered_ranks(ranks: &[u64]) -> String {
    const SHOWN: usize = 8;
    let mut ranks = ranks.to_vec();
    ranks.sort_unstable();
    let names: Vec<String> = ranks.iter().take(SHOWN).map(u64::to_string).collect();
    match (names.split_last(), ranks.len()) {
        (Some((only, [])), _) => format!("rank {only}"),
        (Some((last, others)), count) if count <= SHOWN => format!("ranks {} and {last}", others.join(", ")),
        (_, count) => format!("ranks {} and {} more", names.join(", "), count - SHOWN),
    }
}

/// A line of code with its place: `model.py, line 77, in forward: x = f(x)`.
pub(super) fn place(code: &CodeLine) -> String {
    let line = code.line.map_or(String::new(), |line| format!(", line {line}"));
    let function = match &*code.function {
        "" | "<module>" => String::new(),
        name => format!(", in {name}"),
    };
    let text = if code.code.is_empty() { String::new() } else { format!(": {}", code.code) };
    format!("{}{line}{function}{text}", code.file)
}

/// What tensors hold, how many they are and what is known of them: `3.00 GiB in 12 tensors, made in model.py, line 7`.
pub(crate) fn held(group: &TensorGroup) -> String {
    let count = match group.count {
        0 | 1 => String::new(),
        many => format!(" in {many} tensors"),
    };
    let shape: Vec<String> = group.shape.iter().map(u64::to_string).collect();
    let dtype = group.dtype.as_ref().map_or(String::new(), |dtype| format!(" in {dtype}"));
    let shape = if shape.is_empty() { String::new() } else { format!(", {}{dtype}", shape.join(" x ")) };
    match (&group.name, &group.place) {
        // A variable is one of the tensors that were counted before by what they are.
        (Some(name), Some(code)) => {
            let function = if code.function == "<module>" { "the module" } else { &*code.function };
            format!("{} of it: {name}{shape}, a variable of {function} in {}", group.bytes, code.file)
        }
        (Some(name), None) => format!("{}{count}: {name}", group.bytes),
        (None, Some(code)) => format!("{}{count} made in {}", group.bytes, place(code)),
        (None, None) => format!("{}{count}", group.bytes),
    }
}

/// What a piece of advice changes, where it changes anything.
pub(super) fn changes(advice: &lowtide_explain::Advice) -> Option<String> {
    let kept = [
        (advice.same_effective_batch, "the effective batch"),
        (advice.same_model, "the model"),
        (advice.same_numbers, "the numbers"),
    ];
    let changed: Vec<&str> = kept.iter().filter(|(same, _)| !same).map(|(_, name)| *name).collect();
    (!changed.is_empty()).then(|| format!("changes {}", changed.join(" and ")))
}

/// What a piece of advice comes to, by arithmetic, and what it changes.
pub(super) fn effect(advice: &lowtide_explain::Advice) -> Option<String> {
    // What makes room leaves the peak as it was.
    let makes_room = matches!(advice.lever, Lever::EndOtherProcess | Lever::OtherCard | Lever::RaiseLimit);
    let peak = advice.expected_peak_bytes.filter(|_| !makes_room).map(|peak| format!("expected peak {peak}"));
    let saves = advice.saves_bytes.map(|bytes| format!("saves {bytes}"));
    let parts: Vec<String> = [peak, saves, changes(advice)].into_iter().flatten().collect();
    (!parts.is_empty()).then(|| parts.join("; "))
}

/// The same text with a capital at its beginning, but for a name that has one further on, such as cuDNN.
pub(super) fn sentence(text: &str) -> String {
    let word = text.split(' ').next().unwrap_or_default();
    if word.chars().skip(1).any(char::is_uppercase) {
        return text.to_owned();
    }
    let mut letters = text.chars();
    letters.next().map_or(String::new(), |first| first.to_uppercase().chain(letters).collect())
}

/// Who holds what, in one line; nothing where the log does not say.
pub(super) fn holdings(verdict: &Verdict) -> Option<String> {
    let capacity = verdict.capacity_bytes?;
    if verdict.holdings.is_empty() {
        return None;
    }
    // What is hardly there says nothing in a line.
    let is_seen = |holding: &&Holding| holding.bytes.get() > capacity.get() / 200;
    let parts: Vec<String> = verdict
        .holdings
        .iter()
        .filter(is_seen)
        .map(|holding| format!("{} {}", holding.bytes, holding.by.words()))
        .collect();
    Some(format!("of {capacity}: {}", parts.join(", ")))
}
