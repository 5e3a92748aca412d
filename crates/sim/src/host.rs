//! LibTorch's CPU allocator with a line drawn under it, as Lowtide's engine has it: a request counts by the bytes it asked for, and one that
//! would pass the line is refused. Nothing is cached or rounded, and nothing is lost between blocks.

use std::collections::HashMap;
use std::sync::Arc;

use crate::recording::Input;
use crate::snapshot::Source;
use crate::timeline::TimelineNotes;
use crate::{Action, BlockLife, DeviceHistory, Entry, Moment, Recording, Replay, Reservation, Snapshot, Statistics};

/// The history of a CPU allocator, as it happens.
#[derive(Debug, Default)]
pub struct HostHistory {
    entries: Vec<Entry>,
    times: Vec<u64>,
    /// What is held, by number.
    held: HashMap<u64, u64>,
}

impl HostHistory {
    /// A request was served; each has a number of its own.
    pub fn allocated(&mut self, number: u64, bytes: u64, microseconds: u64) {
        self.held.insert(number, bytes);
        self.add(Action::Alloc, number, bytes, microseconds);
    }

    /// It was given back; one from before the history is passed over.
    pub fn freed(&mut self, number: u64, microseconds: u64) {
        if let Some(bytes) = self.held.remove(&number) {
            self.add(Action::FreeRequested, number, bytes, microseconds);
        }
    }

    /// A request was refused.
    pub fn refused(&mut self, bytes: u64, microseconds: u64) {
        self.add(Action::Oom, 0, bytes, microseconds);
    }

    fn add(&mut self, action: Action, address: u64, size: u64, microseconds: u64) {
        self.entries.push(Entry { action, address, size, stream: 0 });
        self.times.push(microseconds);
    }

    /// All of it, with the line that was set.
    #[must_use]
    pub fn into_snapshot(self, line: Option<u64>) -> Snapshot {
        let history = DeviceHistory {
            source: Source::Host,
            entries: Arc::new(self.entries),
            times: self.times,
            limit: line,
            ..DeviceHistory::default()
        };
        Snapshot { devices: vec![history], stacks: Vec::new(), settings: None }
    }
}

/// Replays what a CPU allocator was asked for.
pub(crate) struct HostPlayer<'a> {
    recording: &'a Recording,
    line: Option<u64>,
    statistics: Statistics,
    /// What was asked for by each request that is held.
    held: Vec<Option<u64>>,
    first_oom: Option<u32>,
    peak: Moment,
    differences: Vec<u32>,
    timeline: Option<TimelineNotes>,
}

impl<'a> HostPlayer<'a> {
    pub(crate) fn new(recording: &'a Recording, line: Option<u64>) -> Self {
        Self {
            recording,
            line,
            statistics: Statistics::default(),
            held: Vec::with_capacity(recording.requests as usize),
            first_oom: None,
            peak: Moment::default(),
            differences: Vec::new(),
            timeline: None,
        }
    }

    pub(crate) fn keep_timeline(mut self) -> Self {
        self.timeline = Some(TimelineNotes::default());
        self
    }

    pub(crate) fn play(mut self) -> (Replay, Option<TimelineNotes>) {
        for (input, entry) in &self.recording.inputs {
            match *input {
                Input::Alloc { request, .. } => self.ask(request, *entry),
                Input::Refused { size, .. } => {
                    if self.has_room(size) {
                        // Whoever got less died of it, or let go of it.
                        self.differences.push(*entry);
                    } else {
                        self.refuse(*entry);
                        if let Some(notes) = &mut self.timeline {
                            notes.ooms.push(*entry);
                        }
                    }
                }
                Input::Free(number) => self.free(number, *entry),
                Input::Complete(_) | Input::EmptyCache | Input::MaybeEmptyCache => {}
            }
        }
        let replay = Replay {
            statistics: self.statistics,
            first_oom: self.first_oom,
            reserved_peak: self.peak,
            allocated_peak: self.peak,
            differing: Some(self.differences.len()),
            first_difference: self.differences.first().map(|entry| *entry as usize),
        };
        (replay, self.timeline)
    }

    fn has_room(&self, bytes: u64) -> bool {
        let sum = self.statistics.allocated.current.checked_add(bytes);
        sum.is_some_and(|sum| self.line.is_none_or(|line| sum <= line))
    }

    fn refuse(&mut self, entry: u32) {
        self.statistics.ooms += 1;
        self.first_oom.get_or_insert(entry);
    }

    fn ask(&mut self, bytes: u64, entry: u32) {
        if !self.has_room(bytes) {
            self.refuse(entry);
            self.differences.push(entry);
            self.held.push(None);
            if let Some(notes) = &mut self.timeline {
                notes.refused(entry);
            }
            return;
        }
        self.held.push(Some(bytes));
        self.gauges().into_iter().for_each(|gauge| gauge.add(bytes));
        if self.statistics.allocated.current > self.peak.allocated {
            self.peak = Moment::new(entry, &self.statistics);
        }
        if let Some(notes) = &mut self.timeline {
            let address = self.recording.entries[entry as usize].address;
            notes.given(BlockLife { address, size: bytes, requested: bytes, stream: 0, begin: Some(entry), end: None });
            notes.reserve(Reservation { address, size: bytes, base: address, stream: 0, begin: entry, end: None });
        }
    }

