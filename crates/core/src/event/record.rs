//! What is written down about a run.

use serde::{Deserialize, Deserializer, Serialize};

use super::numerics::{Numerics, NumericsChange};
use crate::{Bytes, Line, Measures, Metrics, MicroBatch, Phase, Reason, Rung, Step, Stop};

/// The version of the form of [`Record`]; it grows when a reader of the old form would misread the new one.
pub const SCHEMA: u32 = 1;

/// One line of `events.jsonl`: an event and when it happened.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// The version of this form; [`SCHEMA`] when written by this crate.
    pub schema: u32,
    /// Seconds since the run, or its present part after a resume, began.
    pub time: f64,
    /// The rank it happened on, where several train together and it is one's own; left out of the line where it is all ranks'.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rank: Option<u32>,
    /// What happened.
    #[serde(flatten)]
    pub event: Event,
}

impl Record {
    /// A record in the present schema of something that happened at `time` seconds.
    #[must_use]
    pub const fn new(time: f64, event: Event) -> Self {
        Self { schema: SCHEMA, time, rank: None, event }
    }

    /// Whether it tells of memory on another rank than the first, whose memory stands for the run's where one figure is shown.
    #[must_use]
    pub fn is_others_memory(&self) -> bool {
        matches!(self.event, Event::Memory { .. }) && self.rank.is_some_and(|rank| rank > 0)
    }

    /// The same, of one of several ranks.
    #[must_use]
    pub fn on_rank(self, rank: Option<u32>) -> Self {
        Self { rank, ..self }
    }
}

