//! How one start ended, and what shows it.

use serde::Serialize;

const SIGKILL: i32 = 9;

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum End {
    /// It ended by itself, with this code.
    Code(i32),
    /// A signal ended it.
    Signal(i32),
}

impl End {
    /// Whether it was SIGKILL, also as a shell in between tells it.
    #[must_use]
    pub fn was_killed(self) -> bool {
        self == Self::Signal(SIGKILL) || self == Self::Code(128 + SIGKILL)
    }
}

/// What an end means for what comes next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum EndKind {
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

impl Evidence {
    /// Whether a kill was counted or named, not only likely.
    pub(crate) const fn names_a_kill(self) -> bool {
        matches!(self, Self::ControlGroup { .. } | Self::KernelLog { .. })
    }
}
