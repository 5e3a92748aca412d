//! The buffers of PyTorch's reductions: a sum over many rows (the gradient of a bias) is shared out among blocks of threads that meet in memory.
//!
//! Their size is no polynomial: there is none below a number of rows, and above one that the number of multiprocessors decides it stays.
//! The rules are those of `setReduceConfig` for a sum over the slow dimension, in 32 bits.

use super::program::Request;

/// Threads that a multiprocessor holds; cards of the desktop hold fewer, and their buffers are smaller.
const THREADS_OF_MULTIPROCESSOR: u64 = 2048;
/// Threads of a block that takes one output each.
const MOST_THREADS: u64 = 512;
const WARP: u64 = 32;
const ACCUMULATOR: u64 = 4;
/// A flag for each block of the grid.
const FLAG: u64 = 4;
/// How many values a thread takes at least, and from when on blocks share a sum.
const LEAST_VALUES: u64 = 16;
const MOST_VALUES: u64 = 256;
/// A sum's matrices are asked for within so many requests of it.
const NEAR: usize = 5;

/// A sum of rows, and how its buffer follows from the size.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Reduction {
    /// The buffer of one block for all outputs.
    unit: u64,
    /// Blocks side by side.
    grid: u64,
    /// Threads of a block, and how many of them take rows of one output.
    threads: u64,
    height: u64,
    /// Values that a thread would take alone, for each unit of size.
    values: f64,
}

/// A buffer that was seen: its shape, and how many blocks shared a sum.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Seen {
    shape: Reduction,
    pub(super) blocks: u64,
}

/// Whether a request is such a buffer: its outputs are asked for right before it, and a flag for each block of the grid right after.
pub(super) fn seen(requests: &[Request], at: usize) -> Option<Seen> {
    let outputs = requests.get(at.checked_sub(1)?)?.bytes;
    let (buffer, flags) = (requests.get(at)?, requests.get(at + 1)?);
    if flags.birth != buffer.birth + 1 || flags.death > buffer.death || buffer.death == u32::MAX {
        return None;
    }
    [2, 4].into_iter().filter(|width| outputs.is_multiple_of(*width)).find_map(|width| {
        let shape = shape(outputs / width)?;
        let is_it =
            shape.grid * FLAG == flags.bytes && buffer.bytes.is_multiple_of(shape.unit) && buffer.bytes > shape.unit;
        is_it.then(|| Seen { shape, blocks: buffer.bytes / shape.unit })
    })
}

/// A sum of rows to so many outputs.
fn shape(outputs: u64) -> Option<Reduction> {
    let vector = [4, 2, 1].into_iter().find(|vector| outputs.is_multiple_of(*vector))?;
    let width = 1 << (outputs / vector).checked_ilog2()?.min(WARP.ilog2());
    let threads = MOST_THREADS / vector;
    let lanes = width * vector;
    Some(Reduction {
        unit: ACCUMULATOR * outputs * lanes,
        grid: outputs.div_ceil(lanes),
        threads,
        height: threads / width,
        values: 0.0,
    })
}

/// The sum whose outputs are asked for here, where it is the gradient of a linear layer's bias: beside it stand the gradients of the weight,
/// which stays, and of the input, which grows, and the gradient that is summed goes away soon.
pub(super) fn bias(
    requests: &[Request],
    at: usize,
    size: u64,
    goes: impl Fn(u64) -> bool,
    grows: impl Fn(usize) -> bool,
) -> Option<Reduction> {
    let outputs = requests[at].bytes;
    let near = at.saturating_sub(NEAR)..(at + NEAR + 1).min(requests.len());
    let is_weight = |weight: u64| weight > outputs && weight.is_multiple_of(outputs);
    let weights = near.clone().filter(|index| is_weight(requests[*index].bytes) && !grows(*index));
    let mut inputs = weights.map(|index| requests[index].bytes / outputs);
    inputs.find_map(|inputs| {
        [2, 4].into_iter().filter(|width| outputs.is_multiple_of(*width)).find_map(|width| {
            let row = inputs * width;
            let is_input = |index: &usize| requests[*index].bytes.is_multiple_of(row) && grows(*index);
            let mut rows = near.clone().filter(is_input).map(|index| requests[index].bytes / row);
            let rows = rows.find(|rows| goes(rows * outputs))?;
            let shape = shape(outputs / width)?;
            let values = rows as f64 / shape.height as f64 / size as f64;
            Some(Reduction { values, ..shape })
        })
    })
}