/// Something that happened in a run.
///
/// In JSON the key `event` holds the name. A loss that is not a finite number is written as `null` and read as NaN.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Event {
    /// The run began, or went on from a checkpoint.
    RunStarted {
        /// The name of the workload.
        workload: String,
        /// The device, as `cpu` or `cuda:0`.
        device: String,
        /// The seed of all random numbers.
        seed: u64,
        /// The effective batch in samples.
        batch: u32,
        /// The largest micro-batch it may take; after a resume the one it goes on with.
        micro_batch: MicroBatch,
        /// The memory limit of the device.
        line: Line,
        /// The memory limit of the host.
        host_line: Line,
        /// The number of trained parameters.
        parameters: u64,
        /// The step of the checkpoint that the run goes on from.
        resumed_at: Option<Step>,
        /// What decides the bits beside the settings. Older runs do not tell.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        numerics: Option<Box<Numerics>>,
    },
    /// A run goes on under numerics that are others than when its checkpoint was written, so that its bits may be others
    /// than those of an unbroken run.
    NumericsChanged {
        /// The step of the checkpoint that the run goes on from.
        step: Step,
        /// What is another than before.
        changes: Vec<NumericsChange>,
    },
    /// A micro-batch was tried out before training, to find the first one; nothing else came of it.
    Probed {
        /// Samples computed at once.
        micro_batch: MicroBatch,
        /// The most bytes in use; `null` where memory ran out.
        peak: Option<Bytes>,
        /// How long it took.
        seconds: f64,
    },
    /// The first micro-batch was chosen.
    Sized {
        /// The measures that training starts with.
        measures: Measures,
    },
    /// A step was committed.
    #[serde(rename = "step")]
    StepDone {
        /// The step.
        step: Step,
        /// The mean loss of its batch.
        #[serde(deserialize_with = "null_as_nan")]
        loss: f64,
        /// The learning rate of its update.
        learning_rate: f64,
        /// The samples in its batch.
        samples: u64,
        /// The tokens in its batch, for workloads that have tokens.
        tokens: Option<u64>,
        /// How long it took, repeated tries included.
        seconds: f64,
        /// Bytes in use after it.
        allocated: Bytes,
        /// The most bytes in use during the try that succeeded.
        peak: Bytes,
        /// The most bytes held from the device during it, cached blocks included.
        reserved: Bytes,
        /// The micro-batch it was computed with.
        micro_batch: MicroBatch,
    },
    /// Memory as it was at one moment. What cannot be had is left out.
    Memory {
        /// The last committed step.
        step: Step,
        /// Bytes held by tensors on the device.
        allocated: Bytes,
        /// Bytes held from the device, cached blocks included.
        reserved: Bytes,
        /// Times the allocator had to empty its cache to serve a request, since the start.
        #[serde(default)]
        retries: u64,
        /// Bytes of the device that are taken, by all programs, as the driver tells.
        #[serde(skip_serializing_if = "Option::is_none")]
        device_used: Option<Bytes>,
        /// Bytes that the device has.
        #[serde(skip_serializing_if = "Option::is_none")]
        device_total: Option<Bytes>,
        /// Bytes of the host that the process takes.
        resident: Bytes,
        /// Bytes of the host that are taken by all who share it.
        #[serde(skip_serializing_if = "Option::is_none")]
        host_used: Option<Bytes>,
        /// Bytes that the host has, or that the process's control group may take.
        #[serde(skip_serializing_if = "Option::is_none")]
        host_total: Option<Bytes>,
        /// Bytes of `resident` that are the reserve for a full device.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reserve: Option<Bytes>,
        /// Of several ranks, seconds of a step in which this one worked, on average since the last of these lines.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        worked: Option<f64>,
        /// Of several ranks, seconds of a step in which this one waited for others, on average since the last of these lines.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        waited: Option<f64>,
    },
    /// Memory ran out; what the message does not tell is `null`.
    OutOfMemory {
        /// The step that was under way.
        step: Step,
        /// What it was doing.
        phase: Phase,
        /// The bytes that were asked for.
        requested: Option<Bytes>,
        /// The limit that stood in the way.
        limit: Option<Bytes>,
        /// The bytes in use at that moment.
        allocated: Option<Bytes>,
        /// The most bytes in use during the try that failed. Lines of older runs do not tell.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        peak: Option<Bytes>,
        /// The most bytes held from the device during it, cached blocks included. Lines of older runs do not tell.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reserved: Option<Bytes>,
        /// The engine's own message.
        message: String,
    },
    /// Work needed more than the device has, and got it from the reserve of host memory: it was slow, and is done.
    Overflowed {
        /// The step that it belongs to; of an evaluation the last committed one.
        step: Step,
        /// What it was doing.
        phase: Phase,
        /// Bytes of the reserve that were used.
        bytes: Bytes,
        /// The size of the reserve.
        reserve: Bytes,
        /// How long it took, from the first use of the reserve on.
        seconds: f64,
        /// The most bytes in use.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        needed: Option<Bytes>,
        /// The bytes that the device had for it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        limit: Option<Bytes>,
        /// Bytes in use whatever the batch is.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        resting: Option<Bytes>,
    },
    /// Something was changed after memory ran out, and the step is tried again (or given up).
    RungTaken {
        /// The step that failed.
        step: Step,
        /// The rung.
        rung: Rung,
        /// The measures from now on.
        measures: Measures,
        /// Why.
        reason: Reason,
    },
    /// A larger micro-batch is tried.
    Climbed {
        /// The last step with the smaller one.
        step: Step,
        /// The measures from now on.
        measures: Measures,
        /// Why.
        reason: Reason,
    },
    /// Cached blocks were released.
    Cleaned {
        /// The step that was under way or just committed.
        step: Step,
        /// The bytes given back to the device.
        freed: Bytes,
        /// How long it took.
        seconds: f64,
    },
    /// An evaluation ended.
    Evaluated {
        /// The last committed step.
        step: Step,
        /// The mean loss.
        #[serde(deserialize_with = "null_as_nan")]
        loss: f64,
        /// The workload's own figures; left out of the line where it has none.
        #[serde(default, skip_serializing_if = "Metrics::is_empty")]
        metrics: Metrics,
        /// The number of batches.
        batches: u64,
        /// How long it took.
        seconds: f64,
        /// Bytes in use right after it. Lines of older runs do not tell.
        allocated: Option<Bytes>,
        /// Bytes held from the device right after it, cached blocks included. Lines of older runs do not tell.
        reserved: Option<Bytes>,
        /// Whether frames were cut into tiles that change what the model sees; left out of the line where not.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        approximate: bool,
    },
    /// A figure of an evaluation is missing; the others stand.
    MetricMissing {
        /// The last committed step.
        step: Step,
        /// Its name.
        metric: String,
        /// Why.
        reason: String,
    },
    /// The run ends before its last step, because its evaluations do not get better.
    StoppedEarly {
        /// The last committed step.
        step: Step,
        /// Evaluations in a row that were not better than the best.
        evaluations: u64,
        /// The lowest loss of an evaluation, where one was a finite number.
        best: Option<f64>,
    },
    /// Frames are evaluated in smaller tiles, because memory ran out.
    TileHalved {
        /// The last committed step.
        step: Step,
        /// Pixels along each side of a tile from now on.
        tile: u32,
    },
    /// An evaluation was given up; training goes on without its figure.
    EvaluationFailed {
        /// The last committed step.
        step: Step,
        /// Why, and what was tried.
        stop: Stop,
    },
    /// A checkpoint was written.
    Saved {
        /// The step whose state it holds.
        step: Step,
        /// Where it is, as seen from the run folder.
        path: String,
        /// Its size on disk.
        bytes: Bytes,
        /// How long it took.
        seconds: f64,
    },
    /// The update of a step was left out because the gradients overflowed; the loss scale falls.
    Skipped {
        /// The step.
        step: Step,
        /// The loss scale from now on.
        scale: f64,
    },
    /// The run folder is not where it was, or was deleted and made again.
    Relocated {
        /// The last committed step.
        step: Step,
        /// Where it is from now on.
        folder: String,
        /// What happened to it.
        cause: Relocation,
    },
    /// Something that a person should know, and that does not end the run.
    Note {
        /// The last committed step.
        step: Step,
        /// It, in words.
        message: String,
    },
    /// A command that is kept alive was started, for the first time or again.
    CommandStarted {
        /// Its number, from 1.
        start: u32,
        /// The command, as a shell would take it.
        command: String,
        /// Samples computed at once, where it is known.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        micro_batch: Option<u64>,
        /// Micro-batches in a step, where it is known.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        accumulation: Option<u64>,
        /// The checkpoint it goes on from.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        resumed_from: Option<String>,
    },
    /// Memory of a command that is kept alive, as it was at one moment. What cannot be had is left out.
    CommandMemory {
        /// The last step of its output.
        step: Step,
        /// Bytes of the host that all its processes take.
        resident: Bytes,
        /// Bytes of the host that are taken by all who share it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        host_used: Option<Bytes>,
        /// Bytes that the host has, or that the command's control group may take.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        host_total: Option<Bytes>,
        /// Bytes that are taken of each card, by all programs, in the driver's order.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        cards: Vec<CardMemory>,
    },
    /// A start of a command that is kept alive has ended.
    CommandEnded {
        /// Its number, from 1.
        start: u32,
        /// The last step of its output.
        step: Step,
        /// How long it ran.
        seconds: f64,
        /// What its end means.
        outcome: CommandOutcome,
        /// What happened, where memory ran out.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        cause: Option<String>,
    },
    /// The run ended.
    Stopped {
        /// The last committed step.
        step: Step,
        /// How it ended.
        #[serde(flatten)]
        ending: Ending,
    },
}

/// What is taken of a card.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct CardMemory {
    /// The card, in the driver's order.
    pub index: u32,
    /// Bytes in use, by everybody.
    pub used: Bytes,
    /// Bytes there are.
    pub total: Bytes,
}

/// What the end of a command's start means.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CommandOutcome {
    /// It did what it had to.
    Finished,
    /// It was told to end.
    Interrupted,
    /// Memory ran out.
    OutOfMemory,
    /// It failed for a reason that less memory does not mend.
    Failed,
}

/// What happened to the folder of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Relocation {
    /// Somebody moved it, with all that is in it.
    Moved,
    /// Somebody deleted it, or files of it: what was still open was written again, and older checkpoints are gone.
    Deleted,
}

/// How a run ended; in JSON the key `reason` holds the name.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "reason", rename_all = "snake_case")]
pub enum Ending {
    /// All steps were done.
    Finished,
    /// A signal asked it to end.
    Interrupted,
    /// It could not be held under the line.
    Line {
        /// Why, and what was tried.
        stop: Stop,
    },
    /// An error that has nothing to do with memory.
    Error {
        /// The error in words.
        message: String,
    },
}

fn null_as_nan<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or(f64::NAN))
}
