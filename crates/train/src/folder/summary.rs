//! What came of a run.

use std::collections::BTreeMap;

use lowtide_core::Metrics;
use serde::{Deserialize, Serialize};

use crate::evaluation::EvalSummary;
use crate::time_profile::TimeProfile;
use crate::workload::CacheSummary;

/// The contents of `summary.json`. Sizes are bytes, times are seconds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// Version of the fields.
    pub schema: u32,
    /// The workload's name.
    pub workload: String,
    /// The device it ran on: `cpu` or `cuda:N`.
    pub device: String,
    /// `fp32`, `bf16` or `fp16`.
    pub precision: String,
    /// Parameters trained.
    pub parameters: u64,
    /// Steps committed, over all starts of the run.
    pub steps: u64,
    /// The last step, where the run finished before all of its steps because its evaluations got no better.
    pub stopped_early_at: Option<u64>,
    /// Samples in a step.
    pub effective_batch: u32,
    /// Samples computed at once at the end.
    pub micro_batch_final: u32,
    /// The line, where one was drawn.
    pub line_bytes: Option<u64>,
    /// The line of the host, where one was drawn.
    pub host_line_bytes: Option<u64>,
    /// The most memory of the host that the process ever took, all its runs together.
    #[serde(default)]
    pub peak_rss_bytes: u64,
    /// The most memory taken from the device.
    pub peak_reserved_bytes: u64,
    /// The most memory held by tensors.
    pub peak_allocated_bytes: u64,
    /// The most memory taken from the device and not held by tensors after an evaluation, since the last start.
    pub idle_after_eval_bytes: Option<u64>,
    /// Out-of-memory errors met.
    pub oom_errors: u64,
    /// Out-of-memory errors after which the same work was done.
    pub oom_recovered: u64,
    /// Steps left out because the loss scale overflowed.
    pub skipped_steps: u64,
    /// Samples trained on.
    pub samples_seen: u64,
    /// Samples that should have been trained on and were not.
    pub samples_lost: u64,
    /// The mean loss of the last 20 steps.
    pub final_loss: Option<f64>,
    /// The loss of the last evaluation.
    pub eval_loss: Option<f64>,
    /// The workload's own figures of the last evaluation.
    pub metrics: Metrics,
    /// Figures that the last evaluation should have had and could not compute, and why.
    #[serde(default)]
    pub metrics_missing: BTreeMap<String, String>,
    /// The last evaluation of a workload with frames: its figures, how it was made and what it took. Null where it was
    /// given up.
    #[serde(default)]
    pub eval: Option<EvalSummary>,
    /// The least loss that any model can reach on this data, where it is known.
    pub loss_floor: Option<f64>,
    /// Samples trained on in a second of training, since the last start.
    pub samples_per_second: f64,
    /// Targets trained on in a second of training, since the last start.
    pub targets_per_second: f64,
    /// Tokens trained on in a second of training, since the last start, for workloads that have tokens.
    #[serde(default)]
    pub tokens_per_second: Option<f64>,
    /// Where the time of some steps went, where that was asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile: Option<TimeProfile>,
    /// SHA-256 over names and values of parameters and buffers.
    pub weights_sha256: String,
    /// What its data cache was asked for, where it has one.
    pub cache: Option<CacheSummary>,
    /// Time from start to end, over all starts of the run.
    pub wall_seconds: f64,
    /// How it ended.
    pub stopped: RunEnding,
}

/// How a run ended that could write its summary.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunEnding {
    /// All steps were done, or its evaluations got no better.
    Finished,
    /// Somebody asked it to end.
    Interrupted,
    /// Nothing fits under the line.
    Line,
}