/// The sum of a gradient to outputs of so many bytes, each of this width.
pub(super) fn of_gradient(gradient: u64, outputs: u64, width: u64, size: u64) -> Option<Reduction> {
    let shape = shape(outputs / width)?;
    Some(Reduction { values: (gradient / outputs) as f64 / shape.height as f64 / size as f64, ..shape })
}

impl Seen {
    /// Its law, by the blocks that it had at a size, where these are not all that the device can use.
    pub(super) fn growing(self, size: u64, blocks: u64) -> Reduction {
        Reduction { values: (blocks * LEAST_VALUES) as f64 / size as f64, ..self.shape }
    }

    /// The blocks that it would have as the buffer of this sum, on a device that never has too few; none where its shape is another.
    pub(super) fn blocks_for(self, sum: &Reduction, size: u64) -> u64 {
        let blocks = (sum.values * size as f64 / LEAST_VALUES as f64).ceil() as u64;
        if self.shape.unit == sum.unit { blocks } else { 0 }
    }

    /// The blocks that a buffer of the same sum has.
    pub(super) const fn blocks_of(self, bytes: u64) -> Option<u64> {
        if bytes.is_multiple_of(self.shape.unit) { Some(bytes / self.shape.unit) } else { None }
    }

    /// The multiprocessors that a device has at least that gives a sum so many blocks.
    pub(super) const fn multiprocessors_at_least(self) -> u64 {
        ((self.blocks - 1) * self.shape.grid * self.shape.threads).div_ceil(THREADS_OF_MULTIPROCESSOR)
    }

    /// The multiprocessors of a device that gives a sum so many blocks at most.
    pub(super) const fn multiprocessors(self) -> u64 {
        self.blocks * self.shape.grid * self.shape.threads / THREADS_OF_MULTIPROCESSOR
    }
}

impl Reduction {
    /// The buffer at a size, on a device of so many multiprocessors; none where blocks do not share.
    pub(super) fn buffer(&self, size: u64, multiprocessors: u64) -> Option<u64> {
        let values = (self.values * size as f64).ceil() as u64;
        let target = multiprocessors * (THREADS_OF_MULTIPROCESSOR / self.threads);
        if values < MOST_VALUES || self.grid > target {
            return None;
        }
        let blocks = values.div_ceil(LEAST_VALUES).min(target.div_ceil(self.grid)).max(values.div_ceil(MOST_VALUES));
        (blocks > 1).then_some(self.unit * blocks)
    }

    /// What the flags of its blocks take.
    pub(super) const fn flags(&self) -> u64 {
        self.grid * FLAG
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The gradient of a bias of 5000 outputs in bfloat16, as an H200 asked for it at four sizes of 200 rows each.
    #[test]
    fn buffers_of_a_sum() {
        let request = |bytes, birth, death| Request { bytes, stream: 0, stack: None, birth, death };
        let requests = [request(10_000, 0, 9), request(64_000_000, 1, 5), request(160, 2, 3)];
        let seen = seen(&requests, 1).unwrap();
        assert_eq!(seen.blocks, 25);
        let law = seen.growing(8, 25);
        let buffers = [4, 8, 16, 32, 64].map(|size| law.buffer(size, 132));
        assert_eq!(buffers, [None, Some(64_000_000), Some(128_000_000), Some(135_680_000), Some(135_680_000)]);
        assert_eq!(law.flags(), 160);
        let full = Seen { blocks: 53, ..seen };
        assert_eq!(full.multiprocessors(), 132);
    }
}
