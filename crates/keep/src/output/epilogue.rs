//! What a command's output ends with: whether it is an out-of-memory error.
//!
//! [`Epilogue::of`] is the one place where text is judged. An out-of-memory error counts where the command ended by
//! it; one that it got over does not. It got over it where an error of another kind follows, or where steps do. Nor
//! does one that it only shows: a quotation, advice, the kernel's log, which is read by ourselves where it is needed.
//!
//! What an uncaught exception says is on standard error. So an error on standard output is none that the command ended by
//! where standard error ends with another traceback, and none where the command ended by a code of its own choice, unless
//! a process of it wrote down that its memory ran out.
//!
//! A command got over an error where another traceback follows that is neither a consequence nor of a thread or an
//! object's end, or where two further steps follow (more where a group ends, whose others went on a while). Streams are
//! looked at apart. What the other one says counts only where it was certainly written later: its pipe was found empty
//! after the error was read, and 8 KiB more have come, for programs hold back so much of their output until they end. A
//! SIGKILL counts only with evidence: the control group's own counter of kills, the kernel's log, or memory that was
//! nearly full in the last two looks.

use std::collections::BTreeSet;

use lowtide_core::Bytes;
use lowtide_log::{Activity, TracebackKind, activity_of_stack, frames, steps, tracebacks};
use lowtide_oom::{Certainty, Engine, Oom, OomHit, Place, Source, is_shown, scan};
use memchr::memmem;

use crate::End;
use crate::output::tail::{Stream, StreamPart, Tail};

/// What a command's output ends with.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Epilogue {
    /// The out-of-memory error that it ended with.
    pub(crate) oom: Option<FatalOom>,
    /// Whether it ends with an error of another kind.
    pub(crate) other_error: bool,
    /// What the command was doing at the last of its errors, where its stack says so.
    pub(crate) activity: Option<Activity>,
}

/// An out-of-memory error that a command ended with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FatalOom {
    oom: Oom,
    /// Where it stands.
    pub(crate) stream: Stream,
    /// What the command was doing, where its stack says so.
    pub(crate) activity: Option<Activity>,
    /// The line itself, cut where it is very long.
    pub(crate) line: String,
}

/// More of a line than people read.
const LONGEST_LINE: usize = 300;
/// What a program holds back of its output until it ends, as Python does where that is no terminal: it comes after the
/// error on another stream, and was written before it.
const HELD_BACK: usize = 8 << 10;
/// What a group says when one of its processes has ended: until then, others may have taken further steps.
const GROUP_ENDED: [&str; 3] = ["ChildFailedError", "ProcessRaisedException", "ProcessExitedException"];
/// More of them than come until the group ends.
const STEPS_OF_OTHERS: usize = 20;
/// Shells end with this and a signal's number where a signal ended the command.
const FIRST_OF_SIGNALS: i32 = 128;
/// An error that stands further from the end is not what a command ended with.
const NEAR_THE_END: usize = 16 << 10;

impl Epilogue {
    /// Judges what a command wrote.
    pub(crate) fn of(tail: &Tail) -> Self {
        let bytes = &tail.bytes;
        let found: Vec<OomHit> = scan(bytes).filter(|hit| is_own(hit, bytes)).collect();
        let sure = found.iter().rev().find(|found| found.oom.certainty >= Certainty::Likely);
        let last = sure.or(found.last()).filter(|last| !got_over(tail, last));
        let stream = last.map_or(Stream::Errors, |last| stream_of(tail, last));
        let last = last.filter(|_| stream != Stream::Output || !errors_end_otherwise(tail));
        let near = |bytes: &[u8]| ends_otherwise(&bytes[bytes.len().saturating_sub(NEAR_THE_END)..]);
        Self {
            activity: activity_before(bytes),
            other_error: last.is_none() && tail.since(&(0..0)).iter().any(|part| near(&part.bytes)),
            oom: last.map(|last| {
                let line = String::from_utf8_lossy(&bytes[last.range.clone()]);
                FatalOom {
                    stream,
                    oom: last.oom.clone(),
                    activity: activity_before(&bytes[..last.range.start]),
                    line: line.trim().chars().take(LONGEST_LINE).collect(),
                }
            }),
        }
    }
}

impl FatalOom {
    /// Whether the text leaves no doubt, or little.
    pub(crate) fn says_so(&self) -> bool {
        self.oom.certainty >= Certainty::Likely
    }

