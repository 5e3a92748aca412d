//! How much memory of the host the data may take.
//!
//! The host line is shared out once: what the process takes without tensors is measured after one batch of the largest
//! sample went through the model, so that libraries and their scratch are there; then what tensors took in it, with
//! room to spare, since a batch that has to be cut gives other bits; the rest is the data's, for training and
//! evaluation, reserved before it is read. Tensors are held to theirs by the CPU allocator. Under a host line the C
//! library is told to give large blocks back at once (`host::keep_little`).

use lowtide_core::{Bytes, Line};
use lowtide_data::feed::{Store, transient_bytes};

/// Memory for what no budget counts: the plan of reads, stacks of threads, scratch of the engine's kernels, and what the
/// C library holds of small blocks.
const SLACK: Bytes = Bytes::from_mib(12);
/// The same as a part of the line.
const SLACK_SHARE: u64 = 50;
/// Batches of items that are there beside the cache: what training and evaluation were given last, and the one that
/// becomes a tensor.
const BATCHES_OUT: u64 = 3;
/// The same for the batch that is made ahead, where one is.
const BATCHES_AHEAD: u64 = 2;
/// How much the base differs from one start of the program to the next.
const UNSURE: Bytes = Bytes::from_mib(2);
/// Into so many pieces a batch may have to be cut for the least line that works.
const MOST_PIECES: u64 = 4;
/// The part of the data's memory that evaluation gets, unless it needs less.
const EVAL_PART: u64 = 4;
/// The part of the machine that data gets where nothing is said.
const MACHINE_PART: u64 = 4;

/// What the feed of a store can make use of.
#[derive(Clone, Debug)]
pub(crate) struct Needs {
    /// To work at all: one sample after the other.
    least: Bytes,
    /// To read everything once and never again.
    most: Bytes,
    /// What passes through beside what is kept.
    passing: Bytes,
    /// All shards, the largest first.
    shards: Vec<Bytes>,
    /// The largest sample.
    sample: Bytes,
}

impl Needs {
    pub(crate) fn of<S: Store>(store: &S) -> Needs {
        let layout = store.layout();
        let mut shards: Vec<Bytes> = (0..layout.shards()).map(|shard| store.shard_bytes(shard)).collect();
        shards.sort_unstable_by(|one, other| other.cmp(one));
        let all = shards.iter().copied().fold(Bytes::ZERO, Bytes::saturating_add);
        let samples = (0..layout.samples()).map(|number| store.sample_bytes(layout.sample(number)));
        let (passing, sample) = (transient_bytes(store), samples.max().unwrap_or_default());
        Needs { least: passing.saturating_add(sample), most: all.saturating_add(passing), passing, shards, sample }
    }

    /// To read everything once and never again.
    pub(crate) fn most(&self) -> Bytes {
        self.most
    }

    /// To keep so many shards, whichever they are.
    fn keeping(&self, shards: u32) -> Bytes {
        self.shards.iter().take(shards as usize).copied().fold(self.passing, Bytes::saturating_add)
    }
}

/// The memory of the data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Room {
    /// For the feed of training.
    pub(crate) train: Bytes,
    /// For the feed of evaluation.
    pub(crate) eval: Bytes,
    /// Beside both.
    pub(crate) beside: Bytes,
}

/// What is known of the process when room for data is sought.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Process {
    pub(crate) host_line: Line,
    /// All memory of the machine.
    pub(crate) machine: Bytes,
    /// What the process takes without tensors and data.
    pub(crate) base: Bytes,
    /// What tensors took in a step of the largest samples, moments included.
    pub(crate) tensors: Bytes,
    /// What the store takes by itself.
    pub(crate) store: Bytes,
    /// Samples of a step.
    pub(crate) batch: u32,
    /// Whether the next batch is made while one is computed.
    pub(crate) is_ahead: bool,
}

/// A host line that leaves too little.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RoomShortage {
    /// The least line that works.
    pub(crate) needed: Bytes,
    /// The line.
    pub(crate) line: Bytes,
}

