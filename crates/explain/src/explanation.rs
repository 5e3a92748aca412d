//! What is known besides a log, and what the log comes to.

use lowtide_config::Config;
use lowtide_oom::LookAlike;
use serde::Serialize;

use crate::MemoryReport;
use crate::verdict::Verdict;

/// What is known besides the log.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Context {
    /// Configurations and command lines of the run; a later one counts before an earlier one.
    pub configs: Vec<Config>,
    /// What processes of the run wrote down themselves when memory ran out.
    pub reports: Vec<MemoryReport>,
}

/// What a log comes to.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Explanation {
    /// One for each event, the last event first; of very many, the last ones. Of ranks that failed together, the one that
    /// failed first comes before the others.
    pub verdicts: Vec<Verdict>,
    /// How many events were read in the log.
    pub events: u64,
    /// Whether the log has more: of thousands in a row only the last ones are read.
    pub has_more: bool,
    /// Something that looks like memory running out and is something else, where that is all there is.
    pub not_memory: Option<NotMemory>,
}

/// Something that is no out-of-memory error.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct NotMemory {
    /// Line of the log, from 1.
    pub line: u64,
    /// What it is instead.
    pub kind: LookAlike,
    /// The line, cut to a bounded length.
    pub text: String,
}

impl NotMemory {
    /// What it is instead, as a noun that fits "this is ...", and what to do.
    #[must_use]
    pub const fn words(&self) -> &'static str {
        match self.kind {
            LookAlike::CorruptedSize => {
                "a corrupted size: no device has that much memory, so a counter, a shape or a message from another \
                 process is \
                 broken (often after a communication timeout); fix that; more memory will not help"
            }
            LookAlike::KernelResources => {
                "a kernel that wants more of the chip's own scratch memory than there is: smaller blocks or fewer \
                 stages"
            }
            LookAlike::BufferLimit => {
                "one buffer above what the interface allows, however much memory is free: split it"
            }
            LookAlike::DiskFull => "a full disk, not memory",
            LookAlike::IllegalAccess => "a wild access on the device: a bug, not a lack of memory",
            LookAlike::FileLimit => "too many open files: raise `ulimit -n`, or share tensors by file_system",
            LookAlike::StackOverflow => "endless recursion or a stack too small",
            LookAlike::Quota => "a refusal by a service: quota, rate or message size",
            LookAlike::StaticThreadStorage => {
                "the loader's block for thread variables, which is full: import that library first"
            }
            LookAlike::InvalidArgument => "a device or a launch setting that does not exist",
            LookAlike::Ended => {
                "the end of a process that somebody ended: a time limit, a scheduler, a user; the log has no word of \
                 memory"
            }
            LookAlike::Crashed => {
                "the crash of a process (a segmentation fault, an abort, a worker that could not start)"
            }
            LookAlike::Attempt => "a try that was given up for another way: a warning, no failure",
            LookAlike::OtherProgram => "the kernel's note about another program, or about another day",
            LookAlike::Mentioned => "talk of running out of memory, without an error that says it did",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn look_alikes_fit_the_sentence() {
        for kind in [
            LookAlike::CorruptedSize,
            LookAlike::KernelResources,
            LookAlike::BufferLimit,
            LookAlike::DiskFull,
            LookAlike::IllegalAccess,
            LookAlike::FileLimit,
            LookAlike::StackOverflow,
            LookAlike::Quota,
            LookAlike::StaticThreadStorage,
            LookAlike::InvalidArgument,
            LookAlike::Ended,
            LookAlike::Crashed,
            LookAlike::Attempt,
            LookAlike::OtherProgram,
            LookAlike::Mentioned,
        ] {
            let found = NotMemory { line: 1, kind, text: String::new() };
            // "what looks like one is ...": a noun, whose verb, if any, stands in a clause of its own.
            let noun = found.words().split([':', ',']).next().unwrap_or_default();
            let noun = noun.split(" that ").next().unwrap_or_default();
            let has_verb = [" is ", " wants ", " refused", " talks "].iter().any(|verb| noun.contains(verb));
            assert!(!has_verb, "{}", found.words());
        }
    }
}
