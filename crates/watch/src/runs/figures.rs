//! A run in figures: what it said when it began, and what it has come to.

use lowtide_core::{Bytes, Metrics};
use serde::Serialize;

/// What a run said of itself when it began.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RunHeader {
    /// The workload.
    pub workload: String,
    /// The device.
    pub device: String,
    /// Samples in a step.
    pub batch: u32,
    /// Trained parameters.
    pub parameters: u64,
    /// The line.
    pub line: Option<Bytes>,
    /// The line on host memory.
    pub host_line: Option<Bytes>,
}

/// The figures of a run at present.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Figures {
    /// The last committed step.
    pub step: u64,
    /// The steps it is to have, where its settings tell.
    pub steps: Option<u64>,
    /// Seconds of training, over all starts.
    pub time: f64,
    /// The loss of the last step.
    pub loss: Option<f64>,
    /// The loss of the last evaluation.
    pub eval_loss: Option<f64>,
    /// Other figures of the last evaluation.
    pub metrics: Metrics,
    /// Bytes in use after the last step.
    pub allocated: Bytes,
    /// The most bytes in use during the last step.
    pub peak: Bytes,
    /// The most bytes held from the device during the last step.
    pub reserved: Bytes,
    /// The most bytes ever in use.
    pub highest_peak: Bytes,
    /// The most bytes ever held from the device.
    pub highest_reserved: Bytes,
    /// Samples computed at once.
    pub micro_batch: u32,
    /// Samples in a second, over the last steps.
    pub samples_per_second: f64,
    /// Tokens in a second, over the last steps, for workloads that have tokens.
    pub tokens_per_second: Option<f64>,
    /// Out-of-memory errors.
    pub out_of_memory: u64,
    /// Out-of-memory errors after which the same work was done.
    pub recovered: u64,
    /// Answers of the guard.
    pub rungs: u64,
    /// Times that cached blocks were released.
    pub cleanings: u64,
    /// Bytes that came back by that.
    pub freed: Bytes,
    /// Checkpoints written.
    pub saved: u64,
    /// Times the allocator had to empty its cache, since the last start; runs of older versions do not tell.
    pub retries: Option<u64>,
    /// The most memory of the host that the process was seen to take.
    pub highest_resident: Option<Bytes>,
    /// Memory of the host, or what its control group may take of it.
    pub host_total: Option<Bytes>,
}
