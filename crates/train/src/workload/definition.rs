//! What the loop asks of a model and its data.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use lowtide_core::Bytes;
use lowtide_torch::tch::{Device, Tensor};
use lowtide_torch::{Segment, upload};

use super::cache_summary::CacheSummary;
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

    /// Hears that the batch of training samples `first .. first + count` will be asked for after the one that is computed now, if
    /// nothing comes between. One whose samples take time to make can begin on threads of its own; it holds no more than this batch.
    fn prepare(&self, _first: u64, _count: u32) {}

    /// The batch of evaluation samples `first .. first + count`: other samples than those for training.
    ///
    /// It may be on the host: each piece is moved to the device when it is computed.
    fn eval_batch(&self, first: u64, count: u32) -> Batch;

    /// Hears before training, on one of several ranks, that only a part of every step and of every evaluation will be asked for.
    /// One that reads ahead can leave out the rest.
    fn expect(&self, _train: PartOf, _eval: PartOf) {}

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

    /// Why steps cannot be replayed from CUDA graphs (`train.graphs`); `None` where they can.
    ///
    /// They can where what the segments and the loss ask of the device follows from the shapes of a batch, the random numbers
    /// that they draw from the device's generator aside. What depends on something on the host that changes from step to step
    /// cannot: a graph would go on with what it was when it was recorded.
    fn why_no_graphs(&self) -> Option<&str> {
        None
    }

    /// Whether a batch may be cut without changing what the model computes. Not so with batch statistics.
    fn splits(&self) -> bool {
        true
    }
}

/// The part of a rank: the first `own` of every `whole` samples, counted from the first one that it asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PartOf {
    /// Its samples.
    pub own: u64,
    /// Samples of all ranks.
    pub whole: u64,
}

/// Samples that are computed together. Every tensor's first dimension counts samples.
#[derive(Debug)]
pub struct Batch {
    /// What the first segment takes.
    pub inputs: Vec<Tensor>,
    /// What the loss is held against.
    pub targets: Vec<Tensor>,
    /// Targets in one sample: what micro-batches are weighted by.
    pub targets_per_sample: u64,
}

impl Batch {
    /// Samples in it.
    #[must_use]
    pub fn samples(&self) -> u32 {
        let first = self.inputs.first().map_or(0, |tensor| tensor.size()[0]);
        u32::try_from(first).expect("a batch has fewer than 2^32 samples")
    }

    /// Targets in it.
    #[must_use]
    pub fn target_count(&self) -> u64 {
        u64::from(self.samples()) * self.targets_per_sample
    }

    /// The samples `start .. start + count`, sharing memory.
    #[must_use]
    pub fn piece(&self, start: u32, count: u32) -> Batch {
        let cut = |tensors: &[Tensor]| {
            tensors.iter().map(|tensor| tensor.narrow(0, i64::from(start), i64::from(count))).collect()
        };
        Batch { inputs: cut(&self.inputs), targets: cut(&self.targets), targets_per_sample: self.targets_per_sample }
    }

    /// All its tensors.
    pub(crate) fn tensors(&self) -> impl Iterator<Item = &Tensor> {
        self.inputs.iter().chain(&self.targets)
    }

    /// The same samples in memory of their own.
    pub(crate) fn copy(&self) -> Batch {
        let copies = |tensors: &[Tensor]| tensors.iter().map(Tensor::copy).collect();
        let (inputs, targets) = (copies(&self.inputs), copies(&self.targets));
        Batch { inputs, targets, targets_per_sample: self.targets_per_sample }
    }

    /// The same samples on a device, sharing memory where they are there already.
    #[must_use]
    pub fn to_device(&self, device: Device) -> Batch {
        let there = |tensors: &[Tensor]| tensors.iter().map(|tensor| upload(tensor, device)).collect();
        let (inputs, targets) = (there(&self.inputs), there(&self.targets));
        Batch { inputs, targets, targets_per_sample: self.targets_per_sample }
    }
}

/// Whether a model trains or is evaluated: one flag that all its parts look at.
#[derive(Clone, Debug)]
pub struct Mode(Arc<AtomicBool>);

impl Default for Mode {
    /// Training.
    fn default() -> Mode {
        Mode(Arc::new(AtomicBool::new(true)))
    }
}

impl Mode {
    /// Whether it trains.
    #[must_use]
    pub fn is_training(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Evaluation until the guard is dropped, by unwinding too.
    pub fn evaluate(&self) -> EvaluationScope<'_> {
        self.0.store(false, Ordering::Relaxed);
        EvaluationScope(self)
    }
}

/// Evaluation, until dropped.
#[must_use = "evaluation ends when the guard is dropped"]
#[derive(Debug)]
pub struct EvaluationScope<'a>(&'a Mode);

impl Drop for EvaluationScope<'_> {
    fn drop(&mut self) {
        self.0.0.store(true, Ordering::Relaxed);
    }
}

/// Takes in an evaluation piece by piece and makes a figure at the end.
///
/// It holds plain numbers: a tensor of a piece that it kept would be there while the next piece is computed.
pub trait Tally {
    /// Takes in a piece of a batch, with the outputs that the loss was computed from.
    fn add(&mut self, outputs: &[Tensor], batch: &Batch);

    /// The figure of everything that was taken in.
    fn finish(self: Box<Self>) -> f64;

    /// What it took in, as numbers for [`Tally::merge`] on another rank. Where one says nothing, every rank evaluates all.
    fn export(&self) -> Option<Vec<f64>> {
        None
    }

    /// Takes in what another one exported, which saw the samples behind those seen so far.
    fn merge(&mut self, _exported: &[f64]) {}
}

/// A figure in the making, and its name.
pub struct Metric<'a> {
    /// The name in files and settings.
    pub name: &'static str,
    /// What takes in the evaluation.
    pub tally: Box<dyn Tally + 'a>,
}

impl<'a> Metric<'a> {
    /// A figure that its tally makes.
    pub fn new(name: &'static str, tally: impl Tally + 'a) -> Metric<'a> {
        Metric { name, tally: Box::new(tally) }
    }

    /// The mean over all samples of what `sum_of` makes of each piece, as a sum over its samples.
    pub fn mean(name: &'static str, sum_of: impl Fn(&[Tensor], &Batch) -> Tensor + 'a) -> Metric<'a> {
        Metric::new(name, Mean { sum_of, sum: 0.0, samples: 0 })
    }
}

struct Mean<F> {
    sum_of: F,
    sum: f64,
    samples: u64,
}

impl<F: Fn(&[Tensor], &Batch) -> Tensor> Tally for Mean<F> {
    fn add(&mut self, outputs: &[Tensor], batch: &Batch) {
        self.sum += (self.sum_of)(outputs, batch).double_value(&[]);
        self.samples += u64::from(batch.samples());
    }

    fn finish(self: Box<Self>) -> f64 {
        self.sum / self.samples as f64
    }

    fn export(&self) -> Option<Vec<f64>> {
        Some(vec![self.sum, self.samples as f64])
    }

    fn merge(&mut self, exported: &[f64]) {
        if let [sum, samples] = exported {
            self.sum += sum;
            self.samples += *samples as u64;
        }
    }
}
