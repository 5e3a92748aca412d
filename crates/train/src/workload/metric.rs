//! Figures that an evaluation makes of all its samples together.

use lowtide_torch::tch::Tensor;

use super::batch::Batch;

/// Takes in an evaluation piece by piece and makes a figure at the end.
///
/// It holds plain numbers: a tensor of a piece that it kept would be there while the next piece is computed.
pub trait Tally {
    /// Takes in a piece of a batch, with the outputs that the loss was computed from.
    fn add(&mut self, outputs: &[Tensor], batch: &Batch);

    /// The figure of everything that was taken in.
    fn finish(self: Box<Self>) -> f64;
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
}
