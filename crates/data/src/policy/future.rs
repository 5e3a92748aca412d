//! When each unit is needed next.

use std::sync::Arc;

use super::{Parts, Unit, Units};
use crate::order::{Cursor, EpochOrder, Order};

/// The known future of a run: this epoch and the next. Every unit is needed once in each, so that is far enough.
#[derive(Debug, Clone)]
pub(super) struct Future {
    order: Order,
    units: Units,
    /// `None` where shards are not cut.
    pub(super) parts: Option<Arc<Parts>>,
    epoch: u64,
    this: EpochOrder,
    next: EpochOrder,
}

impl Future {
    pub(super) fn new(order: &Order) -> Self {
        let units = Units::of(order.shuffle());
        Self { order: order.clone(), units, parts: None, epoch: 0, this: order.epoch(0), next: order.epoch(1) }
    }

    /// The first place behind `now` at which `unit` is needed.
    ///
    /// Computed, not looked up: constant for samples, about the width of the window for shards.
    pub(super) fn next_use(&mut self, unit: Unit, now: Cursor) -> Cursor {
        self.move_to(now.epoch);
        if let Some(position) = self.first_use(&self.this, unit, now.position + 1) {
            return Cursor { epoch: now.epoch, position };
        }
        let position = self.first_use(&self.next, unit, 0).unwrap_or(u64::MAX);
        Cursor { epoch: now.epoch + 1, position }
    }

    /// The first place behind the window at `now`.
    pub(super) fn end_of_window(&mut self, now: Cursor) -> Cursor {
        self.move_to(now.epoch);
        Cursor { position: self.this.end_of_window(now.position), ..now }
    }

    fn first_use(&self, epoch: &EpochOrder, unit: Unit, from: u64) -> Option<u64> {
        match self.units {
            Units::Shards if let Some(parts) = &self.parts => {
                let (shard, samples) = parts.samples_of(epoch.layout(), unit);
                epoch.next_use_of(shard, samples, from)
            }
            Units::Shards => epoch.next_use_of_shard(unit.0 as u32, from),
            Units::Samples => {
                Some(epoch.position_of(epoch.layout().sample(unit.0))).filter(|position| *position >= from)
            }
        }
    }

    fn move_to(&mut self, epoch: u64) {
        if epoch == self.epoch {
            return;
        }
        let next = self.order.epoch(epoch + 1);
        let before = std::mem::replace(&mut self.next, next);
        self.this = if epoch == self.epoch + 1 { before } else { self.order.epoch(epoch) };
        self.epoch = epoch;
    }
}
