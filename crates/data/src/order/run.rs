//! The order of a whole run.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{EpochOrder, Layout, SampleId, Shuffle};

/// A place in a run: all that has to be stored, besides seed and shuffle, to go on with exactly the next sample.
///
/// Places are in order of time: a place in a later epoch is greater.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
pub struct Cursor {
    /// The epoch, from 0.
    pub epoch: u64,
    /// The number of samples before this one in the epoch.
    pub position: u64,
}

/// The order of the samples of every epoch of a run.
#[derive(Debug, Clone)]
pub struct Order {
    layout: Arc<Layout>,
    shuffle: Shuffle,
    seed: u64,
}

impl Order {
    /// The order of these shards that belongs to `seed`.
    pub fn new(layout: impl Into<Arc<Layout>>, shuffle: Shuffle, seed: u64) -> Self {
        Self { layout: layout.into(), shuffle, seed }
    }

    /// The shards and their samples.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// How the samples are shuffled.
    pub fn shuffle(&self) -> Shuffle {
        self.shuffle
    }

    /// The same seed and shuffle over other shards.
    pub(crate) fn with_layout(&self, layout: Arc<Layout>) -> Self {
        Self { layout, ..*self }
    }

    /// The order of one epoch. Costs time linear in the number of shards; whoever looks up more than one place keeps
    /// it.
    pub fn epoch(&self, epoch: u64) -> EpochOrder {
        EpochOrder::new(Arc::clone(&self.layout), self.shuffle, self.seed, epoch)
    }

    /// All samples from `cursor` on, epoch after epoch, without end; none where there are no samples.
    ///
    /// A cursor at the end of an epoch means the start of the next.
    pub fn samples_from(&self, cursor: Cursor) -> Samples {
        Samples { order: self.clone(), epoch: self.epoch(cursor.epoch), cursor }
    }
}

/// The samples of a run from some place on, each with its place.
#[derive(Debug, Clone)]
pub struct Samples {
    order: Order,
    epoch: EpochOrder,
    cursor: Cursor,
}

impl Iterator for Samples {
    type Item = (Cursor, SampleId);

    fn next(&mut self) -> Option<Self::Item> {
        if self.epoch.is_empty() {
            return None;
        }
        if self.cursor.position >= self.epoch.len() {
            self.cursor = Cursor { epoch: self.cursor.epoch + 1, position: 0 };
            self.epoch = self.order.epoch(self.cursor.epoch);
        }
        let at = self.cursor;
        self.cursor.position += 1;
        Some((at, self.epoch.sample_at(at.position)))
    }
}
