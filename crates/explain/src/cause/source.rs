//! Who refused decides which figures count: an allocator, the machine, or the driver past every allocator.

use lowtide_core::Bytes;
use lowtide_log::StackFrame;
use lowtide_oom::{Certainty, Engine, Oom, Place, Source};

use super::allocator::allocator;
use super::checkpoint::{CheckpointWork, checkpoint_work};
use super::figures::figures;
use super::judgement::{Judgement, Possibility};
use super::startup::startup;
use crate::log::{Event, Printout, Sign};
use crate::verdict::{Cause, Holder, Relation};

/// Judges an event of a log.
pub(crate) fn judge(event: &Event, log: &Printout) -> Judgement {
    let mut judgement = match (event.oom.place, event.oom.source) {
        (Place::Host, _) => host(event, log),
        (Place::Device, Source::Allocator) if is_pool_limit(event) => pool_limit(event),
        (Place::Device, Source::Allocator) => allocator(&event.oom, log),
        (Place::Device, Source::Startup) => startup(event, &log.cards),
        (Place::Device, _) => driver(event, log),
    };
    judgement.certainty = round(judgement.certainty * event.oom.certainty.number() / 0.98);
    judgement.checkpoint = checkpoint_work(event, log);
    // A state that is put together asks for one tensor after the other: what is idle would have served one of them.
    let is_put_together = matches!(judgement.checkpoint, Some(CheckpointWork::Gather | CheckpointWork::Copy));
    if is_put_together && judgement.cause == Cause::Fragmentation {
        judgement.certainty = judgement.certainty.min(0.5);
        judgement = judgement.with(Cause::Need);
    }
    if event.oom.place == Place::Device {
        judgement.free_cards = log.cards.free_cards(event.oom.device);
    }
    judgement
}

fn round(certainty: f64) -> f64 {
    (certainty.clamp(0.0, 0.99) * 100.0).round() / 100.0
}

/// Whether the pool that refused is as large as it was allowed to be.
fn is_pool_limit(event: &Event) -> bool {
    ["Maximum pool size exceeded", "is smaller than requested bytes of"]
        .iter()
        .any(|words| event.message.contains(words))
}

fn pool_limit(event: &Event) -> Judgement {
    let text = "the pool was at the size it may grow to, which the program sets when it makes the pool";
    Judgement::bare(&event.oom, Cause::Limit, 0.7, text).with(Cause::Need)
}

/// Judges an event of the machine's memory.
fn host(event: &Event, log: &Printout) -> Judgement {
    let oom = &event.oom;
    let text = match oom.source {
        Source::Kernel => killer(&event.message),
        Source::Scheduler if oom.engine == Engine::Ray => "Ray ended a task because its node was nearly full",
        Source::Cgroup => "the kernel ended a process because its control group (container or job) was at its limit",
        Source::Scheduler => "the scheduler ended the job for its memory",
        Source::DataWorker => "a data worker was killed, as the kernel does when memory runs out",
        Source::SharedMemory => "shared memory between processes (/dev/shm) is full",
        Source::ExitStatus => "a process was killed (signal 9); the kernel's killer is one of the reasons for that",
        Source::Allocator | Source::Heap if log.signs.has(Sign::Windows) => {
            "the system refused memory to the process: the machine had too little left, its page file included"
        }
        Source::Allocator | Source::Heap => {
            "the system refused memory to the process: the machine had too little left, or a limit of the process \
             itself (ulimit -v, RLIMIT_AS) stood in the way"
        }
        Source::Runtime => "the stack ends where memory of the machine is pinned, and the driver refused it",
        Source::Startup => "the server reckoned before it began, and the machine has too little free",
        _ => "memory of the machine ran out",
    };
    // Pinned memory is made through the device's driver, which may have failed for the device's own sake.
    let certainty = if oom.source == Source::Runtime { 0.75 } else { 0.98 };
    let mut judgement = Judgement::bare(oom, Cause::HostMemory, certainty, text);
    // A heap that is managed has a size of its own, whatever the machine has.
    let is_managed = matches!(oom.engine, Engine::Java | Engine::Node) && oom.requested.is_none();
    let is_of_a_job = matches!(oom.source, Source::Cgroup | Source::Scheduler) && oom.engine != Engine::Ray;
    if is_of_a_job || oom.limit.is_some() || is_managed {
        judgement.contributing.push(Cause::Limit);
    }
    if let Some(tried) = oom.requested {
        judgement.evidence.push(format!("asked for {tried}"));
    }
    let victim = victim(oom);
    match (oom.in_use, oom.limit) {
        (Some(used), Some(limit)) => judgement.evidence.push(format!("{used} in use, {limit} allowed")),
        (Some(used), None) if victim.is_none() => judgement.evidence.push(format!("the process held {used}")),
        (None, Some(limit)) => judgement.evidence.push(format!("{limit} allowed")),
        (Some(_) | None, None) => {}
    }
    judgement.evidence.extend(victim);
    if let (Some(used), Some(capacity)) = (oom.used, oom.capacity) {
        judgement.evidence.push(format!("{used} of the {capacity} of the machine were in use"));
    }
    // `Out of Memory Error` in somebody's own words is of neither; where they go on about a card, it may be its memory.
    let tells_of_card = log.narrative.card_gigabytes.is_some() && log.narrative.machine_gigabytes.is_none();
    let is_of_neither = matches!(oom.source, Source::Allocator | Source::Heap) && oom.certainty != Certainty::Sure;
    if tells_of_card && is_of_neither && oom.requested.is_none() {
        judgement.certainty = judgement.certainty.min(0.5);
        judgement.evidence.push("the post speaks of a GPU's memory, which it may be instead".to_owned());
    }
    if oom.source == Source::ExitStatus && oom.certainty == Certainty::Slight {
        judgement.possibilities.push(Possibility::new(
            Cause::HostMemory,
            "the kernel ended it because memory was full",
            "dmesg -T | grep -i 'killed process' (or sacct -j JOB --format=State,MaxRSS) then names it, with what it held",
        ));
    }
    judgement.holders = oom.processes.iter().map(Holder::from).collect();
    for (_, message) in event.also.iter().take(2) {
        let short: String = message.chars().take(100).collect();
        judgement.evidence.push(format!("the log also says: {short}"));
    }
    judgement
}

