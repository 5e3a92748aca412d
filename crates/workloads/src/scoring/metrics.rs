//! How well predicted scores agree with the true ones.

use lowtide_torch::tch::{Device, Kind, Tensor};
use lowtide_train::{Batch, Tally};

use super::batch::target;

/// Makes one number of what was predicted and what is so.
type Figure = fn(&[f64], &[f64]) -> f64;

/// The scores of an evaluation, and what is made of them.
pub(crate) struct Agreement {
    figure: Figure,
    predicted: Vec<f64>,
    actual: Vec<f64>,
}

/// Fresh tallies of all figures, by name.
pub(crate) fn agreement() -> [(&'static str, Agreement); 4] {
    let figures: [(&str, Figure); 4] = [("mae", mae), ("rmse", rmse), ("r2", r2), ("spearman", spearman)];
    figures.map(|(name, figure)| (name, Agreement { figure, predicted: Vec::new(), actual: Vec::new() }))
}

impl Tally for Agreement {
    fn add(&mut self, outputs: &[Tensor], batch: &Batch) {
        self.predicted.extend(numbers(&outputs[0]));
        self.actual.extend(numbers(&batch.targets[target::SCORE]));
    }

    fn finish(self: Box<Self>) -> f64 {
        (self.figure)(&self.predicted, &self.actual)
    }

    fn export(&self) -> Option<Vec<f64>> {
        Some(self.predicted.iter().chain(&self.actual).copied().collect())
    }

    fn merge(&mut self, exported: &[f64]) {
        let (predicted, actual) = exported.split_at(exported.len() / 2);
        self.predicted.extend(predicted);
        self.actual.extend(actual);
    }
}

fn mae(predicted: &[f64], actual: &[f64]) -> f64 {
    mean(predicted.iter().zip(actual).map(|(predicted, actual)| (predicted - actual).abs()))
}

fn rmse(predicted: &[f64], actual: &[f64]) -> f64 {
    mean(predicted.iter().zip(actual).map(|(predicted, actual)| (predicted - actual).powi(2))).sqrt()
}

fn spearman(predicted: &[f64], actual: &[f64]) -> f64 {
    correlation(&ranks(predicted), &ranks(actual))
}

fn numbers(tensor: &Tensor) -> Vec<f64> {
    let here = tensor.detach().to_device(Device::Cpu).to_kind(Kind::Double).view([-1]);
    Vec::try_from(here).expect("one dimension of doubles")
}

fn mean(values: impl ExactSizeIterator<Item = f64>) -> f64 {
    let count = values.len();
    values.sum::<f64>() / count as f64
}

/// The share of the scores' variance that the predictions explain. No number where all scores are the same.
fn r2(predicted: &[f64], actual: &[f64]) -> f64 {
    let middle = mean(actual.iter().copied());
    let total: f64 = actual.iter().map(|actual| (actual - middle).powi(2)).sum();
    let left: f64 = predicted.iter().zip(actual).map(|(predicted, actual)| (predicted - actual).powi(2)).sum();
    if total == 0.0 { f64::NAN } else { 1.0 - left / total }
}

/// Pearson's correlation; of ranks it is Spearman's. No number where one side is all the same.
fn correlation(a: &[f64], b: &[f64]) -> f64 {
    let (mean_a, mean_b) = (mean(a.iter().copied()), mean(b.iter().copied()));
    let pairs = || a.iter().zip(b).map(|(a, b)| (a - mean_a, b - mean_b));
    let product: f64 = pairs().map(|(a, b)| a * b).sum();
    let squares = |of: fn((f64, f64)) -> f64| pairs().map(of).map(|value| value * value).sum::<f64>();
    product / (squares(|(a, _)| a) * squares(|(_, b)| b)).sqrt()
}

/// The rank of each value from 1; equal values share the mean of their ranks.
fn ranks(values: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by(|a, b| values[*a].total_cmp(&values[*b]));
    let mut ranks = vec![0.0; values.len()];
    let mut first = 0;
    for group in order.chunk_by(|a, b| values[*a] == values[*b]) {
        let rank = first as f64 + (group.len() + 1) as f64 / 2.0;
        group.iter().for_each(|at| ranks[*at] = rank);
        first += group.len();
    }
    ranks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(predicted: &[f64], actual: &[f64], expect: [f64; 4]) {
        let figures = agreement().map(|(name, tally)| (name, (tally.figure)(predicted, actual)));
        assert_eq!(figures.map(|(name, _)| name), ["mae", "rmse", "r2", "spearman"]);
        for ((name, value), expect) in figures.into_iter().zip(expect) {
            assert!(
                (value - expect).abs() < 1e-12 || value.is_nan() && expect.is_nan(),
                "{name} {value}, not {expect}"
            );
        }
    }

    #[test]
    fn figures_worked_out_by_hand() {
        check(&[1.0, 2.0, 3.0, 4.0], &[1.0, 2.0, 3.0, 4.0], [0.0, 0.0, 1.0, 1.0]);
        check(&[4.0, 3.0, 2.0, 1.0], &[1.0, 2.0, 3.0, 4.0], [2.0, 5.0f64.sqrt(), -3.0, -1.0]);
        // Errors 1, -1, 0, 2 with squares of 6 against a total of 8. Ranks 1.5 1.5 3 4 against 1 2.5 2.5 4: 3.75 of
        // 4.5.
        check(&[2.0, 2.0, 3.0, 7.0], &[1.0, 3.0, 3.0, 5.0], [1.0, 1.5f64.sqrt(), 0.25, 3.75 / 4.5]);
    }

    #[test]
    fn scores_that_are_all_the_same_explain_nothing() {
        check(&[1.0, 2.0], &[3.0, 3.0], [1.5, 2.5f64.sqrt(), f64::NAN, f64::NAN]);
    }

    #[test]
    fn ties_share_the_mean_of_their_ranks() {
        assert_eq!(ranks(&[3.0, 1.0, 3.0, 3.0, 0.5]), [4.0, 2.0, 4.0, 4.0, 1.0]);
        assert_eq!(ranks(&[-0.0, 0.0]), [1.5, 1.5]);
    }
}