    /// Whether it may be what a command ended by, which ended so and has so many processes that wrote down that their
    /// memory ran out.
    ///
    /// A program that prints an error and chooses its own exit code may print that of another. An exception that nobody
    /// catches makes that 1 where `2>&1` brings it to standard output, and `make` makes 2 of it.
    pub(crate) fn may_have_ended(&self, end: End, reports: usize) -> bool {
        let is_chosen = matches!(end, End::Code(code) if (3..FIRST_OF_SIGNALS).contains(&code));
        self.stream != Stream::Output || !is_chosen || reports > 0
    }

    /// What was asked for.
    pub(crate) fn requested(&self) -> Option<Bytes> {
        self.oom.requested
    }

    /// What happened, in a sentence of figures.
    pub(crate) fn sentence(&self) -> String {
        let oom = &self.oom;
        let place = match (oom.place, oom.device) {
            (Place::Device, Some(device)) => format!("memory of GPU {device} ran out"),
            (Place::Device, None) => "memory of the GPU ran out".to_owned(),
            (Place::Host, _) => "memory of the machine ran out".to_owned(),
        };
        let figure = |bytes: Option<Bytes>, text: &str| bytes.map(|bytes| format!("{bytes} {text}"));
        let figures = [
            figure(oom.requested, "asked for"),
            figure(oom.free, "free"),
            figure(oom.capacity, "in all"),
            figure(oom.allocated, "allocated"),
            figure(oom.reserved_unallocated_or_derived(), "reserved and unused"),
            figure(oom.limit, "allowed"),
        ];
        let figures: Vec<String> = figures.into_iter().flatten().collect();
        if figures.is_empty() { place } else { format!("{place}: {}", figures.join(", ")) }
    }
}

/// The stream that an error stands on.
fn stream_of(tail: &Tail, error: &OomHit) -> Stream {
    tail.since(&error.range).iter().find(|part| part.is_own).map_or(Stream::Errors, |part| part.stream)
}

/// Whether what was last said on standard error is an exception of another kind, with nothing of memory beside it.
fn errors_end_otherwise(tail: &Tail) -> bool {
    let all = tail.since(&(0..0));
    let errors = all.iter().find(|part| part.stream == Stream::Errors).map_or(&[][..], |part| &part.bytes);
    let end = &errors[errors.len().saturating_sub(NEAR_THE_END)..];
    let last = tracebacks(end).last().filter(|last| last.kind == TracebackKind::Error);
    last.is_some_and(|last| last.error.is_some()) && scan(end).all(|hit| !is_own(&hit, end))
}

/// Whether a message is about the command itself. Of what is the system's, that is what it refused to a process (ENOMEM), and
/// not what the kernel killed.
fn is_own(hit: &OomHit, bytes: &[u8]) -> bool {
    (hit.oom.engine != Engine::Linux || hit.oom.source == Source::Heap)
        && !is_shown(&bytes[hit.range.clone()], &bytes[..hit.range.start])
}

/// What a command was doing, by the stack above its error.
fn activity_before(text: &[u8]) -> Option<Activity> {
    let near = String::from_utf8_lossy(&text[text.len().saturating_sub(NEAR_THE_END)..]);
    activity_of_stack(&frames(&near)).map(|(activity, _)| activity)
}

/// Whether a command went on after an error.
///
/// What another stream says proves it only where it was certainly written later. Where that cannot be known, the
/// error's own stream decides: an error that is its last one ended the command.
fn got_over(tail: &Tail, error: &OomHit) -> bool {
    let (before, after) = tail.bytes.split_at(error.range.start);
    let before = steps(before).next_back();
    let in_group = GROUP_ENDED.iter().any(|words| memmem::find(after, words.as_bytes()).is_some());
    let by_others = if in_group { STEPS_OF_OTHERS } else { 1 };
    tail.since(&error.range).iter().any(|part| {
        let (errors, steps) = after_error(part, error.range.len());
        ends_otherwise(errors) || steps_beyond(steps, before) > by_others
    })
}

/// What a stream says after an error of this length: where another error would be found, and where further steps.
fn after_error(part: &StreamPart, length: usize) -> (&[u8], &[u8]) {
    if part.is_own {
        let rest = part.bytes.get(length..).unwrap_or_default();
        return (rest, rest);
    }
    // Programs say on standard error what they end by, and of an error on another stream that they go on from it.
    let errors = if part.stream == Stream::Errors { &part.bytes } else { &part.certain };
    (errors, part.certain.get(HELD_BACK..).unwrap_or_default())
}

