//! What `lowtide run` says of a command: before it runs, meanwhile, and at its end.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use lowtide_config::command::quoted;
use lowtide_core::{Bytes, Event, counted};
use lowtide_keep::{
    Activity, BatchPart, Chronicle, CommandLadder, Conclusion, ConfigCopy, End, EndKind, InputState, Launch, Notice,
    Peak, StartRecord, batch_changed,
};
use rustix::process::{Resource, getrlimit};

use crate::explain;
use crate::output::{printable, shown};
use crate::run::gap::{gap_words, no_retry_hint};
use crate::run::resume;

/// What helps where the micro-batch cannot be cut any further.
const LESS: &str = "a smaller model, shorter sequences, recompute or narrower numbers are left";

/// What helps where weights, gradients or the optimizer's state do not fit.
const FIXED: &str = "weights and the optimizer's state do not fit: LoRA, an 8-bit or offloaded optimizer, narrower numbers, \
                     several cards (FSDP, ZeRO) or a smaller model make room";

/// What helps where a smaller micro-batch changes nothing.
const UNMOVED: &str = "every start asked for just as much: look whether the command takes what a retry changes; if it does, \
                       what does not fit does not depend on the batch";

/// What helps where nothing shows that a smaller micro-batch changes anything, and no size is told.
const UNTOLD: &str = "no start got any further: look whether the command takes what a retry changes; if it does, data in memory, \
                      weights or the optimizer's state do not fit";

/// What helps where the checkpoint does not fit beside the model.
const LOADING: &str = "the first start got further: resuming needs more memory than training. Load the checkpoint with \
                       map_location='cpu' and drop it before training, or give --no-resume";

pub(super) fn setting(name: &OsStr, value: &OsStr) -> String {
    format!("{}={}", name.display(), value.display())
}

/// What a retry would change, where so many restarts are allowed.
pub(super) fn retries_line(ladder: &CommandLadder, max_restarts: u32) -> String {
    let by = ladder.preset.map_or(String::new(), |preset| format!(" ({})", preset.name()));
    let group = match (ladder.group, ladder.preset) {
        (0 | 1, _) => String::new(),
        (group, Some(preset)) if !preset.shares_accumulation() => format!(" for each of {group} processes"),
        (group, _) => format!(", in a group of {group}"),
    };
    match ladder.rungs.as_slice() {
        [] if let Some(gap) = &ladder.gap => format!("no retry with a smaller micro-batch{by}: {}", gap_words(gap)),
        [] => "no retry with a smaller micro-batch: it is not known where the batch is set; --retry-with or --retry-env says it"
            .to_owned(),
        [first, ..] if max_restarts == 0 => {
            format!("micro-batch x accumulation {first}{by}{group}: no retry (--max-restarts 0)")
        }
        [only] => format!("micro-batch {only}{by}{group}: no retry, for a micro-batch of 1 cannot be cut"),
        [first, .., last] => {
            let retries = ladder.rungs.len() as u64 - 1;
            let smaller = if retries == 1 { "1 retry".to_owned() } else { format!("{retries} retries") };
            let by = match ladder.changes() {
                changes if by.is_empty() && !changes.is_empty() => format!(" ({})", printable(&changes.join(", "))),
                _ => by,
            };
            match ladder.effective_batch() {
                Some(_) if let Some(whole) = ladder.whole() => {
                    let whole = printable(&whole.with(whole.number));
                    format!("micro-batch {}{by}{group}, {smaller} down to {}; {whole} stays", first.micro, last.micro)
                }
                Some(_) => format!("micro-batch x accumulation {first}{by}{group}, {smaller} down to {last}"),
                None => format!("batch {}{by}{group}, {smaller} down to {} (--shrink-batch)", first.micro, last.micro),
            }
        }
    }
}

/// When the reserve was used, for how long, and how much smaller a batch would have needed none of it.
fn overflows(uses: &[Event]) -> Option<String> {
    let needed = |event: &&Event| match event {
        Event::Overflowed { needed, bytes, .. } => needed.unwrap_or(*bytes),
        _ => Bytes::ZERO,
    };
    let worst = uses.iter().max_by_key(needed)?;
    let seconds: f64 = uses.iter().map(Event::seconds).sum();
    let times = counted(uses.len() as u64, "time");
    let worst = printable(&worst.sentence()?);
    Some(format!("the reserve was used {times}, {seconds:.1} s in all, instead of an out-of-memory error. {worst}"))
}