impl Room {
    /// Shares out what is there, or what `cache_batches` asks for.
    pub(crate) fn find(
        train: &Needs,
        eval: &Needs,
        cache_batches: Option<u32>,
        process: &Process,
    ) -> Result<Room, RoomShortage> {
        let batches = if process.is_ahead { BATCHES_OUT + BATCHES_AHEAD } else { BATCHES_OUT };
        let items = train.sample.max(eval.sample).saturating_mul(process.batch.into()).saturating_mul(batches);
        let items = items.saturating_add(process.store);
        let Some(line) = process.host_line.limit() else {
            return Ok(match cache_batches {
                Some(shards) => Room { train: train.keeping(shards), eval: eval.keeping(1), beside: items },
                None => shared(Bytes(process.machine.get() / MACHINE_PART), train, eval, items),
            });
        };
        let beside = items.saturating_add(SLACK.max(Bytes(line.get() / SLACK_SHARE)));
        let left = line.saturating_sub(process.base).saturating_sub(beside);
        let asked = cache_batches.map(|shards| Room { train: train.keeping(shards), eval: eval.keeping(1), beside });
        let least = match asked {
            Some(room) => room.train.saturating_add(room.eval),
            None => train.least.saturating_add(eval.least),
        };
        // Tensors come before more data: a batch that has to be cut gives other bits. Where there is little, they can be
        // had in pieces.
        let pieces = u64::from(process.batch).clamp(1, MOST_PIECES);
        let tensors = process.tensors.min(left.saturating_sub(least));
        if left < least || tensors < Bytes(process.tensors.get() / pieces) {
            let tensors = Bytes(process.tensors.get().div_ceil(pieces));
            let needed = [beside, tensors, least, UNSURE].into_iter().fold(process.base, Bytes::saturating_add);
            return Err(RoomShortage { needed, line });
        }
        Ok(asked.unwrap_or_else(|| shared(left.saturating_sub(tensors), train, eval, beside)))
    }

    /// Room for everything at once, which is in memory already and counted there.
    pub(crate) fn for_all(train: &Needs, eval: &Needs) -> Room {
        Room { train: train.most, eval: eval.most, beside: Bytes::ZERO }
    }

    /// All of it.
    pub(crate) fn bytes(&self) -> Bytes {
        self.train.saturating_add(self.eval).saturating_add(self.beside)
    }

    /// What a feed may keep of its room.
    pub(crate) fn kept(room: Bytes, needs: &Needs) -> Bytes {
        room.saturating_sub(needs.passing)
    }
}

fn shared(data: Bytes, train: &Needs, eval: &Needs, beside: Bytes) -> Room {
    let a_part = Bytes(data.get() / EVAL_PART).min(data.saturating_sub(train.least));
    let for_eval = eval.most.min(eval.least.max(a_part));
    let for_train = train.most.min(data.saturating_sub(for_eval)).max(train.least);
    Room { train: for_train, eval: for_eval, beside }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn needs(shards: u64) -> Needs {
        Needs {
            least: Bytes(4 * MIB),
            most: Bytes((10 * shards + 3) * MIB),
            passing: Bytes(3 * MIB),
            shards: vec![Bytes(10 * MIB); shards as usize],
            sample: Bytes(MIB),
        }
    }

    fn process(line: Option<u64>) -> Process {
        Process {
            host_line: line.map_or(Line::NONE, |line| Line::at(Bytes(line * MIB)).unwrap()),
            machine: Bytes(4000 * MIB),
            base: Bytes(300 * MIB),
            tensors: Bytes(20 * MIB),
            store: Bytes::ZERO,
            batch: 4,
            is_ahead: false,
        }
    }

    /// Room in MiB for training, evaluation and beside, or the least line.
    fn find(line: Option<u64>, cache_batches: Option<u32>) -> Result<[u64; 3], u64> {
        let room = Room::find(&needs(80), &needs(20), cache_batches, &process(line));
        let mib = |bytes: Bytes| bytes.get() / MIB;
        room.map(|room| [mib(room.train), mib(room.eval), mib(room.beside)]).map_err(|error| mib(error.needed))
    }

    #[test]
    fn a_line_is_shared_among_all_that_take_memory() {
        // 400 less 300, 12 of items, 12 of slack and 20 of tensors are 56.
        assert_eq!(find(Some(400), None), Ok([42, 14, 24]));
        // Nobody gets more than it can use.
        assert_eq!(find(Some(4000), None), Ok([803, 203, 92]));
        assert_eq!(find(None, None), Ok([797, 203, 12]));
    }

    #[test]
    fn batches_are_taken_at_their_word() {
        assert_eq!(find(None, Some(2)), Ok([23, 13, 12]));
        assert_eq!(find(Some(400), Some(2)), Ok([23, 13, 24]));
        assert_eq!(find(Some(350), Some(2)), Err(367));
        assert_eq!(find(Some(367), Some(2)), Ok([23, 13, 24]));
    }

    #[test]
    fn the_least_line_is_named_and_works() {
        assert_eq!(find(Some(330), None), Err(339));
        assert_eq!(find(Some(339), None).map(|_| ()), Ok(()));
    }
}
