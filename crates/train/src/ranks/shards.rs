//! The optimizer's state divided among ranks: each holds the moments of some elements, and updates these for all.
//!
//! Parameters stay whole, as in PyTorch's ZeroRedundancyOptimizer, and are exchanged after each update. Ranks have one part after the
//! other of all elements in a row, so that one large parameter is divided too. Parts begin at multiples of [`ALIGNMENT`] within a
//! parameter: the kernel computes the last few elements of a tensor by other instructions, and so they stay the same ones.
//!
//! A checkpoint has the moments of all. The first rank, which has the folder, asks for each one in its turn, so that it holds no more
//! than one of them, and lets the others go when it is done or has failed: nobody waits for a rank whose memory ran out.

use std::ops::Range;

use lowtide_torch::tch::{Device, Tensor};
use lowtide_torch::{AdamW, GradientBuckets, Ranks, RanksError, TorchError, attempt, gradients};

use crate::error::Result;

/// What ranks do meanwhile.
const DOING: &str = "passing on optimizer state";

/// More elements than any kernel computes at once.
const ALIGNMENT: u64 = 64;

/// What the first rank asks for when it needs nothing more.
const NOTHING: i64 = -1;

/// Who holds which moments.
pub(crate) struct Shards {
    /// In the order of the optimizer.
    parameters: Vec<Tensor>,
    /// Where each of them begins in the row of all elements.
    starts: Vec<u64>,
    /// Where the part of each rank begins, and at last where the row ends.
    bounds: Vec<u64>,
}

/// One of the two moments of a parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MomentId {
    /// The parameter's number in the order of the optimizer.
    pub(crate) parameter: usize,
    pub(crate) order: MomentOrder,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MomentOrder {
    /// The mean of gradients.
    First,
    /// The mean of their squares.
    Second,
}

/// Which way moments go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// From those who hold them to the first rank.
    ToFirst,
    /// From the first rank to those who hold them.
    FromFirst,
}

impl Shards {
    pub(crate) fn new(parameters: &[Tensor], world: u32) -> Shards {
        let sizes: Vec<u64> = parameters.iter().map(|parameter| parameter.numel() as u64).collect();
        let starts = starts(&sizes);
        let bounds = bounds(&sizes, &starts, world);
        Shards { parameters: parameters.iter().map(Tensor::detach).collect(), starts, bounds }
    }

    /// The elements of a parameter whose moments a rank holds.
    pub(crate) fn elements(&self, rank: u32, parameter: usize) -> Range<i64> {
        let (start, length) = (self.starts[parameter], self.parameters[parameter].numel() as u64);
        let within = |bound: u64| bound.clamp(start, start + length) - start;
        let [begin, end] = [0, 1].map(|next| within(self.bounds[rank as usize + next]) as i64);
        begin..end
    }

    /// Sends what each rank has updated to all others.
    pub(crate) fn exchange(&self, buckets: &GradientBuckets, ranks: &Ranks) -> Result<(), RanksError> {
        for rank in 0..ranks.world() {
            buckets.spread_from(rank, ranks, &attempt(|| self.updated_by(rank))?)?;
        }
        Ok(())
    }

    fn updated_by(&self, rank: u32) -> Vec<Tensor> {
        let parts = self.parameters.iter().enumerate().map(|(index, all)| (all, self.elements(rank, index)));
        parts.filter(|(_, elements)| !elements.is_empty()).map(|(all, elements)| slice(all, &elements)).collect()
    }

    /// A moment as a whole, on the host: what the first rank has of it, and what it asks others for.
    pub(crate) fn collect(&self, id: MomentId, optimizer: &AdamW, ranks: &Ranks) -> Result<Tensor> {
        let like = &self.parameters[id.parameter];
        let whole = attempt(|| Tensor::empty(like.size(), (like.kind(), Device::Cpu)))?;
        for (rank, elements) in self.owners(id, ranks) {
            let part = attempt(|| slice(&whole, &elements))?;
            if rank == ranks.rank() {
                gradients::copy_quietly(&part, &held(id, optimizer)?)?;
            } else {
                ranks.send_number(rank, DOING, id.number())?;
                ranks.receive(rank, DOING, &part)?;
            }
        }
        Ok(whole)
    }

    /// Gives those who hold a moment their parts of it.
    pub(crate) fn distribute(&self, id: MomentId, whole: &Tensor, optimizer: &AdamW, ranks: &Ranks) -> Result<()> {
        for (rank, elements) in self.owners(id, ranks) {
            let part = attempt(|| slice(whole, &elements))?;
            if rank == ranks.rank() {
                gradients::copy_quietly(&held(id, optimizer)?, &part)?;
            } else {
                ranks.send_number(rank, DOING, id.number())?;
                ranks.send(rank, DOING, &part)?;
            }
        }
        Ok(())
    }