/// Our flag for a number of the batch.
pub(super) const fn flag(part: BatchPart) -> &'static str {
    match part {
        BatchPart::Micro => "--batch",
        BatchPart::Accum => "--accum",
    }
}

/// The variables that a start changes. The one by which a copy of the script is run is for that alone.
pub(super) fn own_environment<'a>(
    ladder: &CommandLadder,
    launch: &'a Launch,
) -> impl Iterator<Item = &'a (OsString, OsString)> {
    let is_script = launch.runs_copies();
    let is_own =
        move |set: &&(OsString, OsString)| !(ladder.environment.contains(set) || is_script && set.0 == "PYTHONPATH");
    launch.environment.iter().filter(is_own)
}

/// What a command line adds to the command's own environment, and the command.
pub(super) fn command_line(ladder: &CommandLadder, launch: &Launch) -> String {
    let own = own_environment(ladder, launch);
    let set = own.map(|(name, value)| format!("{} ", quoted(&[setting(name, value)])));
    printable(&format!("{}{}", set.collect::<String>(), quoted(&launch.command)))
}

pub(super) fn copy_line(copy: &ConfigCopy) -> String {
    let (path, original, changes) = (copy.path.display(), copy.original.display(), copy.changes.join(" "));
    printable(&match copy.stand_in {
        Some(_) => format!("{original} is run with {changes}, from {path}; the file itself is not changed"),
        None => format!("{path} is {original} with {changes}"),
    })
}

/// What is said of what happens; `None` for what is better passed over.
pub(super) fn words(notice: &Notice<'_>, ladder: &CommandLadder) -> Option<String> {
    match notice {
        Notice::Log { log } => Some(format!("the output is kept in {}", shown(log))),
        Notice::Restart { number, launch, batch, checkpoint, damaged, refused, unclear } => {
            let resumption = &ladder.resumption;
            let batch = batch.map_or(String::new(), |batch| format!(" with micro-batch x accumulation {batch}"));
            let origin = resume::origin(resumption, *checkpoint, refused, unclear);
            let mut text = format!("start {number} {origin}{batch}: {}", command_line(ladder, launch));
            let copies = launch.copies.iter().map(copy_line);
            for line in resume::remarks(resumption, *checkpoint, damaged).into_iter().chain(copies) {
                text.push_str(&format!("\n  {line}"));
            }
            Some(text)
        }
        Notice::Input { state } => input(*state).map(str::to_owned),
        Notice::Unresumable { instead } => Some(resume::unresumable(*instead)),
        Notice::Endangered { kept, resumed_from } => Some(resume::endangered(&ladder.resumption, kept, *resumed_from)),
        Notice::Copying { bytes } => Some(format!(
            "first copying {bytes} of checkpoints that the next start may write over (Ctrl-C ends the run, --no-copies skips \
             this)"
        )),
        Notice::ThinnedOut { removed, left } => Some(format!(
            "older copies of the same checkpoint were removed, the last {left} of earlier runs stay: {}",
            resume::listed(removed.iter().map(PathBuf::as_path))
        )),
        Notice::SetAside { file, target } => Some(format!(
            "{} of the start before is {} now: the next one would refuse to write over it",
            shown(file),
            shown(target)
        )),
        Notice::Overflows { uses } => overflows(uses),
        Notice::End { record } => ended(record, ladder),
        Notice::CopyUnused { copy } => Some(format!(
            "the changed copy of {} was not taken: a Python that reads no PYTHONPATH at its start, or another machine or \
             container; start it with --retry-with instead",
            shown(&copy.original)
        )),
        Notice::Patience { grace } => Some(format!(
            "it has {} s to end before it is killed; another Ctrl-C kills it at once",
            grace.as_secs_f64()
        )),
        Notice::Leftovers { processes } => {
            let they_are = if *processes == 1 { "it is" } else { "they are" };
            Some(format!("the command left {} behind; {they_are} asked to end", processes_of(*processes)))
        }
        Notice::Kill { processes } => Some(format!("killing what did not end: {}", processes_of(*processes))),
    }
}

/// What becomes of the standard input in a restart.
const fn input(state: InputState) -> Option<&'static str> {
    match state {
        InputState::Rewound => Some("standard input is a file: the next start reads it again"),
        InputState::Typed => Some("what was typed is gone: the next start asks for it again"),
        InputState::Whole | InputState::Gone => None,
    }
}