/// How many steps beyond one a text has. A single one may be a bar that is drawn once more.
fn steps_beyond(text: &[u8], before: Option<u64>) -> usize {
    steps(text).filter(|step| before.is_none_or(|before| *step > before)).collect::<BTreeSet<_>>().len()
}

/// Whether a text has a traceback that a command may have ended by.
fn ends_otherwise(text: &[u8]) -> bool {
    tracebacks(text).any(|traceback| traceback.kind == TracebackKind::Error)
}

#[cfg(test)]
mod tests {
    use super::*;

    const OOM: &str = "Traceback (most recent call last):\n  File \"t.py\", line 1\n\
                       torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 6.14 GiB. \
                       GPU 0 has a total capacity of 11.69 GiB of which 2.68 GiB is free.\n";

    const OTHER: &str = "Traceback (most recent call last):\n  File \"t.py\", line 9\nValueError: no such split\n";

    fn ran_out(text: &str) -> bool {
        Epilogue::of(&Tail::from(text)).oom.is_some_and(|words| words.says_so())
    }

    #[test]
    fn what_the_system_refused_is_the_commands_own() {
        let ended = |line: &str| {
            let text = format!("Traceback (most recent call last):\n  File \"t.py\", line 6\n{line}\n");
            Epilogue::of(&Tail::from(&*text)).oom.is_some_and(|oom| oom.says_so())
        };
        assert!(ended("OSError: [Errno 12] Cannot allocate memory"));
        assert!(!ended("OSError: [Errno 28] No space left on device"));
        assert!(!ended("kernel: Out of memory: Killed process 7 (python) total-vm:1kB, anon-rss:1kB"));
    }

    #[test]
    fn figures_as_a_sentence() {
        let words = Epilogue::of(&Tail::from(OOM)).oom.unwrap();
        assert_eq!(words.sentence(), "memory of GPU 0 ran out: 6.14 GiB asked for, 2.68 GiB free, 11.69 GiB in all");
        assert!(words.line.starts_with("torch.OutOfMemoryError: CUDA"));
    }

    #[test]
    fn the_error_that_ended_it_counts() {
        let handler = "\nDuring handling of the above exception, another exception occurred:\n\n";
        let group = "Traceback (most recent call last):\n  File \"run.py\"\n\
                     torch.distributed.elastic.multiprocessing.errors.ChildFailedError: \n";
        let rank = "[rank1]: Traceback (most recent call last):\n[rank1]:   File \"t.py\"\n\
                    [rank1]: torch.distributed.DistBackendError: NCCL error\n";
        let labelled =
            "3: Traceback (most recent call last):\n3:   File \"t.py\"\n3: ConnectionResetError: [Errno 104]\n";
        let ignored = "Exception ignored in: <function _MultiProcessingDataLoaderIter.__del__ at 0x7f>\n\
                       Traceback (most recent call last):\n  File \"d.py\", line 2\n\
                       AttributeError: 'NoneType' object has no attribute 'x'\n";
        let thread = "Exception in thread Thread-3 (_monitor):\nTraceback (most recent call last):\n  File \"m.py\"\n\
                      RuntimeError: cannot join current thread\n";
        let framed = "╭──── Traceback (most recent call last) ────╮\n│ /t.py:3 in <module> │\n╰────╯\n\
                      BrokenPipeError: [Errno 32] Broken pipe\n";
        assert!(ran_out(OOM));
        assert!(ran_out(&format!("{OTHER}{OOM}")));
        assert!(!ran_out(&format!("{OOM}going on with less\n{OTHER}")));
        assert!(ran_out(&format!("{OOM}{handler}{OTHER}")));
        for aftermath in
            [group, rank, labelled, ignored, thread, framed, "terminate called without an active exception\n"]
        {
            assert!(ran_out(&format!("{OOM}{aftermath}")), "{aftermath}");
            assert!(!ran_out(&format!("{OOM}{aftermath}{OTHER}")), "{aftermath}");
        }
        assert!(ran_out(&format!("{OOM}{rank}{group}")));
        assert!(!ran_out(OTHER));
        assert!(!ran_out(""));
    }

