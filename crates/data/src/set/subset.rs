//! Some of the samples of a store.

use std::sync::Arc;

use lowtide_core::Bytes;

use crate::DataError;
use crate::feed::Store;
use crate::order::{Layout, SampleId};

/// A view of a store with only some of its samples, such as those to train on.
///
/// Its shards are those of the store, and hold fewer samples; 4 bytes a sample say which.
#[derive(Debug)]
pub struct Subset<S> {
    store: Arc<S>,
    layout: Layout,
    /// The places of the chosen samples in their shards, in the order of the store.
    places: Vec<u32>,
    /// The bytes of each shard's chosen samples.
    shard_bytes: Vec<Bytes>,
}

impl<S: Store> Subset<S> {
    /// The samples for which `keep` says so.
    ///
    /// # Panics
    ///
    /// Where a shard has 2^32 samples and more.
    pub fn new(store: Arc<S>, keep: impl Fn(SampleId) -> bool) -> Self {
        let whole = store.layout();
        let mut places = Vec::new();
        let mut counts = Vec::with_capacity(whole.shards() as usize);
        let mut shard_bytes = Vec::with_capacity(whole.shards() as usize);
        for shard in 0..whole.shards() {
            let before = places.len();
            let samples = (0..whole.samples_of(shard)).map(|index| SampleId { shard, index });
            let mut bytes = Bytes::ZERO;
            for sample in samples.filter(|sample| keep(*sample)) {
                places.push(u32::try_from(sample.index).expect("a shard of fewer than 2^32 samples"));
                bytes = bytes.saturating_add(store.sample_bytes(sample));
            }
            let chosen = (places.len() - before) as u64;
            counts.push(chosen);
            // A whole shard is read as one.
            shard_bytes.push(if chosen == whole.samples_of(shard) { store.shard_bytes(shard) } else { bytes });
        }
        places.shrink_to_fit();
        let layout = Layout::new(counts);
        Self { store, layout, places, shard_bytes }
    }

    /// The store that it is a view of.
    pub fn store(&self) -> &Arc<S> {
        &self.store
    }

    /// Which sample of the store this is.
    ///
    /// # Panics
    ///
    /// Where there is no such sample.
    pub fn sample_of(&self, sample: SampleId) -> SampleId {
        let place = self.places[self.layout.number_of(sample) as usize];
        SampleId { shard: sample.shard, index: u64::from(place) }
    }

    fn places_of(&self, shard: u32) -> &[u32] {
        let start = self.layout.start_of(shard) as usize;
        &self.places[start..start + self.layout.samples_of(shard) as usize]
    }

    /// Places in a shard of ours as those in the shard of the store.
    fn in_store(&self, shard: u32, places: &[u64]) -> Vec<u64> {
        let chosen = self.places_of(shard);
        places.iter().map(|place| u64::from(chosen[*place as usize])).collect()
    }

    fn is_whole(&self, shard: u32) -> bool {
        self.layout.samples_of(shard) == self.store.layout().samples_of(shard)
    }
}

impl<S: Store> Store for Subset<S> {
    type Sample = S::Sample;

    fn layout(&self) -> &Layout {
        &self.layout
    }

    fn shard_bytes(&self, shard: u32) -> Bytes {
        self.shard_bytes[shard as usize]
    }

    fn sample_bytes(&self, sample: SampleId) -> Bytes {
        self.store.sample_bytes(self.sample_of(sample))
    }

    fn shard_cost(&self, shard: u32) -> Bytes {
        if self.is_whole(shard) {
            return self.store.shard_cost(shard);
        }
        self.shard_bytes(shard).saturating_add(self.samples_cost(shard))
    }

    fn samples_cost(&self, shard: u32) -> Bytes {
        self.store.samples_cost(shard)
    }

    fn read_shard(&self, shard: u32) -> Result<Vec<S::Sample>, DataError> {
        if self.is_whole(shard) {
            return self.store.read_shard(shard);
        }
        let places: Vec<u64> = self.places_of(shard).iter().copied().map(u64::from).collect();
        self.store.read_together(shard, &places)
    }

    fn read_together(&self, shard: u32, places: &[u64]) -> Result<Vec<S::Sample>, DataError> {
        self.store.read_together(shard, &self.in_store(shard, places))
    }

    fn read_samples(&self, shard: u32, places: &[u64]) -> Result<Vec<S::Sample>, DataError> {
        self.store.read_samples(shard, &self.in_store(shard, places))
    }
}