/// Who ends processes of a machine that has no memory left.
fn killer(message: &str) -> &'static str {
    let has = |words: &str| message.contains(words);
    match () {
        () if has("systemd-oomd") => "systemd-oomd ended a group of processes that waited too long for memory",
        () if has("earlyoom") => "earlyoom ended a process because the machine had hardly any memory left",
        () if has("JETSAM") || has("vm-compressor") => "macOS ended a process because the machine had no memory left",
        () => "the kernel ended a process because the whole machine had no memory left",
    }
}

/// Whom the kernel ended, where the log names it: who asked for memory may have been another.
fn victim(oom: &Oom) -> Option<String> {
    let process = oom.processes.first().filter(|_| matches!(oom.source, Source::Kernel | Source::Cgroup))?;
    let held = process.used.or(oom.in_use).map_or(String::new(), |used| format!(", which held {used}"));
    Some(format!("it ended process {} ({}){held}", process.pid, process.name.as_ref()?))
}

/// Judges what the driver itself refused.
fn driver(event: &Event, log: &Printout) -> Judgement {
    if let Some(judgement) = by_table(&event.oom, log) {
        return judgement;
    }
    if let Some(judgement) = full_at_start(&event.oom, log) {
        return judgement;
    }
    if let Some(judgement) = filled_by_plan(&event.oom, log) {
        return judgement;
    }
    if has_no_allocator(event) {
        let text = "the driver refused, and this engine asks it for every tensor: the step needs more than was free";
        return Judgement::bare(&event.oom, Cause::Need, 0.65, text);
    }
    if event.oom.source == Source::Runtime && is_first_use(event) {
        return no_room_to_begin(&event.oom);
    }
    outside(&event.oom)
}

/// What a table of the cards shows, where the message has no figures: others who fill the device.
fn by_table(oom: &Oom, log: &Printout) -> Option<Judgement> {
    let card = log.cards.card(oom.device)?;
    let holders = figures(oom, oom.requested.unwrap_or_default(), log).holders;
    let sum = |wanted: &dyn Fn(&Holder) -> bool| {
        let used = holders.iter().filter(|holder| wanted(holder)).filter_map(|holder| holder.used_bytes);
        used.fold(Bytes::ZERO, Bytes::saturating_add)
    };
    let theirs = sum(&|holder| holder.relation == Relation::Other);
    let (used, total) = (Bytes::from_mib(card.used_mib), Bytes::from_mib(card.total_mib));
    let held = sum(&|_| true);
    let (held, text) = match theirs.get() >= total.get() / 2 {
        true => (held, format!("the table in the log shows {held} of {total} in the hands of others")),
        false if log.cards.was_full(oom.device) => {
            (used, format!("the table in the log shows {used} of {total} in use before it failed"))
        }
        false => return None,
    };
    let judgement = Judgement { others: Some(held), holders, ..Judgement::bare(oom, Cause::OtherProcess, 0.75, &text) };
    Some(judgement.with(Cause::OutsideAllocator))
}

