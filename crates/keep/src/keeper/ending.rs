//! How a command ended, and whether memory was the reason.

use serde::Serialize;

use crate::output::cause::{LastWords, RanOut};

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum End {
    /// It ended by itself, with this code.
    Code(i32),
    /// A signal ended it.
    Signal(i32),
}

const SIGKILL: i32 = 9;

impl Evidence {
    /// Whether a kill was counted or named, not only likely.
    const fn names_a_kill(self) -> bool {
        matches!(self, Self::ControlGroup { .. } | Self::KernelLog { .. })
    }
}

impl End {
    /// The exit code that a shell would show.
    #[must_use]
    pub fn exit_code(self) -> u8 {
        let code = match self {
            Self::Code(code) => code,
            Self::Signal(signal) => 128 + signal,
        };
        u8::try_from(code).unwrap_or(1)
    }

    /// SIGKILL, also as a shell in between tells it.
    fn was_killed(self) -> bool {
        self == Self::Signal(SIGKILL) || self == Self::Code(128 + SIGKILL)
    }
}

/// What an end means for what comes next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// It did what it had to.
    Finished,
    /// It was told to end.
    Interrupted,
    /// Memory ran out.
    OutOfMemory,
    /// It failed for a reason that less memory does not mend.
    Failed,
}

/// What shows, from outside, that the kernel ended a process for want of memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Evidence {
    /// The control group counted kills while the command ran.
    ControlGroup {
        /// So many.
        kills: u64,
    },
    /// The kernel's log names a process of the command.
    KernelLog {
        /// Its number.
        pid: u32,
    },
    /// The processes together held nearly all there is, when they were last looked at.
    NearTheLimit {
        /// What they held, in bytes.
        held_bytes: u64,
        /// What there is, in bytes.
        limit_bytes: u64,
    },
}

/// Whether somebody told the command to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Asked {
    Yes,
    No,
}

/// What an end means.
///
/// Words of the command that tell of memory count where it failed. A SIGKILL counts where something shows that the
/// kernel did it for memory; without that, it may have been anybody. So does a code of whoever waited for the process
/// that was killed, where the kernel itself tells of the kill and nothing else of another error.
pub(crate) fn judge(end: End, asked: Asked, words: &LastWords, evidence: Option<Evidence>) -> Outcome {
    if end == End::Code(0) {
        return Outcome::Finished;
    }
    if asked == Asked::Yes {
        return Outcome::Interrupted;
    }
    let said = words.ran_out.as_ref().is_some_and(RanOut::says_so);
    // Words such as `Killed` or `exitcode: -9` tell of a kill below the process that was started.
    let killed = end.was_killed() || words.ran_out.is_some();
    let told_below = matches!(end, End::Code(_)) && !words.other_error && evidence.is_some_and(Evidence::names_a_kill);
    if said || (killed && evidence.is_some()) || told_below { Outcome::OutOfMemory } else { Outcome::Failed }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::tail::Tail;

    const EVIDENCE: Option<Evidence> = Some(Evidence::ControlGroup { kills: 1 });
    const FULL: Option<Evidence> = Some(Evidence::NearTheLimit { held_bytes: 9, limit_bytes: 10 });

    fn judged(end: End, asked: Asked, text: &str, evidence: Option<Evidence>) -> Outcome {
        judge(end, asked, &LastWords::of(&Tail::from(text)), evidence)
    }

    #[test]
    fn what_an_end_means() {
        use Asked::{No, Yes};
        use Outcome::{Failed, Finished, Interrupted, OutOfMemory};
        const ERROR: &str = "Traceback (most recent call last):\n  File \"t.py\"\nValueError: no";
        const OOM: &str = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB.";
        let cases = [
            (End::Code(0), No, "", None, Finished),
            // What it caught is its own affair.
            (End::Code(0), No, OOM, EVIDENCE, Finished),
            (End::Code(1), No, OOM, None, OutOfMemory),
            (End::Code(1), Yes, OOM, None, Interrupted),
            (End::Code(0), Yes, "", None, Finished),
            (End::Code(1), No, ERROR, None, Failed),
            (End::Code(1), No, ERROR, EVIDENCE, Failed),
            // Whoever waited for the process that was killed says nothing.
            (End::Code(1), No, "", EVIDENCE, OutOfMemory),
            (End::Code(1), No, "", FULL, Failed),
            (End::Signal(9), No, "", FULL, OutOfMemory),
            (End::Signal(9), No, "", None, Failed),
            (End::Signal(9), No, "", EVIDENCE, OutOfMemory),
            (End::Code(137), No, "", EVIDENCE, OutOfMemory),
            (End::Signal(9), Yes, "", EVIDENCE, Interrupted),
            (End::Signal(6), No, "terminate called after throwing an instance of 'std::bad_alloc'", None, OutOfMemory),
            (End::Signal(11), No, "Segmentation fault", EVIDENCE, Failed),
            // A rank of a group was killed; the group ends with 1.
            (End::Code(1), No, "  exitcode  : -9 (pid: 7)", None, Failed),
            (End::Code(1), No, "  exitcode  : -9 (pid: 7)", EVIDENCE, OutOfMemory),
        ];
        for (end, asked, text, evidence, expected) in cases {
            assert_eq!(judged(end, asked, text, evidence), expected, "{end:?} {asked:?} {text:?} {evidence:?}");
        }
    }

    #[test]
    fn codes_as_a_shell_has_them() {
        let codes = [End::Code(0), End::Code(7), End::Signal(15), End::Signal(9)].map(End::exit_code);
        assert_eq!(codes, [0, 7, 143, 137]);
    }
}
