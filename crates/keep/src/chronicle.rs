//! What happened, from the first start to the last: how each of them ended, and what shows it.

use lowtide_core::Bytes;
use lowtide_log::{Activity, BatchReport};
use serde::Serialize;

use crate::{BatchSplit, KeepError};

/// The version of the chronicle's form.
pub const SCHEMA: u32 = 1;
const SIGKILL: i32 = 9;

/// What happened, from the first start to the last.
#[derive(Debug, Serialize)]
pub struct Chronicle {
    /// The version of this form.
    pub schema: u32,
    /// The command as it was given.
    pub command: Vec<String>,
    /// Where logs are.
    pub folder: String,
    /// Why there is no further start.
    pub ending: Conclusion,
    /// Starts besides the first.
    pub restarts: usize,
    /// Samples of a step, the same for every start; none where starts told of different batches.
    pub effective_batch: Option<u64>,
    /// All of it, in seconds.
    pub seconds: f64,
    /// Every start, in order.
    pub starts: Vec<StartRecord>,
    /// Why no further start could be made, where that is so.
    #[serde(skip)]
    pub failure: Option<KeepError>,
    /// The signal by which somebody ended it while no command was running.
    #[serde(skip)]
    pub signal: Option<i32>,
}

/// Whether starts reported different batches.
#[must_use]
pub fn batch_changed(starts: &[StartRecord]) -> bool {
    let mut reports = starts.iter().filter_map(|start| start.batch_report);
    reports.next().is_some_and(|first| reports.any(|other| other != first))
}

/// Why no further start follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Conclusion {
    /// The command did what it had to.
    Finished,
    /// The command was told to end.
    Interrupted,
    /// The command failed for a reason that less memory does not mend.
    Failed,
    /// Memory ran out, and it is not known how to make the command need less.
    NoRungs,
    /// Memory ran out at a request that no smaller micro-batch makes smaller: weights, the optimizer's state.
    SameOnEveryRung,
    /// Memory ran out on the last rung, twice without getting any further.
    LastRung,
    /// Memory ran out again, and a rung told of another batch than the first start.
    BatchChanged,
    /// Memory ran out, and what the command read from its standard input cannot be read again.
    InputGone,
    /// A further start would begin at step 0, and might write over a checkpoint that could not be copied.
    CheckpointsInDanger,
    /// Memory ran out once more than restarts are allowed.
    TooManyRestarts,
}

/// One start of the command.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct StartRecord {
    /// How far down, from 0.
    pub rung: usize,
    /// The batch of that rung.
    pub batch: Option<BatchSplit>,
    /// The command.
    pub command: Vec<String>,
    /// Variables besides those that were there, as `NAME=value`.
    pub environment: Vec<String>,
    /// The checkpoint it resumed from.
    pub resumed_from: Option<String>,
    /// The step of that checkpoint, where it says so.
    pub resumed_step: Option<u64>,
    /// Its output.
    pub log: String,
    /// Why the log is not whole, where it is not.
    pub log_cut: Option<String>,
    /// The size of its output.
    pub output_bytes: u64,
    /// How long it ran, in seconds.
    pub seconds: f64,
    /// How it ended.
    pub end: End,
    /// What that means.
    pub outcome: EndKind,
    /// What happened, where memory ran out.
    pub cause: Option<String>,
    /// What was asked for, where memory ran out and the line tells.
    pub requested_bytes: Option<Bytes>,
    /// What it was doing when it ended by an error, where its stack tells.
    pub phase: Option<Activity>,
    /// The line that told of it, or of a kill that nothing shows to be for memory.
    pub line: Option<String>,
    /// What showed it from outside.
    pub evidence: Option<Evidence>,
    /// What it printed of the batch of a step.
    #[serde(rename = "told_batch")]
    pub batch_report: Option<BatchReport>,
    /// The last step of its output.
    pub step: Option<u64>,
    /// The most memory that was seen.
    pub peak: Peak,
    /// What became of that which was put into its Pythons; none where nothing was.
    pub inside: Option<InsideState>,
}

/// What became of that which was put into the Pythons of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum InsideState {
    /// At least one Python took it.
    Active,
    /// None did: a Python that reads nothing at its start (`-I`, `-S`), another machine or container, or no Python at all.
    Unread,
}

/// The most memory that was seen.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Peak {
    /// Of all processes of the command together, in RAM; pages that several share are counted for each.
    pub tree_bytes: u64,
    /// Of each card, by all who use it.
    pub cards: Vec<CardPeak>,
}

/// The most memory that was seen in use on a card.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct CardPeak {
    /// The card, in the driver's order.
    pub index: u32,
    /// In use, by everybody.
    pub used_bytes: u64,
    /// All there is.
    pub total_bytes: u64,
}

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

/// What shows, besides the words of the command, that a process of it ended for want of memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Evidence {
    /// The control group counted kills while the command ran.
    ControlGroup {
        /// So many.
        kills: u64,
        /// The group's own limit, in bytes, where it has one that is below the machine's memory.
        limit_bytes: Option<u64>,
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
    /// A process of the command wrote down itself that it ended by an out-of-memory error.
    Report {
        /// Its number.
        pid: u32,
        /// What it asked for, in bytes, where it says so.
        asked_bytes: Option<u64>,
    },
}

impl Evidence {
    /// What happened, in a sentence.
    #[must_use]
    pub fn sentence(self) -> String {
        match self {
            Self::ControlGroup { limit_bytes: Some(limit), .. } => format!(
                "the kernel killed a process of the command: its control group (container or job) reached its memory limit \
                 of {}",
                Bytes(limit)
            ),
            Self::ControlGroup { limit_bytes: None, .. } | Self::KernelLog { .. } => {
                "memory of the machine ran out: the kernel killed a process of the command".to_owned()
            }
            Self::NearTheLimit { held_bytes, limit_bytes } => format!(
                "a process of the command was killed while it held {} of {}",
                Bytes(held_bytes),
                Bytes(limit_bytes)
            ),
            Self::Report { asked_bytes, .. } => {
                let asked = asked_bytes.map_or(String::new(), |bytes| format!(": {} asked for", Bytes(bytes)));
                format!("an out-of-memory error ended a process of the command, as it wrote down itself{asked}")
            }
        }
    }

    /// What the kernel itself says of it, in the kernel's words, for whoever reads the log of the command alone.
    pub(crate) fn kernel_line(self) -> Option<String> {
        match self {
            Self::ControlGroup { kills, limit_bytes: Some(_) } => Some(format!("memory.events: oom_kill {kills}")),
            Self::ControlGroup { limit_bytes: None, .. } => Some("kernel: Out of memory: Killed process".to_owned()),
            Self::KernelLog { pid } => Some(format!("kernel: Out of memory: Killed process {pid}")),
            Self::NearTheLimit { .. } | Self::Report { .. } => None,
        }
    }
}
