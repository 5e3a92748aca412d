//! What the loop asks of a model and its data.

use std::collections::BTreeMap;
use std::num::NonZeroU32;

use lowtide_core::Bytes;
use lowtide_torch::Segment;
use lowtide_torch::tch::Tensor;

use super::batch::Batch;
use super::cache_summary::CacheSummary;
use super::metric::Metric;
use super::mode::Mode;
use super::tiling::Tiling;

/// A model with its data, as the loop sees it: a chain of segments, a loss, and batches that can be cut.
///
/// Batches are pure functions of their position, so that a run can be resumed and a step repeated exactly.
pub trait Workload {
    /// The name in files: that in settings, and which of its models it is where it has several.
    fn name(&self) -> &str;

    /// Every tensor a checkpoint must hold, by name: parameters and buffers.
    fn state(&self) -> BTreeMap<String, Tensor>;

    /// The parameters to train, in groups with their weight decay factor (1 or 0, times the setting). All of the state
    /// without decay, which makes AdamW Adam, where a workload does not say otherwise.
    fn parameter_groups(&self) -> Vec<(f64, Vec<(String, Tensor)>)> {
        vec![(0.0, self.state().into_iter().collect())]
    }

    /// Whether the model trains or is evaluated at present; the loop sets it.
    fn mode(&self) -> &Mode;

    /// The model as a chain: the first segment takes a batch's inputs, each next one the outputs of the one before.
    fn segments(&self) -> &[Segment];

    /// The loss summed over all targets of a batch, from the last segment's outputs, computed in `chunks` pieces.
    ///
    /// A workload that cannot cut its loss takes no notice of `chunks`; it is 1 then.
    fn loss_sum(&self, outputs: &[Tensor], batch: &Batch, chunks: NonZeroU32) -> Tensor;

    /// Fresh tallies of the figures beyond the loss, in the order in which they are told: always the same names.
    ///
    /// Those that `eval.metrics` asks for take in an evaluation, each by itself, with the outputs that the loss was
    /// computed from.
    fn metrics(&self) -> Vec<Metric<'_>> {
        Vec::new()
    }

    /// The most pieces in which the loss can be computed. 1 where it cannot be cut.
    fn most_loss_chunks(&self) -> NonZeroU32 {
        NonZeroU32::MIN
    }

    /// The batch of training samples `first .. first + count`; fewer where some cannot be read and are to be left out,
    /// and at least one. Data that is wrong ends it with [`lowtide_torch::refuse_input`].
    fn train_batch(&self, first: u64, count: u32) -> Batch;

    /// The batch of evaluation samples `first .. first + count`: other samples than those for training.
    ///
    /// It may be on the host: each piece is moved to the device when it is computed.
    fn eval_batch(&self, first: u64, count: u32) -> Batch;

    /// Samples that there are to evaluate on, at least 1; `None` where there are always more. No other is asked for.
    fn eval_samples(&self) -> Option<u64> {
        None
    }

    /// How its frames can be evaluated in tiles (`eval.tile`), or why they cannot: a model with something that looks at
    /// the whole frame, such as a mean over space, has other outputs on a tile.
    fn tiling(&self) -> Result<Tiling, &'static str> {
        Err("its samples are not frames")
    }

    /// Targets in one sample: what micro-batches are weighted by.
    fn targets_per_sample(&self) -> u64;

    /// Whether targets are tokens, which people count speed in.
    fn has_tokens(&self) -> bool {
        false
    }

    /// Memory on the host that data may come to take besides tensors, where the workload bounds it.
    fn data_reserve(&self) -> Bytes {
        Bytes::ZERO
    }

    /// What its data cache was asked for since the workload was built; `None` where it has none.
    fn cache(&self) -> Option<CacheSummary> {
        None
    }

    /// The least loss that any model can reach on this data, where it is known.
    fn loss_floor(&self) -> Option<f64> {
        None
    }

    /// Whether a batch may be cut without changing what the model computes. Not so with batch statistics.
    fn splits(&self) -> bool {
        true
    }
}