    fn free(&mut self, number: u32, entry: u32) {
        let Some(bytes) = self.held[number as usize].take() else { return };
        self.gauges().into_iter().for_each(|gauge| gauge.take(bytes));
        if let Some(notes) = &mut self.timeline {
            notes.freed(number, entry);
            notes.return_at(self.recording.entries[entry as usize].address, entry);
        }
    }

    fn gauges(&mut self) -> [&mut crate::Gauge; 4] {
        let Statistics { allocated, active, requested, reserved, .. } = &mut self.statistics;
        [allocated, active, requested, reserved]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{AddressOrder, AllocatorSettings, Conditions, Fit, Placement, SizedRecording, TorchVersion, Verdict};

    fn recording(line: Option<u64>) -> Recording {
        let mut history = HostHistory::default();
        history.allocated(1, 1000, 0);
        history.allocated(2, 501, 1);
        history.refused(600, 2);
        history.freed(1, 3);
        history.allocated(3, 1400, 4);
        let snapshot = history.into_snapshot(line);
        let settings = AllocatorSettings::new(TorchVersion::default());
        Recording::of(&snapshot.devices[0], &settings).unwrap()
    }

    fn under(limit: Option<u64>) -> Conditions {
        let settings = AllocatorSettings::new(TorchVersion::default());
        Conditions { settings, limit, capacity: None, placement: Placement::Ordered(AddressOrder::Ascending) }
    }

    #[test]
    fn it_counts_what_is_asked_for() {
        let recording = recording(Some(2000));
        assert_eq!(recording.ceiling(), Some(2000));
        let replay = recording.replay(&under(recording.ceiling()));
        assert_eq!((replay.statistics.allocated.peak, replay.statistics.reserved.peak), (1901, 1901));
        assert_eq!((replay.statistics.ooms, replay.first_oom, replay.differing), (1, Some(2), Some(0)));
        assert_eq!(recording.reserved_peak(), 1901);
    }

    #[test]
    fn another_line() {
        let recording = recording(Some(2000));
        let wide = recording.replay(&under(None)).statistics;
        assert_eq!((wide.allocated.peak, wide.ooms), (1901, 0));
        let narrow = recording.replay(&under(Some(1500)));
        // The second, the one that was refused, and nothing after: 1400 fit where the second is missing.
        assert_eq!((narrow.statistics.ooms, narrow.first_oom), (2, Some(1)));
        assert_eq!(narrow.statistics.allocated.peak, 1400);
    }

    /// Nothing is rounded, and sums over rows take no buffers: another size is exact, to the byte.
    #[test]
    fn another_size() {
        let settings = AllocatorSettings::new(TorchVersion::default());
        let sized = |size: u64, source: Source| {
            let mut history = HostHistory::default();
            history.allocated(1, 12_000, 0);
            history.allocated(2, 3000 * size, 1);
            // The gradient of a bias, which has a buffer beside it on a card.
            history.allocated(3, 400, 2);
            history.freed(2, 3);
            history.allocated(4, 100 + 1024 * size, 4);
            let mut snapshot = history.into_snapshot(None);
            snapshot.devices[0].source = source;
            SizedRecording::new(size, &snapshot, &snapshot.devices[0], &settings)
        };
        let recorded = [1000, 2000].map(|size| sized(size, Source::Host).unwrap());
        let fit = Fit::new(recorded.to_vec()).unwrap();
        let prediction = fit.predict(8000, &settings).unwrap();
        assert_eq!((prediction.reserved_peak, prediction.allocated_peak), (24_012_400, 24_012_400));
        assert!(fit.what_if(8000, TorchVersion::default(), None).unwrap().is_empty());
        assert_eq!(fit.verdict(8000, &settings, 24_012_399).unwrap(), Verdict::ProbablyNot);
        assert_eq!(fit.largest(&settings, 24_012_400), Some(8000));
        let mixed = vec![recorded[0].clone(), sized(2000, Source::CachingAllocator).unwrap()];
        let refused = Fit::new(mixed).unwrap_err().to_string();
        assert_eq!(refused, "some of the recordings are of a GPU and some of a CPU");
    }

    #[test]
    fn its_timeline() {
        let timeline = recording(Some(2000)).timeline(&under(Some(2000)));
        assert_eq!(timeline.ooms, [2]);
        let lives: Vec<_> = timeline.blocks.iter().map(|block| (block.begin, block.end)).collect();
        assert_eq!(lives, [(Some(0), Some(3)), (Some(1), None), (Some(4), None)]);
        assert_eq!(timeline.levels(1)[0].reserved, 1901);
    }
}
