//! What will be read, kept and let go of, decided ahead of the consumer.

use std::collections::{HashMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;

use lowtide_core::Bytes;

use super::options::FeedOptions;
use super::slot::{Promise, Slot};
use super::store::Store;
use crate::order::{Cursor, Order, SampleId, Samples, Share, StepRange, Stride};
use crate::policy::{Cache, Decision, Parts, Unit, Units};

/// Samples that it is ahead at the most: a few megabytes. A window of shards has to fit, or nothing is read ahead
/// of it.
const AHEAD: usize = 1 << 16;

/// Walks the order ahead of the consumer.
pub(super) struct Lookahead<S: Store> {
    order: Order,
    samples: Samples,
    end: Option<Cursor>,
    share: Option<Share>,
    /// The places that are wanted, and the one from which they are counted.
    stride: Option<(Stride, u64)>,
    /// Samples of the share that it is ahead at the most.
    ahead: usize,
    /// The step that the last sample belongs to, where there is a share, and its epoch.
    step: (u64, StepRange),
    units: Units,
    /// Shards as they are read and kept, where they are the units.
    parts: Arc<Parts>,
    /// The bytes of each part.
    part_bytes: Vec<Bytes>,
    cache: Cache,
    /// Bytes that the cache may keep.
    pub(super) capacity: Bytes,
    /// Units that the cache keeps, as of the last sample looked at.
    kept: HashMap<Unit, Arc<Slot<S::Sample>>>,
    /// Samples that are decided about and not consumed, in order.
    pub(super) upcoming: VecDeque<UpcomingSample<S::Sample>>,
    /// Reads that no thread has taken yet, in order.
    pub(super) tasks: VecDeque<Task<S::Sample>>,
    is_done: bool,
}

/// A sample, and where it will be found.
pub(super) struct UpcomingSample<T> {
    pub(super) at: Cursor,
    pub(super) sample: SampleId,
    pub(super) slot: Arc<Slot<T>>,
    /// Whether it was there already.
    pub(super) is_hit: bool,
}

/// Something to read.
pub(super) struct Task<T> {
    pub(super) extent: Extent,
    pub(super) promise: Promise<T>,
}

/// What one read takes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Extent {
    /// Neighbouring samples of a shard.
    Part { shard: u32, samples: Range<u64> },
    /// One sample.
    Sample(SampleId),
}

/// Places of the order for one that is wanted.
fn sparsity(options: &FeedOptions) -> usize {
    let of_share = options.share.map_or(1, |share| share.ranks());
    usize::try_from(of_share.max(options.stride.map_or(1, |stride| stride.sparsity()))).unwrap_or(usize::MAX)
}

impl<S: Store> Lookahead<S> {
    pub(super) fn new(store: &S, order: &Order, from: Cursor, options: &FeedOptions, capacity: Bytes) -> Lookahead<S> {
        let parts = Arc::new(Parts::new(order.layout(), |shard| store.parts(shard)));
        let part_bytes = |unit| {
            let (shard, samples) = parts.samples_of(order.layout(), Unit(unit));
            part_bytes(store, shard, samples)
        };
        let part_bytes = (0..parts.len()).map(part_bytes).collect();
        Lookahead {
            order: order.clone(),
            samples: order.samples_from(from),
            end: options.end,
            share: options.share,
            stride: options.stride.map(|stride| (stride, from.epoch * order.layout().samples() + from.position)),
            ahead: (AHEAD / sparsity(options)).max(1),
            step: (from.epoch, StepRange { all: 0..0, own: 0..0 }),
            units: Units::of(order.shuffle()),
            cache: Cache::new(order, options.policy, capacity).with_parts(Arc::clone(&parts)),
            parts,
            part_bytes,
            capacity,
            kept: HashMap::new(),
            upcoming: VecDeque::new(),
            tasks: VecDeque::new(),
            // Whoever looked for the next sample of an empty share would look for ever.
            is_done: options.share.is_some_and(|share| share.steps_from(order.layout().samples(), 0) == 0),
        }
    }

    /// Goes on until `tasks` reads wait for a thread, or far enough ahead; whether anything was added to read.
    pub(super) fn go_on(&mut self, store: &S, tasks: usize) -> bool {
        let before = self.tasks.len();
        while !self.is_done && self.tasks.len() < tasks && self.upcoming.len() < self.ahead {
            let next = self.samples.next().filter(|(at, _)| self.end.is_none_or(|end| *at < end));
            match next {
                Some((at, _)) if !self.is_wanted(at) => {}
                Some((at, sample)) => self.decide(store, at, sample),
                None => self.is_done = true,
            }
        }
        self.tasks.len() > before
    }

    /// Whether a place, all before which were asked for, is in the share.
    fn is_wanted(&mut self, at: Cursor) -> bool {
        if let Some((stride, from)) = self.stride {
            return stride.takes(at.epoch * self.order.layout().samples() + at.position - from);
        }
        let Some(share) = self.share else { return true };
        let (epoch, step) = &self.step;
        if *epoch != at.epoch || !step.all.contains(&at.position) {
            let samples = self.order.layout().samples();
            let rest = StepRange { all: at.position..samples, own: samples..samples };
            self.step = (at.epoch, share.step_at(samples, at.position).unwrap_or(rest));
        }
        self.step.1.own.contains(&at.position)
    }

    fn decide(&mut self, store: &S, at: Cursor, sample: SampleId) {
        let layout = self.order.layout();
        let (unit, bytes) = match self.units {
            Units::Shards => {
                let unit = self.parts.unit_of(layout, sample);
                (unit, self.part_bytes[unit.0 as usize])
            }
            Units::Samples => (self.units.unit_of(layout, sample), store.sample_bytes(sample)),
        };
        let decision = self.cache.need_part(unit, bytes, at);
        let is_hit = decision == Decision::Hit;
        let slot = match decision {
            Decision::Hit => Arc::clone(&self.kept[&unit]),
            Decision::Load { evict, keep } => {
                for unit in evict {
                    self.kept.remove(&unit);
                }
                // What is not kept is read for this one use, so the sample is enough.
                let extent = match self.units {
                    Units::Shards if keep => {
                        let (shard, samples) = self.parts.samples_of(self.order.layout(), unit);
                        Extent::Part { shard, samples }
                    }
                    _ => Extent::Sample(sample),
                };
                let (slot, promise) = Slot::promised();
                if keep {
                    self.kept.insert(unit, Arc::clone(&slot));
                }
                self.tasks.push_back(Task { extent, promise });
                slot
            }
        };
        self.upcoming.push_back(UpcomingSample { at, sample, slot, is_hit });
    }
}

/// What a part of a shard takes once it is read.
pub(super) fn part_bytes<S: Store>(store: &S, shard: u32, samples: Range<u64>) -> Bytes {
    if samples == (0..store.layout().samples_of(shard)) {
        return store.shard_bytes(shard);
    }
    samples.fold(Bytes::ZERO, |sum, index| sum.saturating_add(store.sample_bytes(SampleId { shard, index })))
}
