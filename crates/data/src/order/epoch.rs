//! The order of one epoch.

use std::ops::Range;
use std::sync::Arc;

use super::permutation::{Permutation, key_of};
use super::{Layout, SampleId, Shuffle};

/// What a key is for, so that no two permutations of a run are the same by accident.
const SHARDS: u64 = 1;
const SAMPLES: u64 = 2;

/// The order of the samples of one epoch.
///
/// Made in time linear in the number of shards, of which it keeps 12 to 40 bytes each where they are shuffled; each
/// place is then found in time logarithmic in the number of shards.
#[derive(Debug, Clone)]
pub struct EpochOrder {
    layout: Arc<Layout>,
    kind: Kind,
}

#[derive(Debug, Clone)]
enum Kind {
    Sequential,
    Window(Windows),
    Full(Permutation),
}

/// Shards in the order of the epoch, cut into windows.
#[derive(Debug, Clone)]
struct Windows {
    ranks: Permutation,
    /// The shard of each rank: looked up for every sample, and a look-up takes a tenth of the time of `ranks`.
    shards: Vec<u32>,
    /// The position of the first sample of each rank, as if only shards were shuffled; behind them the number of all
    /// samples.
    starts: Vec<u64>,
    /// How many shards a window takes.
    width: u32,
    /// The order of the samples of each window.
    samples: Vec<Permutation>,
}

impl EpochOrder {
    pub(super) fn new(layout: Arc<Layout>, shuffle: Shuffle, seed: u64, epoch: u64) -> Self {
        let kind = match shuffle {
            Shuffle::Sequential => Kind::Sequential,
            Shuffle::Window { shards } => Kind::Window(Windows::new(&layout, shards, seed, epoch)),
            Shuffle::Full => Kind::Full(Permutation::new(layout.samples(), key_of(&[seed, epoch, SAMPLES]))),
        };
        Self { layout, kind }
    }

    /// The shards and their samples.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// How many samples the epoch has.
    pub fn len(&self) -> u64 {
        self.layout.samples()
    }

    /// Whether the epoch has no samples.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The sample at `position`.
    ///
    /// # Panics
    ///
    /// Where the epoch ends at or before `position`.
    pub fn sample_at(&self, position: u64) -> SampleId {
        assert!(position < self.len(), "position {position} of an epoch of {} samples", self.len());
        match &self.kind {
            Kind::Sequential => self.layout.sample(position),
            Kind::Full(samples) => self.layout.sample(samples.at(position)),
            Kind::Window(windows) => windows.sample_at(position),
        }
    }

    /// The position of `sample`: the inverse of [`EpochOrder::sample_at`].
    ///
    /// # Panics
    ///
    /// Where there is no such sample.
    pub fn position_of(&self, sample: SampleId) -> u64 {
        let number = self.layout.number_of(sample);
        match &self.kind {
            Kind::Sequential => number,
            Kind::Full(samples) => samples.position_of(number),
            Kind::Window(windows) => windows.position_of(sample),
        }
    }

    /// The first position behind the window at `position`; the next one where there are no windows.
    pub(crate) fn end_of_window(&self, position: u64) -> u64 {
        match &self.kind {
            Kind::Sequential | Kind::Full(_) => position + 1,
            Kind::Window(windows) => windows.range_of(windows.rank_at(position) as u32 / windows.width).end,
        }
    }

    /// The samples from `position` to the end of the epoch.
    pub fn samples_from(&self, position: u64) -> impl Iterator<Item = SampleId> + '_ {
        (position..self.len()).map(|position| self.sample_at(position))
    }

    /// The first position at or behind `from` at which `shard` is used in this epoch, if there is one.
    ///
    /// In a window of n shards this looks at about n positions, because the samples of its shards are well mixed. It
    /// never looks at more than twice as many as the shard has samples.
    pub fn next_use_of_shard(&self, shard: u32, from: u64) -> Option<u64> {
        self.next_use_of(shard, 0..self.layout.samples_of(shard), from)
    }

    /// The same for some neighbouring samples of a shard: it looks at no more positions than twice their number.
    pub(crate) fn next_use_of(&self, shard: u32, samples: Range<u64>, from: u64) -> Option<u64> {
        let range = self.range_of_shard(shard);
        let positions = range.start.max(from)..range.end;
        let near = positions.start..positions.end.min(positions.start.saturating_add(samples.end - samples.start));
        let is_of_them = |sample: SampleId| sample.shard == shard && samples.contains(&sample.index);
        let found = near.clone().find(|position| is_of_them(self.sample_at(*position)));
        if found.is_some() || near.end >= positions.end {
            return found;
        }
        let uses = samples.map(|index| self.position_of(SampleId { shard, index }));
        uses.filter(|position| *position >= from).min()
    }

    /// The positions among which all uses of `shard` lie: those of its window.
    fn range_of_shard(&self, shard: u32) -> Range<u64> {
        let start = self.layout.start_of(shard);
        match &self.kind {
            _ if self.layout.samples_of(shard) == 0 => 0..0,
            Kind::Sequential => start..start + self.layout.samples_of(shard),
            Kind::Window(windows) => windows.range_of(windows.window_of(shard)),
            Kind::Full(_) => 0..self.len(),
        }
    }
}

impl Windows {
    fn new(layout: &Layout, width: u32, seed: u64, epoch: u64) -> Self {
        let ranks = Permutation::new(u64::from(layout.shards()), key_of(&[seed, epoch, SHARDS]));
        let shards: Vec<u32> = (0..ranks.len()).map(|rank| ranks.at(rank) as u32).collect();
        let mut starts = Vec::with_capacity(shards.len() + 1);
        let mut position = 0;
        for shard in &shards {
            starts.push(position);
            position += layout.samples_of(*shard);
        }
        starts.push(position);
        let mut windows = Self { ranks, shards, starts, width: width.max(1), samples: Vec::new() };
        let key = key_of(&[seed, epoch, SAMPLES]);
        for window in 0..layout.shards().div_ceil(windows.width) {
            let range = windows.range_of(window);
            windows.samples.push(Permutation::new(range.end - range.start, key_of(&[key, u64::from(window)])));
        }
        windows
    }

    fn sample_at(&self, position: u64) -> SampleId {
        let window = self.rank_at(position) as u32 / self.width;
        let start = self.range_of(window).start;
        let unshuffled = start + self.samples[window as usize].at(position - start);
        let rank = self.rank_at(unshuffled);
        SampleId { shard: self.shards[rank], index: unshuffled - self.starts[rank] }
    }

    fn position_of(&self, sample: SampleId) -> u64 {
        let rank = self.ranks.position_of(u64::from(sample.shard));
        let window = rank as u32 / self.width;
        let start = self.range_of(window).start;
        let unshuffled = self.starts[rank as usize] + sample.index;
        start + self.samples[window as usize].position_of(unshuffled - start)
    }

    /// The rank of the shard that would stand at `unshuffled` if only shards were shuffled.
    fn rank_at(&self, unshuffled: u64) -> usize {
        self.starts.partition_point(|start| *start <= unshuffled) - 1
    }

    fn window_of(&self, shard: u32) -> u32 {
        self.ranks.position_of(u64::from(shard)) as u32 / self.width
    }

    /// The positions of a window.
    fn range_of(&self, window: u32) -> Range<u64> {
        let last = self.starts.len() - 1;
        let first = window as usize * self.width as usize;
        self.starts[first.min(last)]..self.starts[(first + self.width as usize).min(last)]
    }
}