    #[test]
    fn a_command_that_goes_on_got_over_it() {
        let cases = [
            ("step 4\n", "step 5\nstep 6\nerror: no space left\n", false),
            ("", "iter 0: loss 3\niter 1: loss 2\nquota exceeded\n", false),
            ("epoch 1\n", " 1%| | 1/500 [00:01<\r 1%| | 2/500 [00:01<\rKilled by the queue\n", false),
            // A bar that is drawn once more, a step of another process, a summary of what was.
            (" 3%|x | 12/500 [00:01<\r", "\r 3%|x | 12/500 [00:01<\n", true),
            ("step 4\n", "step 5\n", true),
            ("step 4\nstep 5\n", "wandb: step 8\nwandb: global_step 9\n", true),
            ("step 4\n", "step 1\nstep 2\nstep 3\n", true),
            // Other bars than of training, and a job's steps.
            (
                "",
                "Loading checkpoint shards: 25%|#  | 1/4 [00:03<\rLoading checkpoint shards: 50%|## | 2/4 [00:03<\n",
                true,
            ),
            ("", "slurmstepd: error: *** STEP 4242.0 ON a\nslurmstepd: error: *** STEP 4243.1 ON a\n", true),
        ];
        for (before, after, expected) in cases {
            assert_eq!(ran_out(&format!("{before}{OOM}{after}")), expected, "{after}");
        }
    }

    #[test]
    fn others_of_a_group_take_some_steps_before_it_ends() {
        let group = "Traceback (most recent call last):\n  File \"run.py\"\n\
                     torch.distributed.elastic.multiprocessing.errors.ChildFailedError: \n";
        let steps = |count: u32| (0..count).map(|step| format!("step {step}\n")).collect::<String>();
        assert!(ran_out(&format!("{OOM}{}{group}", steps(10))));
        assert!(!ran_out(&format!("{OOM}{}{group}", steps(100))));
    }

    #[test]
    fn another_stream_counts_where_its_order_is_certain() {
        let steps = |count: usize| (0..count).map(|step| format!("step {step}\n")).collect::<String>();
        let judged = |waited: &str, later: &str| {
            let mut tail = Tail::from(OOM);
            tail.take(Stream::Output, waited.as_bytes());
            tail.found_empty(Stream::Output);
            tail.take(Stream::Output, later.as_bytes());
            Epilogue::of(&tail).oom.is_some()
        };
        // What waited in the pipe, what Python held back, and what can only have come later.
        assert!(judged(&steps(3000), ""));
        assert!(judged(&steps(3000), &steps(300)));
        assert!(!judged("", &steps(3000)));
        assert!(judged(OTHER, "") && !judged("", OTHER));
        // Told on standard output, and ended by something else.
        let mut tail = Tail::default();
        tail.take(Stream::Output, OOM.as_bytes());
        tail.take(Stream::Errors, OTHER.as_bytes());
        assert!(Epilogue::of(&tail).oom.is_none());
    }

    #[test]
    fn standard_error_says_what_it_ended_by() {
        let judged = |output: &str, errors: &str| {
            // Python writes what it held back of its output last.
            let mut tail = Tail::from(errors);
            tail.take(Stream::Output, output.as_bytes());
            Epilogue::of(&tail).oom
        };
        assert_eq!(judged(OOM, OTHER), None);
        assert_eq!(judged("settings: on_oom='RuntimeError: CUDA out of memory' retries=3\n", OTHER), None);
        assert!(judged(OOM, "").is_some() && judged(OOM, "warning: 2 tokens\n").is_some());
        assert!(judged(OOM, &format!("{OTHER}{OOM}")).is_some());
        // A code that the program chose, one that an exception makes, a signal, and a process that wrote it down.
        let printed = judged(OOM, "").unwrap();
        let ends = [End::Code(9), End::Code(1), End::Code(2), End::Code(137), End::Signal(6)];
        assert_eq!(ends.map(|end| printed.may_have_ended(end, 0)), [false, true, true, true, true]);
        assert!(printed.may_have_ended(End::Code(9), 1));
        assert!(judged("", OOM).unwrap().may_have_ended(End::Code(9), 0));
    }

    #[test]
    fn an_error_of_another_kind_counts_where_it_ended_the_command() {
        let other = |text: &str| Epilogue::of(&Tail::from(text)).other_error;
        assert!(other(OTHER) && other(&format!("{OOM}going on\n{OTHER}")));
        assert!(!other("") && !other(OOM));
        assert!(!other(&format!("{OTHER}{}", "going on\n".repeat(4000))));
    }
}
