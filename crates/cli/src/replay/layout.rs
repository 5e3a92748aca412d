//! Where segments are drawn: one above the other without the gaps between their addresses, and at the place of one that is gone.

use std::collections::{BTreeMap, HashMap};

use lowtide_sim::Reservation;

/// Places of segments in a chart, in bytes from its bottom.
#[derive(Debug, Default)]
pub(super) struct Layout {
    lanes: Vec<Lane>,
    /// The lanes that begin at an address, in order of time.
    by_base: BTreeMap<u64, Vec<usize>>,
    offsets: Vec<u64>,
}

/// A segment, or all pages of one that can grow.
#[derive(Debug, Clone, Copy)]
struct Lane {
    base: u64,
    size: u64,
    begin: u32,
    end: u32,
    offset: u64,
}

impl Layout {
    pub(super) fn of(ranges: &[Reservation]) -> Self {
        let mut layout = Self::default();
        let is_page = |range: &Reservation| range.address != range.base;
        let growing: HashMap<u64, ()> =
            ranges.iter().filter(|range| is_page(range)).map(|range| (range.base, ())).collect();
        let mut of_growing: HashMap<u64, usize> = HashMap::new();
        let mut lane_of = Vec::with_capacity(ranges.len());
        for range in ranges {
            let end = range.end.unwrap_or(u32::MAX);
            let size = (range.address - range.base).saturating_add(range.size);
            let known = of_growing.get(&range.base).copied();
            let lane = known.unwrap_or_else(|| {
                let lane = layout.lanes.len();
                layout.lanes.push(Lane { base: range.base, size, begin: range.begin, end, offset: 0 });
                layout.by_base.entry(range.base).or_default().push(lane);
                if growing.contains_key(&range.base) {
                    of_growing.insert(range.base, lane);
                }
                lane
            });
            let known = &mut layout.lanes[lane];
            known.size = known.size.max(size);
            known.end = known.end.max(end);
            lane_of.push(lane);
        }
        layout.place();
        let offset = |(range, lane): (&Reservation, &usize)| layout.lanes[*lane].offset + (range.address - range.base);
        layout.offsets = ranges.iter().zip(&lane_of).map(offset).collect();
        layout
    }

    /// Gives each lane the lowest place that is free from its beginning on; they come in the order in which they begin.
    fn place(&mut self) {
        let mut held: Vec<Lane> = Vec::new();
        for lane in &mut self.lanes {
            held.retain(|other| other.end > lane.begin);
            let mut at = 0_u64;
            let mut index = 0;
            for other in &held {
                if other.offset.saturating_sub(at) >= lane.size {
                    break;
                }
                at = other.offset.saturating_add(other.size);
                index += 1;
            }
            lane.offset = at;
            held.insert(index, *lane);
        }
    }

    /// Where each range is, in the order in which they were given.
    pub(super) fn offsets(&self) -> &[u64] {
        &self.offsets
    }

    /// Where an address was at a moment.
    pub(super) fn offset(&self, address: u64, entry: u32) -> u64 {
        let lane = self.by_base.range(..=address).next_back().and_then(|(_, lanes)| {
            let next = lanes.partition_point(|lane| self.lanes[*lane].begin <= entry);
            lanes.get(next.saturating_sub(1))
        });
        lane.map_or(0, |lane| self.lanes[*lane].offset.saturating_add(address - self.lanes[*lane].base))
    }

    /// How high all of it is.
    pub(super) fn height(&self) -> u64 {
        self.lanes.iter().map(|lane| lane.offset.saturating_add(lane.size)).max().unwrap_or(0)
    }
}
