//! Items that are made up when they are asked for, as shards of a store: a data set without files.

use std::sync::Arc;

use lowtide_core::Bytes;
use lowtide_data::DataError;
use lowtide_data::feed::Store;
use lowtide_data::order::{Layout, SampleId};
use lowtide_data::shard::hash_of_id;
use lowtide_generators::traces::Item;

use super::item::Items;

/// Items of a shard.
const SHARD: u64 = 64;

/// A source of items, cut into shards.
pub(crate) struct ItemShards {
    items: Box<dyn Items>,
    layout: Layout,
    /// What the largest item takes.
    largest: Bytes,
}

impl ItemShards {
    pub(crate) fn new(items: Box<dyn Items>) -> ItemShards {
        let count = items.count();
        let layout = Layout::new((0..count.div_ceil(SHARD)).map(|shard| SHARD.min(count - shard * SHARD)));
        let largest = items.largest();
        ItemShards { items, layout, largest }
    }

    /// The hash of an item's id.
    pub(crate) fn id_hash(&self, sample: SampleId) -> u64 {
        hash_of_id(&self.items.id(self.layout.number_of(sample)))
    }
}

impl Store for ItemShards {
    type Sample = Arc<Item>;

    fn layout(&self) -> &Layout {
        &self.layout
    }

    fn shard_bytes(&self, shard: u32) -> Bytes {
        self.largest.saturating_mul(self.layout.samples_of(shard))
    }

    fn sample_bytes(&self, _sample: SampleId) -> Bytes {
        self.largest
    }

    fn read_shard(&self, shard: u32) -> Result<Vec<Arc<Item>>, DataError> {
        let places: Vec<u64> = (0..self.layout.samples_of(shard)).collect();
        self.read_samples(shard, &places)
    }

    fn read_samples(&self, shard: u32, places: &[u64]) -> Result<Vec<Arc<Item>>, DataError> {
        let number = |index| self.layout.number_of(SampleId { shard, index });
        Ok(places.iter().map(|place| Arc::new(self.items.item(number(*place)))).collect())
    }
}
