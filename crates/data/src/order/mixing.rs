//! How well an order shuffles, in figures.

use super::{EpochOrder, SampleId};

/// How far an epoch moves samples, as shares of its length; measured, for any order.
///
/// | order | displacement | separation |
/// | --- | --- | --- |
/// | as the samples lie | 0 | about 0 |
/// | shards shuffled, samples not | 1/3 | about 0 |
/// | windows of a tenth of the shards | 1/3 | 1/30 |
/// | all samples shuffled together | 1/3 | 1/3 |
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Mixing {
    /// The mean distance between where a sample lies in the data set and where it comes in the epoch.
    pub displacement: f64,
    /// The mean distance in the epoch between two samples that lie side by side in a shard: how far samples that were
    /// stored together, and may well be alike, are pulled apart.
    pub separation: f64,
}

impl Mixing {
    /// Measures an epoch at up to `probes` samples, spread evenly over the data set.
    pub fn measure(epoch: &EpochOrder, probes: u64) -> Self {
        let (samples, probes) = (epoch.len(), probes.min(epoch.len()));
        let (mut displacement, mut separation, mut pairs) = (0.0, 0.0, 0_u64);
        for probe in 0..probes {
            let number = (u128::from(probe) * u128::from(samples) / u128::from(probes)) as u64;
            let sample = epoch.layout().sample(number);
            let position = epoch.position_of(sample);
            displacement += position.abs_diff(number) as f64;
            if sample.index + 1 < epoch.layout().samples_of(sample.shard) {
                let neighbour = SampleId { index: sample.index + 1, ..sample };
                separation += epoch.position_of(neighbour).abs_diff(position) as f64;
                pairs += 1;
            }
        }
        let share = |sum: f64, count: u64| if count == 0 { 0.0 } else { sum / count as f64 / samples as f64 };
        Self { displacement: share(displacement, probes), separation: share(separation, pairs) }
    }
}