/// What the program found free when it began, where that is less than a quarter of the device.
fn full_at_start(oom: &Oom, log: &Printout) -> Option<Judgement> {
    let (free, total) = log.cards.free_at_start.zip(log.cards.total)?;
    let held = Some(total.saturating_sub(free)).filter(|_| free.get() < total.get() / 4)?;
    let text = format!("{free} of {total} were free when the program began: others held {held}");
    let judgement = Judgement::bare(oom, Cause::OtherProcess, 0.75, &text);
    Some(Judgement { others: Some(held), ..judgement }.with(Cause::OutsideAllocator))
}

/// A server that filled the device by its own reckoning, with a part of a model that is larger.
fn filled_by_plan(oom: &Oom, log: &Printout) -> Option<Judgement> {
    let plan = log.cards.plan.filter(|plan| plan.whole > plan.available)?;
    let (whole, part, available) = (plan.whole, plan.part, plan.available);
    let text =
        format!("ollama planned {part} on the device, where {available} were to be had: the whole model needs {whole}");
    let judgement = Judgement::bare(oom, Cause::Need, 0.75, &text).with(Cause::OutsideAllocator);
    Some(Judgement { available: Some(available), ..judgement })
}

/// Whether every tensor of the engine is the driver's: PyTorch before 1.0 says where in its sources that is.
fn has_no_allocator(event: &Event) -> bool {
    let is_counted = matches!(
        event.oom.engine,
        Engine::PyTorch | Engine::Cuda | Engine::Rocm | Engine::Tensorflow | Engine::Unknown
    );
    let is_driver = matches!(event.oom.source, Source::Runtime | Source::Heap | Source::Allocator);
    is_driver && (!is_counted || event.message.contains("THCStorage") || event.message.contains("THCTensor"))
}

/// Whether the stack ends where a tensor is put on the device, before any step.
fn is_first_use(event: &Event) -> bool {
    let words = ["device=", ".to(", ".cuda(", "_cuda_init", "_lazy_init", "torch.cuda."];
    let asks = |frame: &StackFrame| words.iter().any(|word| frame.code.contains(word));
    let around = &event.circumstances;
    // The driver's calls that make a context.
    let makes_context = || ["PrimaryCtxRetain", "cuCtxCreate"].iter().any(|call| event.message.contains(call));
    let is_first = || around.frames.last().is_some_and(asks) || makes_context();
    event.oom.requested.is_none() && around.step.is_none() && is_first()
}

/// The allocator gives figures when it is refused: where there are none, the process could not even begin to use the
/// device.
fn no_room_to_begin(oom: &Oom) -> Judgement {
    let text = "the driver refused where the device is used first, before the allocator asked for anything: others have \
                filled it, as far as the log tells";
    Judgement::bare(oom, Cause::OtherProcess, 0.6, text).with(Cause::OutsideAllocator)
}

/// The driver or a library refused, which no allocator counts.
fn outside(oom: &Oom) -> Judgement {
    let (certainty, text) = match oom.source {
        Source::Blas => (0.85, "cuBLAS asks the driver for its own memory, past the allocator, and was refused"),
        Source::Dnn => (0.85, "cuDNN asks the driver for its own memory, past the allocator, and was refused"),
        Source::Collectives => (0.75, "NCCL asks the driver for its own buffers, past the allocator, and was refused"),
        _ => (
            0.55,
            "the driver itself refused, not the allocator: a context, a library, or a device that is full already",
        ),
    };
    let mut judgement = Judgement::bare(oom, Cause::OutsideAllocator, certainty, text);
    if oom.source == Source::Runtime {
        judgement.contributing.push(Cause::OtherProcess);
    }
    if let (Some(tried), Some(free)) = (oom.requested, oom.free) {
        let were = if free == Bytes(1) { "was" } else { "were" };
        judgement.evidence.push(format!("asked for {tried}; {free} {were} free"));
    }
    judgement
}
