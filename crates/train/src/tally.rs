//! What an evaluation makes of all its samples together.

use lowtide_core::Metrics;
use lowtide_torch::tch::Tensor;

use crate::workload::Batch;

/// Takes in an evaluation piece by piece and makes its figures at the end.
///
/// It holds plain numbers: a tensor of a piece that it kept would be there while the next piece is computed.
pub trait Tally {
    /// Takes in a piece of a batch, with the outputs that the loss was computed from.
    fn add(&mut self, outputs: &[Tensor], batch: &Batch);

    /// The figures of everything that was taken in.
    fn finish(self: Box<Self>) -> Metrics;
}

/// Means over all samples of figures that are known as sums over a piece: the tally of [`crate::Workload::metrics`].
pub struct Means<F> {
    sums_of: F,
    sums: Vec<(&'static str, f64)>,
    samples: u64,
}

impl<F: Fn(&[Tensor], &Batch) -> Vec<(&'static str, Tensor)>> Means<F> {
    /// Means of what `sums_of` makes of each piece.
    pub fn new(sums_of: F) -> Means<F> {
        Means { sums_of, sums: Vec::new(), samples: 0 }
    }
}

impl<F: Fn(&[Tensor], &Batch) -> Vec<(&'static str, Tensor)>> Tally for Means<F> {
    fn add(&mut self, outputs: &[Tensor], batch: &Batch) {
        for (name, sum) in (self.sums_of)(outputs, batch) {
            let value = sum.double_value(&[]);
            match self.sums.iter_mut().find(|(other, _)| *other == name) {
                Some((_, sum)) => *sum += value,
                None => self.sums.push((name, value)),
            }
        }
        self.samples += u64::from(batch.samples());
    }

    fn finish(self: Box<Self>) -> Metrics {
        let Means { sums, samples, .. } = *self;
        sums.into_iter().map(|(name, sum)| (name.to_owned(), sum / samples as f64)).collect()
    }
}
