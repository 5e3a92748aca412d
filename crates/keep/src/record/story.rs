//! What happened, from the first start to the last.

use serde::Serialize;

use crate::{Batch, End, Ending, Evidence, Outcome, Peak, ToldBatch};

/// The version of the story's form.
pub const SCHEMA: u32 = 1;

/// What happened, from the first start to the last; `summary.json` of a run's folder.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Story {
    /// The version of this form.
    pub schema: u32,
    /// The command as it was given.
    pub command: Vec<String>,
    /// Where logs and this story are.
    pub folder: String,
    /// Why there is no further start.
    pub ending: Ending,
    /// The exit code that goes with it.
    pub exit_code: u8,
    /// Starts besides the first.
    pub restarts: usize,
    /// Samples of a step, the same for every start; none where starts told of different batches.
    pub effective_batch: Option<u64>,
    /// All of it, in seconds.
    pub seconds: f64,
    /// Every start, in order.
    pub starts: Vec<Start>,
}

impl Story {
    /// Whether starts told of different batches.
    #[must_use]
    pub fn batch_changed(&self) -> bool {
        batch_changed(&self.starts)
    }
}

/// Whether starts told of different batches.
pub(crate) fn batch_changed(starts: &[Start]) -> bool {
    let mut told = starts.iter().filter_map(|start| start.told_batch.as_ref());
    told.next().is_some_and(|first| told.any(|other| other != first))
}

/// One start of the command.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Start {
    /// How far down, from 0.
    pub rung: usize,
    /// The batch of that rung.
    pub batch: Option<Batch>,
    /// The command.
    pub command: Vec<String>,
    /// Variables besides those that were there, as `NAME=value`.
    pub environment: Vec<String>,
    /// The checkpoint it went on from.
    pub resumed_from: Option<String>,
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
    pub outcome: Outcome,
    /// What happened, where memory ran out.
    pub cause: Option<String>,
    /// The line that told of it, or of a kill that nothing shows to be for memory.
    pub line: Option<String>,
    /// What showed it from outside.
    pub evidence: Option<Evidence>,
    /// What it said of the batch of a step.
    pub told_batch: Option<ToldBatch>,
    /// The last step that its output told of.
    pub step: Option<u64>,
    /// The most memory that was seen.
    pub peak: Peak,
}

#[cfg(test)]
impl Start {
    pub(crate) fn example(outcome: Outcome) -> Self {
        Self {
            rung: 0,
            batch: None,
            command: Vec::new(),
            environment: Vec::new(),
            resumed_from: None,
            log: String::new(),
            log_cut: None,
            output_bytes: 0,
            seconds: 1.0,
            end: End::Code(1),
            outcome,
            cause: None,
            line: None,
            evidence: None,
            told_batch: None,
            step: None,
            peak: Peak::default(),
        }
    }
}
