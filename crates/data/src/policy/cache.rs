//! The cache as a state machine.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use lowtide_core::Bytes;
use serde::{Deserialize, Serialize};

use super::future::Future;
use super::{Parts, Unit};
use crate::order::{Cursor, Order};

/// Which unit leaves when room is needed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Policy {
    /// The one that is needed latest. What is needed later than all that is cached is not kept at all.
    #[default]
    Belady,
    /// The one that was used longest ago.
    Lru,
}

/// What to do about a unit that is needed now.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use = "the cache counts on its decisions being carried out"]
pub enum Decision {
    /// It is there.
    Hit,
    /// It has to be read.
    Load {
        /// What to let go of first.
        evict: Vec<Unit>,
        /// Whether to keep it. Where not, it is read for this one use.
        keep: bool,
    },
}

/// Decides what is kept under a limit in bytes.
///
/// Takes about 110 bytes for each unit it keeps, and time logarithmic in their number for each decision. The same
/// calls get the same answers on every platform.
#[derive(Debug, Clone)]
pub struct Cache {
    policy: Policy,
    capacity: Bytes,
    used: Bytes,
    future: Future,
    calls: u64,
    kept: HashMap<Unit, CacheEntry>,
    /// What may leave, the next to leave last.
    ///
    /// For Belady a rank is the next use as it was foreseen. A use that has come leaves its rank in the past, where
    /// it is found and foreseen anew when room is needed: a hit costs nothing.
    ranked: BTreeSet<(Rank, Unit)>,
}

/// The unit with the greatest rank leaves first.
type Rank = Cursor;

#[derive(Debug, Clone, Copy)]
struct CacheEntry {
    bytes: Bytes,
    rank: Rank,
}

impl Cache {
    /// An empty cache of `capacity` bytes for the units of `order`.
    pub fn new(order: &Order, policy: Policy, capacity: Bytes) -> Self {
        let future = Future::new(order);
        Self { policy, capacity, used: Bytes::ZERO, future, calls: 0, kept: HashMap::new(), ranked: BTreeSet::new() }
    }

    /// The same for parts of shards, where shards would be the units.
    pub(crate) fn with_parts(mut self, parts: Arc<Parts>) -> Self {
        self.future.parts = Some(parts);
        self
    }

    /// What to do about `unit`, of `bytes` bytes, which is needed at `at`.
    ///
    /// To be called in the order of the run; places may be left out. Once it has answered, the cache counts what it
    /// said to evict as gone and what it said to keep as there.
    pub fn need(&mut self, unit: Unit, bytes: Bytes, at: Cursor) -> Decision {
        self.need_unless_active(unit, bytes, at, at)
    }

    /// As [`Cache::need`], for units of which a part can be read.
    ///
    /// Under [`Policy::Belady`] nothing leaves that is needed again in the window at `at`: where all that is kept is, the
    /// unit is read for this one use. A window that does not fit would else throw out, sample by sample, what it needs a
    /// moment later.
    pub fn need_part(&mut self, unit: Unit, bytes: Bytes, at: Cursor) -> Decision {
        if self.kept.contains_key(&unit) {
            return self.need(unit, bytes, at);
        }
        let active = self.future.end_of_window(at);
        self.need_unless_active(unit, bytes, at, active)
    }

    fn need_unless_active(&mut self, unit: Unit, bytes: Bytes, at: Cursor, active: Cursor) -> Decision {
        self.calls += 1;
        if self.kept.contains_key(&unit) {
            self.touch(unit);
            return Decision::Hit;
        }
        let Some(evict) = self.room_for(unit, bytes, at, active) else {
            return Decision::Load { evict: Vec::new(), keep: false };
        };
        for unit in &evict {
            self.forget(*unit);
        }
        let rank = self.rank_of_use(at);
        self.used = self.used.saturating_add(bytes);
        self.kept.insert(unit, CacheEntry { bytes, rank });
        self.ranked.insert((rank, unit));
        Decision::Load { evict, keep: true }
    }

    /// Counts a kept unit as gone.
    fn forget(&mut self, unit: Unit) {
        if let Some(kept) = self.kept.remove(&unit) {
            self.ranked.remove(&(kept.rank, unit));
            self.used = self.used.saturating_sub(kept.bytes);
        }
    }

    /// The bytes of all kept units; never more than the capacity.
    pub fn used(&self) -> Bytes {
        self.used
    }

    /// What has to leave so that `unit` can be kept, or `None` where it is not to be kept. What is needed before `active`
    /// does not leave.
    fn room_for(&mut self, unit: Unit, bytes: Bytes, at: Cursor, active: Cursor) -> Option<Vec<Unit>> {
        let fits = |used: Bytes| used.checked_add(bytes).is_some_and(|sum| sum <= self.capacity);
        if fits(self.used) {
            return Some(Vec::new());
        }
        if !fits(Bytes::ZERO) {
            return None;
        }
        let latest_to_keep = match self.policy {
            Policy::Lru => Rank::default(),
            Policy::Belady => {
                self.foresee_anew(at);
                self.future.next_use(unit, at).max(active)
            }
        };
        let mut evict = Vec::new();
        let mut used = self.used;
        for (rank, candidate) in self.ranked.iter().rev() {
            if *rank < latest_to_keep {
                return None;
            }
            used = used.saturating_sub(self.kept[candidate].bytes);
            evict.push(*candidate);
            if used.checked_add(bytes).is_some_and(|sum| sum <= self.capacity) {
                return Some(evict);
            }
        }
        None
    }

    /// Moves every unit whose foreseen use has come to its next use.
    fn foresee_anew(&mut self, now: Cursor) {
        while let Some((rank, unit)) = self.ranked.first().copied().filter(|(rank, _)| *rank <= now) {
            self.ranked.remove(&(rank, unit));
            let rank = self.future.next_use(unit, now);
            self.ranked.insert((rank, unit));
            self.kept.get_mut(&unit).expect("what is ranked is kept").rank = rank;
        }
    }

    fn touch(&mut self, unit: Unit) {
        if self.policy == Policy::Belady {
            return;
        }
        let rank = self.rank_of_use(Cursor::default());
        let kept = self.kept.get_mut(&unit).expect("only a kept unit is touched");
        self.ranked.remove(&(kept.rank, unit));
        self.ranked.insert((rank, unit));
        kept.rank = rank;
    }

    /// The rank of a unit that is used now, at `at`.
    fn rank_of_use(&self, at: Cursor) -> Rank {
        match self.policy {
            Policy::Belady => at,
            Policy::Lru => Rank { epoch: u64::MAX - self.calls, position: 0 },
        }
    }
}
