//! How many samples of a step each rank computes: as many as all others, or as its memory allows.
//!
//! Samples are divided in the order of ranks, so that which ones a step sees follows from its number alone. Losses are divided by the
//! targets of the whole step, so that a rank with fewer samples counts for less by itself.

use lowtide_core::{Bytes, MicroBatch};
use lowtide_settings::RunSettings;

use super::team::Team;
use crate::error::Result;

/// What ranks do meanwhile.
const DOING: &str = "dividing samples";

/// The samples of a step, divided among ranks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Shares {
    rank: usize,
    /// Samples of each rank.
    parts: Vec<u32>,
    /// Whether they follow the memory of ranks.
    is_uneven: bool,
}

impl Shares {
    /// Those of a run; `room` is what this rank has for samples, where that is known.
    pub(crate) fn of(settings: &RunSettings, team: &Team, room: Option<Bytes>) -> Result<Shares> {
        let batch = settings.train.batch;
        let rooms: Option<Vec<u64>> = if settings.ranks.uneven {
            team.gather(DOING, Some(&room))?.into_iter().map(|room| room.flatten().map(Bytes::get)).collect()
        } else {
            None
        };
        let even = vec![1; team.world() as usize];
        let weights = rooms.filter(|rooms| rooms.iter().any(|room| *room != rooms[0]));
        let is_uneven = weights.is_some();
        let parts = parts(batch, &weights.unwrap_or(even));
        Ok(Shares { rank: team.rank() as usize, parts, is_uneven })
    }

    /// This rank's part of the step that starts at sample `first`: its own first sample, and how many.
    pub(crate) fn part(&self, first: u64) -> (u64, u32) {
        let before: u64 = self.parts[..self.rank].iter().map(|part| u64::from(*part)).sum();
        (first + before, self.parts[self.rank])
    }

    /// The most samples that a rank has.
    pub(crate) fn largest(&self) -> MicroBatch {
        let largest = self.parts.iter().copied().max().and_then(MicroBatch::new);
        largest.expect("a step has a sample for each rank")
    }

    /// What this rank computes at once where the rank with the most samples computes so many: its part takes as many pieces.
    pub(crate) fn micro_batch(&self, of_largest: MicroBatch) -> MicroBatch {
        if !self.is_uneven {
            return of_largest;
        }
        let own = u64::from(of_largest.get()) * u64::from(self.parts[self.rank]) / u64::from(self.largest().get());
        u32::try_from(own).ok().and_then(MicroBatch::new).unwrap_or(MicroBatch::ONE)
    }

    /// What is told of shares that follow memory.
    pub(crate) fn note(&self) -> Option<String> {
        let parts = self.parts.iter().map(u32::to_string).collect::<Vec<_>>().join(", ");
        self.is_uneven.then(|| format!("ranks compute {parts} samples of each step, as their memory allows"))
    }
}

/// So many samples divided by weights: at least one each, what is left over goes to the largest fractions, the first ones among equals.
fn parts(count: u32, weights: &[u64]) -> Vec<u32> {
    let ranks = weights.len();
    let all: u128 = weights.iter().map(|weight| u128::from(*weight)).sum::<u128>().max(1);
    let shared = |weight: &u64| u128::from(count) * u128::from(*weight);
    let mut parts: Vec<u32> = weights.iter().map(|weight| (shared(weight) / all) as u32).collect();
    let mut by_fraction: Vec<usize> = (0..ranks).collect();
    by_fraction.sort_by_key(|rank| std::cmp::Reverse(shared(&weights[*rank]) % all));
    let left = count - parts.iter().sum::<u32>();
    by_fraction.into_iter().cycle().take(left as usize).for_each(|rank| parts[rank] += 1);
    while let Some(none) = parts.iter().position(|part| *part == 0) {
        let largest = (0..ranks).rev().max_by_key(|rank| parts[*rank]).filter(|rank| parts[*rank] > 1);
        let Some(largest) = largest else { break };
        parts[largest] -= 1;
        parts[none] += 1;
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_divided_by_weight_and_each_once() {
        assert_eq!(parts(32, &[1; 4]), [8; 4]);
        assert_eq!(parts(7, &[1; 3]), [3, 2, 2]);
        assert_eq!(parts(8, &[3, 1]), [6, 2]);
        assert_eq!(parts(8, &[24 << 30, 80 << 30]), [2, 6]);
        assert_eq!(parts(4, &[0, 1, 1000]), [1, 1, 2]);
        assert_eq!(parts(3, &[0, 0, 0]), [1, 1, 1]);
        for count in 5..40 {
            for weights in [[1, 2, 3, 4, 5], [9, 0, 0, 0, 1], [7, 7, 7, 7, 6]] {
                let parts = parts(count, &weights);
                assert_eq!(parts.iter().sum::<u32>(), count, "{weights:?}");
                assert!(parts.iter().all(|part| *part > 0), "{count} by {weights:?}: {parts:?}");
            }
        }
    }

    #[test]
    fn parts_lie_one_after_the_other_and_take_as_many_pieces() {
        let shares = |rank| Shares { rank, parts: vec![6, 2, 4], is_uneven: true };
        assert_eq!([0, 1, 2].map(|rank| shares(rank).part(100)), [(100, 6), (106, 2), (108, 4)]);
        let size = |samples| MicroBatch::new(samples).unwrap();
        assert_eq!([0, 1, 2].map(|rank| shares(rank).micro_batch(size(3)).get()), [3, 1, 2]);
        assert_eq!([0, 1, 2].map(|rank| shares(rank).micro_batch(size(1)).get()), [1, 1, 1]);
        assert_eq!(shares(1).largest(), size(6));
        assert_eq!(shares(1).note().unwrap(), "ranks compute 6, 2, 4 samples of each step, as their memory allows");
    }
}
