//! What a cache would read, without reading it.

use std::sync::Arc;

use lowtide_core::Bytes;

use crate::order::{Cursor, Layout, Order};
use crate::policy::{Cache, Decision, Policy, Unit, Units};

/// What one epoch reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Reads {
    /// How many units are read.
    pub loads: u64,
    /// Their bytes.
    pub bytes: Bytes,
}

/// What an epoch reads with a cache of some size, once the cache is full.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CurvePoint {
    /// The size of the cache.
    pub capacity: Bytes,
    /// The mean over a few epochs behind the first.
    pub bytes_per_epoch: Bytes,
}

/// What each of the first `epochs` epochs of `order` reads, beginning with an empty cache.
///
/// Walks every sample, at some tens of nanoseconds each, and asks the same [`Cache`] as a real run does.
pub fn simulate(
    order: &Order,
    epochs: u64,
    capacity: Bytes,
    policy: Policy,
    bytes_of: impl Fn(Unit) -> Bytes,
) -> Vec<Reads> {
    let units = Units::of(order.shuffle());
    let mut cache = Cache::new(order, policy, capacity);
    (0..epochs).map(|epoch| simulate_epoch(order, units, epoch, &mut cache, &bytes_of)).collect()
}

fn simulate_epoch(
    order: &Order,
    units: Units,
    epoch: u64,
    cache: &mut Cache,
    bytes_of: &impl Fn(Unit) -> Bytes,
) -> Reads {
    let mut reads = Reads::default();
    for (position, sample) in order.epoch(epoch).samples_from(0).enumerate() {
        let unit = units.unit_of(order.layout(), sample);
        let bytes = bytes_of(unit);
        let at = Cursor { epoch, position: position as u64 };
        let Decision::Load { keep, .. } = cache.need_part(unit, bytes, at) else { continue };
        reads.loads += 1;
        // Of what is not kept, only the sample is read.
        let read = match units {
            Units::Shards if !keep => Bytes(bytes.get() / order.layout().samples_of(sample.shard)),
            _ => bytes,
        };
        reads.bytes = reads.bytes.saturating_add(read);
    }
    reads
}

/// The epochs of which [`curve`] takes the mean; the one before them fills the cache.
const EPOCHS: u64 = 3;
/// Few samples stand for all: what is read depends on the order of shards, and on samples only in that they are well
/// mixed.
const SAMPLES_OF_A_SHARD: u64 = 64;
const SAMPLES_OF_A_FULL_SHUFFLE: u64 = 1 << 16;

/// What an epoch reads with caches of different sizes: would a larger one help, would a smaller one do?
///
/// The samples of a large data set are thinned out, so that the answer takes a tenth of a second for a thousand
/// shards and each size. `shard_bytes` gives the size of every shard; under a full shuffle its samples count as
/// equally large.
///
/// # Panics
///
/// Where `shard_bytes` is not as long as there are shards.
pub fn curve(order: &Order, shard_bytes: &[Bytes], capacities: &[Bytes], policy: Policy) -> Vec<CurvePoint> {
    assert_eq!(shard_bytes.len(), order.layout().shards() as usize, "one size for each shard");
    let units = Units::of(order.shuffle());
    let layout = Arc::new(thinned(order.layout(), units));
    let order = order.with_layout(Arc::clone(&layout));
    let bytes_of = |unit: Unit| match units {
        Units::Shards => shard_bytes[unit.0 as usize],
        Units::Samples => {
            let shard = layout.sample(unit.0).shard;
            Bytes(shard_bytes[shard as usize].get() / layout.samples_of(shard))
        }
    };
    let point = |capacity: &Bytes| {
        let reads = simulate(&order, 1 + EPOCHS, *capacity, policy, bytes_of);
        let sum = reads[1..].iter().fold(Bytes::ZERO, |sum, epoch| sum.saturating_add(epoch.bytes));
        CurvePoint { capacity: *capacity, bytes_per_epoch: Bytes(sum.get() / EPOCHS) }
    };
    capacities.iter().map(point).collect()
}

/// The same shards with fewer samples; a shard that has any keeps at least one.
fn thinned(layout: &Layout, units: Units) -> Layout {
    let all = u128::from(layout.samples().max(1));
    let most = u128::from(layout.samples().min(SAMPLES_OF_A_FULL_SHUFFLE));
    Layout::new((0..layout.shards()).map(|shard| match (layout.samples_of(shard), units) {
        (0, _) => 0,
        (samples, Units::Shards) => samples.min(SAMPLES_OF_A_SHARD),
        (samples, Units::Samples) => ((u128::from(samples) * most / all) as u64).max(1),
    }))
}