fn ended(start: &StartRecord, ladder: &CommandLadder) -> Option<String> {
    let cut = start.log_cut.as_ref().map(|error| format!("{} is not whole: {error}", printable(&start.log)));
    let lines: Vec<String> = [cut, meaning(start), evaluation(start, ladder)].into_iter().flatten().collect();
    (!lines.is_empty()).then(|| lines.join("\n"))
}

/// What a smaller batch of training does nothing about.
fn evaluation(start: &StartRecord, ladder: &CommandLadder) -> Option<String> {
    let flag = ladder.evaluation.as_ref()?;
    (start.outcome == EndKind::OutOfMemory && start.phase == Some(Activity::Evaluation)).then(|| {
        let flag = printable(&flag.spelling);
        format!("it was evaluating, which has a batch of its own ({flag}): a smaller one changes no training")
    })
}

fn meaning(start: &StartRecord) -> Option<String> {
    let told_kill = |line: &String| ["Killed", "SIGKILL", "-9", "signal 9"].iter().any(|words| line.contains(words));
    let killed = start.end.was_killed() || start.line.as_ref().is_some_and(told_kill);
    match start.outcome {
        EndKind::OutOfMemory => {
            let step = start.step.map_or(String::new(), |step| format!(" (last step seen: {step})"));
            let cause = start.cause.as_deref().unwrap_or("");
            let mut text = format!("out of memory after {:.1} s{step}: {cause}", start.seconds);
            for line in explain::in_short(Path::new(&start.log), &start.command) {
                text.push_str(&format!("\n  {line}"));
            }
            if let Some(limit) = address_space().filter(|_| cause.starts_with(OF_THE_MACHINE)) {
                text.push_str(&format!(
                    "\n  each process may have {limit} of addresses (`ulimit -v`, RLIMIT_AS), and that may be what refused it: \
                     `ulimit -v unlimited` before lowtide lifts it"
                ));
            }
            Some(text)
        }
        EndKind::Failed if killed => {
            let line = start.line.as_ref().map_or(String::new(), |line| format!(" ({line})"));
            Some(format!("killed by SIGKILL{line}, and nothing shows that memory was the reason: not started again"))
        }
        EndKind::Failed if let Some(line) = &start.line => {
            Some(format!("`{line}` alone does not show that memory ran out: not started again"))
        }
        EndKind::Failed if disk_is_full(Path::new(&start.log)) => {
            Some("the disk is full or its quota is reached, which is not about memory: not started again".to_owned())
        }
        EndKind::Failed if matches!(start.end, End::Signal(7) | End::Code(135)) => {
            Some("a bus error: shared memory may be full; `lowtide doctor` shows the size of /dev/shm".to_owned())
        }
        _ => None,
    }
}

/// What the system says of a disk that takes nothing more.
const FULL: [&str; 4] = ["No space left on device", "[Errno 28]", "Disk quota exceeded", "[Errno 122]"];
/// How much of a log tells how a command ended.
const END_OF_LOG: u64 = 4 << 10;

/// Whether a log ends with a full disk.
fn disk_is_full(log: &Path) -> bool {
    let end = || -> io::Result<Vec<u8>> {
        let mut file = File::open(log)?;
        let length = file.metadata()?.len();
        file.seek(SeekFrom::Start(length.saturating_sub(END_OF_LOG)))?;
        let mut end = Vec::new();
        file.read_to_end(&mut end)?;
        Ok(end)
    };
    end().is_ok_and(|end| FULL.iter().any(|words| String::from_utf8_lossy(&end).contains(words)))
}

/// How the cause begins where it was not a card's memory.
const OF_THE_MACHINE: &str = "memory of the machine";

/// How much a process may have in its address space, its programs and libraries included; `None` where nothing limits it.
fn address_space() -> Option<Bytes> {
    getrlimit(Resource::As).current.map(Bytes)
}

/// What is said at the end of a command that never ran out of memory.
pub(super) fn over(chronicle: &Chronicle, exit_code: u8) -> String {
    let Some(last) = chronicle.starts.last() else {
        return "not started: told to end while checkpoints were copied".to_owned();
    };
    let peak = peak(&last.peak);
    let peak = peak.map_or(String::new(), |peak| format!("; {peak}"));
    format!("ended with {exit_code}{peak}")
}