    fn owners(&self, id: MomentId, ranks: &Ranks) -> impl Iterator<Item = (u32, Range<i64>)> {
        let all = (0..ranks.world()).map(move |rank| (rank, self.elements(rank, id.parameter)));
        all.filter(|(_, elements)| !elements.is_empty())
    }

    /// On the first rank: lets the others go. On the others: gives or takes what the first asks for until then. Allocates no tensor
    /// memory.
    pub(crate) fn attend(&self, way: Way, optimizer: &AdamW, ranks: &Ranks) -> Result<()> {
        if ranks.rank() == 0 {
            return Ok((1..ranks.world()).try_for_each(|rank| ranks.send_number(rank, DOING, NOTHING))?);
        }
        while let Some(id) = MomentId::of_number(ranks.receive_number(0, DOING)?) {
            let moment = held(id, optimizer)?;
            match way {
                Way::ToFirst => ranks.send(0, DOING, &moment)?,
                Way::FromFirst => ranks.receive(0, DOING, &moment)?,
            }
        }
        Ok(())
    }
}

impl MomentId {
    fn number(self) -> i64 {
        2 * self.parameter as i64 + i64::from(self.order == MomentOrder::Second)
    }

    fn of_number(number: i64) -> Option<MomentId> {
        let number = usize::try_from(number).ok()?;
        let order = if number.is_multiple_of(2) { MomentOrder::First } else { MomentOrder::Second };
        Some(MomentId { parameter: number / 2, order })
    }
}

/// What this rank holds of a moment, in a row.
fn held(id: MomentId, optimizer: &AdamW) -> Result<Tensor> {
    let mut all = optimizer.held().zip(optimizer.moments());
    let found = all.find(|((parameter, _), _)| *parameter == id.parameter);
    let (_, (first, second)) =
        found.ok_or_else(|| TorchError::Engine("a moment was asked for that is not here".to_owned()))?;
    let moment = if id.order == MomentOrder::First { first } else { second };
    Ok(attempt(|| moment.view_([-1_i64]))?)
}

fn slice(whole: &Tensor, elements: &Range<i64>) -> Tensor {
    whole.view_([-1_i64]).narrow(0, elements.start, elements.end - elements.start)
}

fn starts(sizes: &[u64]) -> Vec<u64> {
    let next = |sum: &mut u64, size: &u64| {
        let start = *sum;
        *sum += size;
        Some(start)
    };
    sizes.iter().scan(0, next).collect()
}

/// Where the part of each rank begins in the row of all elements, and at last its end: about as many each.
fn bounds(sizes: &[u64], starts: &[u64], world: u32) -> Vec<u64> {
    let all: u64 = sizes.iter().sum();
    let even = |rank: u32| (u128::from(all) * u128::from(rank) / u128::from(world)) as u64;
    let aligned = |place: u64| {
        let parameter = starts.partition_point(|start| *start <= place).checked_sub(1);
        parameter.map_or(0, |parameter| starts[parameter] + (place - starts[parameter]) / ALIGNMENT * ALIGNMENT)
    };
    (0..world).map(|rank| aligned(even(rank))).chain([all]).collect()
}

#[cfg(test)]
mod tests {
    use lowtide_torch::tch::Kind;

    use super::*;

    fn shards(sizes: &[i64], world: u32) -> Shards {
        let parameters: Vec<Tensor> =
            sizes.iter().map(|size| Tensor::zeros([*size], (Kind::Float, Device::Cpu))).collect();
        Shards::new(&parameters, world)
    }

    #[test]
    fn every_element_has_one_owner_and_parts_begin_at_multiples() {
        for sizes in [&[1000, 10, 3, 129][..], &[1], &[], &[64, 64, 64], &[100_000], &[63; 40]] {
            for world in [1, 2, 3, 4, 7] {
                let shards = shards(sizes, world);
                for (parameter, size) in sizes.iter().enumerate() {
                    let mut next = 0;
                    for rank in 0..world {
                        let elements = shards.elements(rank, parameter);
                        assert_eq!(elements.start, next, "{sizes:?} on {world}");
                        assert!(elements.is_empty() || elements.start % ALIGNMENT as i64 == 0);
                        next = elements.end;
                    }
                    assert_eq!(next, *size, "{sizes:?} on {world}");
                }
            }
        }
    }

    #[test]
    fn one_large_parameter_is_divided_evenly() {
        let shards = shards(&[64_000, 10], 4);
        let parts: Vec<i64> =
            (0..4).map(|rank| shards.elements(rank, 0).end - shards.elements(rank, 0).start).collect();
        assert!(parts.iter().all(|part| (16_000_i64 - part).abs() <= 64), "{parts:?}");
    }

    #[test]
    fn a_moment_is_known_by_its_number() {
        for parameter in [0, 1, 7] {
            for order in [MomentOrder::First, MomentOrder::Second] {
                let id = MomentId { parameter, order };
                assert_eq!(MomentId::of_number(id.number()), Some(id));
            }
        }
        assert_eq!(MomentId::of_number(NOTHING), None);
    }
}