/// The whole story, a line for each start.
pub(super) fn whole(chronicle: &Chronicle, ladder: &CommandLadder) -> String {
    let mut text = match chronicle.ending {
        Conclusion::Finished => finished(chronicle),
        Conclusion::Interrupted => "interrupted".to_owned(),
        Conclusion::Failed if last_ran_out(chronicle) => "memory ran out, and no further start can be made".to_owned(),
        Conclusion::Failed => "ended by a failure that is not about memory".to_owned(),
        Conclusion::NoRungs => "memory ran out, and there is no retry with a smaller micro-batch".to_owned(),
        Conclusion::LastRung => {
            "memory ran out twice with the smallest micro-batch, and nothing more can be done".to_owned()
        }
        Conclusion::SameOnEveryRung => same_request(chronicle),
        Conclusion::BatchChanged => "memory ran out again, and the retry changed more than the micro-batch".to_owned(),
        Conclusion::InputGone => {
            "memory ran out, and what the command read from its standard input, a pipe, is gone for a retry".to_owned()
        }
        Conclusion::CheckpointsInDanger => {
            "not restarted: a start from step 0 might write over a checkpoint that could not be copied".to_owned()
        }
        Conclusion::TooManyRestarts if chronicle.restarts == 0 => {
            "memory ran out, and no restart is allowed".to_owned()
        }
        Conclusion::TooManyRestarts => {
            format!("memory ran out again after {}", counted(chronicle.restarts as u64, "restart"))
        }
    };
    for (number, start) in (1..).zip(&chronicle.starts) {
        text.push_str(&format!("\n  {}", line(number, start)));
    }
    if batch_changed(&chronicle.starts) {
        let numbered = (1..).zip(&chronicle.starts);
        let told =
            numbered.filter_map(|(number, start)| Some(format!("start {number} reported {}", start.batch_report?)));
        let told = told.collect::<Vec<_>>().join(", ");
        text.push_str(&format!("\n  the effective batch did not stay the same: {told}"));
    }
    if let Some(words) = evaluation_to_type(chronicle, ladder) {
        text.push_str(&format!("\n  start with `{words}` next time: a larger batch of evaluation does not fit"));
    }
    text.push_str(&format!("\n  logs and summary.json are in {}", printable(&chronicle.folder)));
    let hint = match chronicle.ending {
        Conclusion::LastRung | Conclusion::TooManyRestarts if rungs_change_nothing(chronicle) => UNMOVED,
        Conclusion::NoRungs if chronicle.effective_batch.is_some() => LESS,
        Conclusion::NoRungs => &no_retry_hint(ladder),
        Conclusion::SameOnEveryRung if loads_the_checkpoint(chronicle) => LOADING,
        Conclusion::SameOnEveryRung if last_is_fixed(chronicle) => FIXED,
        Conclusion::SameOnEveryRung if rungs_change_nothing(chronicle) => UNMOVED,
        Conclusion::SameOnEveryRung => UNTOLD,
        Conclusion::LastRung => LESS,
        Conclusion::BatchChanged => {
            "say the command's own batch with --batch and --accum, and what a retry changes with --retry-with"
        }
        Conclusion::TooManyRestarts => "--max-restarts allows more",
        Conclusion::CheckpointsInDanger => {
            "make room on the disk, or move the checkpoint; --no-copies restarts without a copy; --resume-with '--resume \
             {checkpoint}' --checkpoint-glob 'out/*.pt' says how the script resumes"
        }
        Conclusion::InputGone => {
            "give it a file, which a retry reads again from its beginning: lowtide run -- COMMAND < FILE; or < /dev/null \
             where it reads nothing"
        }
        // What stood in its way may be what the start before left there.
        Conclusion::Failed if chronicle.restarts > 0 && !last_ran_out(chronicle) => {
            "look whether something that the start before left behind is in the way, or a word that a retry adds"
        }
        Conclusion::Finished | Conclusion::Interrupted | Conclusion::Failed => return text,
    };
    text.push_str(&format!("\nhint: {hint}"));
    if [UNMOVED, UNTOLD].contains(&hint)
        && let Some(advice) = chronicle.starts.last().and_then(beyond_the_batch)
    {
        text.push_str(&format!("\nhint: where it does, this makes room: {advice}"));
    }
    text
}

fn finished(chronicle: &Chronicle) -> String {
    let restarts = counted(chronicle.restarts as u64, "restart");
    let throughout = |effective| format!(", effective batch {effective} throughout");
    format!("finished after {restarts}{}", chronicle.effective_batch.map_or_else(String::new, throughout))
}

/// The batch of evaluation that a command ended well with, where it is smaller than its own.
fn evaluation_to_type(chronicle: &Chronicle, ladder: &CommandLadder) -> Option<String> {
    let flag = ladder.evaluation.as_ref()?;
    let of = |start: &StartRecord| {
        let at = start.command.iter().position(|word| word.starts_with(&*flag.spelling))?;
        let length = if start.command[at].contains('=') { 1 } else { 2 };
        Some(start.command.get(at..at + length)?.join(" "))
    };
    let [first, .., last] = chronicle.starts.as_slice() else { return None };
    let words = of(last).filter(|words| of(first).as_ref() != Some(words))?;
    (last.outcome == EndKind::Finished).then(|| printable(&words))
}

/// What the last starts had in common, as far as it was seen.
fn same_request(chronicle: &Chronicle) -> String {
    let asked = |start: &StartRecord| start.requested_bytes;
    let last = chronicle.starts.last().and_then(asked);
    let alike = chronicle.starts.iter().rev().take_while(|start| asked(start) == last);
    let mut tried: Vec<String> = alike.filter_map(|start| Some(start.batch?.to_string())).collect();
    tried.dedup();
    tried.reverse();
    let tried = tried.join(", ");
    match last {
        Some(bytes) => format!("memory ran out at the same request, {bytes}, with each micro-batch tried ({tried})"),
        None => format!("memory ran out at the same point with each micro-batch tried ({tried}); no size was reported"),
    }
}

/// What makes room where a smaller micro-batch does not.
fn beyond_the_batch(start: &StartRecord) -> Option<String> {
    explain::beyond_the_batch(Path::new(&start.log), &start.command)
}

/// Whether the last start asked for weights or the optimizer's state.
fn last_is_fixed(chronicle: &Chronicle) -> bool {
    let phase = chronicle.starts.last().and_then(|start| start.phase);
    matches!(phase, Some(Activity::Loading | Activity::Optimizer))
}

/// Whether memory ran out while a checkpoint was loaded, after a start without one had got further.
fn loads_the_checkpoint(chronicle: &Chronicle) -> bool {
    let [first, .., last] = chronicle.starts.as_slice() else { return false };
    let is_loading = |start: &StartRecord| start.phase == Some(Activity::Loading);
    last.resumed_from.is_some() && is_loading(last) && first.resumed_from.is_none() && !is_loading(first)
}

fn last_ran_out(chronicle: &Chronicle) -> bool {
    chronicle.starts.last().is_some_and(|start| start.outcome == EndKind::OutOfMemory)
}

/// Whether memory ran out with several micro-batches and the same figures.
fn rungs_change_nothing(chronicle: &Chronicle) -> bool {
    let [first, .., last] = chronicle.starts.as_slice() else { return false };
    let figures = |start: &StartRecord| start.line.clone().filter(|line| line.contains(|it: char| it.is_ascii_digit()));
    let same = |start: &StartRecord| figures(start).is_some() && figures(start) == figures(first);
    last.rung > first.rung && chronicle.starts.iter().all(same)
}

fn line(number: usize, start: &StartRecord) -> String {
    let batch = start.batch.map_or(String::new(), |batch| format!("{batch}, "));
    let end = match (start.outcome, start.end) {
        (EndKind::OutOfMemory, _) => format!("out of memory: {}", start.cause.as_deref().unwrap_or("")),
        (EndKind::Finished, _) => "finished".to_owned(),
        (_, End::Code(code)) => format!("exit code {code}"),
        (_, End::Signal(signal)) => format!("signal {signal}"),
    };
    let resumed = start.resumed_from.as_ref().map_or(String::new(), |from| {
        let step = start.resumed_step.map_or(String::new(), |step| format!(", step {step}"));
        format!(" (resumed from {}{step})", printable(from))
    });
    let step = start.step.map_or(String::new(), |step| format!("step {step}, "));
    let peak = peak(&start.peak).map_or(String::new(), |peak| format!(", {peak}"));
    format!("start {number}{resumed}: {batch}{step}{:.1} s{peak}; {end}", start.seconds)
}

/// The most memory that was seen; `None` where the command ended before anybody looked.
fn peak(peak: &Peak) -> Option<String> {
    if peak.tree_bytes == 0 {
        return None;
    }
    let mut text = format!("peak {} of RAM", Bytes(peak.tree_bytes));
    for card in &peak.cards {
        let (used, total) = (Bytes(card.used_bytes), Bytes(card.total_bytes));
        text.push_str(&format!(", {used} of {total} on GPU {}", card.index));
    }
    Some(text)
}

fn processes_of(number: usize) -> String {
    if number == 1 { "1 process".to_owned() } else { format!("{number} processes") }
}
