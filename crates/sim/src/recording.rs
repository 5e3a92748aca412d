//! A history as the requests that made it.

use std::collections::HashMap;
use std::sync::Arc;

use crate::start::{StartSegment, start};
use crate::{Action, AllocatorSettings, DeviceHistory, Entry, Segment, SimError, Source};

/// What a program asked its allocator for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Input {
    /// A request; it has the next number.
    Alloc { request: u64, stream: u64 },
    /// A request that was refused: by its rounded size, and for how long it would have been kept nobody knows.
    Refused { size: u64, stream: u64 },
    /// The tensor of that request is gone.
    Free(u32),
    /// No stream uses it any more.
    Complete(u32),
    /// `torch.cuda.empty_cache()`.
    EmptyCache,
    /// Memory went back to the device before a request that then got new memory: an empty cache, or that request's own doing.
    MaybeEmptyCache,
}

/// The requests of one device's history, each with the entry that tells of it.
#[derive(Debug, Clone, Default)]
pub struct Recording {
    pub(crate) entries: Arc<Vec<Entry>>,
    pub(crate) inputs: Vec<(Input, u32)>,
    pub(crate) requests: u32,
    /// What was held when it begins.
    pub(crate) start: Vec<StartSegment>,
    pub(crate) source: Source,
    /// The line under which it was recorded, where that is known.
    limit: Option<u64>,
}

impl Recording {
    /// Reads the requests out of a history that begins with an empty allocator.
    ///
    /// # Errors
    ///
    /// Where something is freed that was never allocated, where a size or an address is one that no device has, or where there are more than
    /// 2^32 entries.
    pub fn new(entries: Vec<Entry>) -> Result<Self, SimError> {
        check(&entries)?;
        Self::with_start(Arc::new(entries), Vec::new())
    }

    /// Reads the requests out of the history of a device. Where it was cut at its front, what was held before is worked out from what is held
    /// at the end ([`Recording::is_reconstructed`]).
    ///
    /// # Errors
    ///
    /// As for [`Recording::new`], and where there is no history.
    pub fn of(history: &DeviceHistory, settings: &AllocatorSettings) -> Result<Self, SimError> {
        if history.entries.is_empty() {
            return Err(SimError::NoHistory);
        }
        check(&history.entries)?;
        check_segments(&history.segments)?;
        let start = start(&history.entries, &history.segments, settings);
        let held = start.iter().try_fold(0_u64, |sum, segment| sum.checked_add(segment.size));
        if held.is_none_or(|held| held > MOST_HELD) {
            return Err(SimError::NotASnapshot { reason: "its segments are larger than any device".to_owned() });
        }
        let recording = Self::with_start(Arc::clone(&history.entries), start)?;
        Ok(Self { source: history.source, limit: history.limit, ..recording })
    }

    /// One without a request.
    pub(crate) fn empty(source: Source) -> Self {
        Self { source, ..Self::default() }
    }

    /// Whether something was held before its first entry.
    #[must_use]
    pub const fn is_reconstructed(&self) -> bool {
        !self.start.is_empty()
    }

    fn with_start(entries: Arc<Vec<Entry>>, start: Vec<StartSegment>) -> Result<Self, SimError> {
        let wrong = |entry: usize, reason: &str| SimError::History { entry, reason: reason.to_owned() };
        if u32::try_from(entries.len()).is_err() {
            return Err(wrong(entries.len(), "there are too many"));
        }
        let mut recording = Self::default();
        let mut live: HashMap<u64, u32> = HashMap::new();
        let mut pending: HashMap<u64, u32> = HashMap::new();
        for block in start.iter().flat_map(|segment| &segment.blocks) {
            let which = if block.is_pending { &mut pending } else { &mut live };
            which.insert(block.address, recording.requests);
            recording.requests += 1;
        }
        recording.start = start;
        for (index, entry) in entries.iter().enumerate() {
            let mut add = |input| recording.inputs.push((input, index as u32));
            match entry.action {
                Action::Alloc => {
                    add(Input::Alloc { request: entry.size, stream: entry.stream });
                    live.insert(entry.address, recording.requests);
                    recording.requests += 1;
                }
                Action::Oom => add(Input::Refused { size: entry.size, stream: entry.stream }),
                Action::FreeRequested => {
                    let number =
                        live.remove(&entry.address).ok_or_else(|| wrong(index, "it frees what was not allocated"))?;
                    pending.insert(entry.address, number);
                    add(Input::Free(number));
                }
                Action::FreeCompleted => {
                    let number = pending
                        .remove(&entry.address)
                        .ok_or_else(|| wrong(index, "it completes what was not freed"))?;
                    add(Input::Complete(number));
                }
                Action::SegmentFree | Action::SegmentUnmap => {
                    let is_going_on = index > 0 && is_release(entries[index - 1].action);
                    if !is_going_on {
                        add(released(&entries, index));
                    }
                }
                Action::SegmentAlloc | Action::SegmentMap | Action::Snapshot => {}
            }
        }
        recording.entries = entries;
        Ok(recording)
    }

    /// What tensors held right after an entry, largest first: what was asked for, and by which entry, or none where it was held before the first.
    #[must_use]
    pub fn live_after(&self, entry: u32) -> Vec<(u64, Option<u32>)> {
        let before = self.start.iter().flat_map(|segment| &segment.blocks).map(|block| (block.requested, None));
        let mut all: Vec<Option<(u64, Option<u32>)>> = before.map(Some).collect();
        for (input, at) in self.inputs.iter().take_while(|(_, at)| *at <= entry) {
            match *input {
                Input::Alloc { request, .. } => all.push(Some((request, Some(*at)))),
                Input::Free(number) => all[number as usize] = None,
                _ => {}
            }
        }
        let mut live: Vec<_> = all.into_iter().flatten().collect();
        live.sort_by_key(|(size, _)| std::cmp::Reverse(*size));
        live
    }

    /// What was asked for, in order.
    pub fn requests(&self) -> impl Iterator<Item = u64> {
        self.inputs.iter().filter_map(|(input, _)| match *input {
            Input::Alloc { request, .. } => Some(request),
            _ => None,
        })
    }

    /// The most that was asked for at once.
    pub(crate) fn requested_peak(&self) -> u64 {
        let mut all: Vec<u64> = Vec::with_capacity(self.requests as usize);
        let (mut held, mut peak) = (0_u64, 0);
        for (input, _) in &self.inputs {
            match *input {
                Input::Alloc { request, .. } => {
                    all.push(request);
                    held += request;
                    peak = peak.max(held);
                }
                Input::Free(number) => held -= all[number as usize],
                _ => {}
            }
        }
        peak
    }

    /// How much could be reserved, where a request was refused: no less than this, and less than what that request would have made of it.
    #[must_use]
    pub fn ceiling(&self) -> Option<u64> {
        let has_oom = self.entries.iter().any(|entry| entry.action == Action::Oom);
        has_oom.then(|| self.limit.unwrap_or_else(|| self.reserved_peak()))
    }

    /// The most that was reserved, by its own entries.
    #[must_use]
    pub fn reserved_peak(&self) -> u64 {
        if self.source == Source::Host {
            return self.requested_peak();
        }
        let mut reserved: u64 = self.start.iter().map(|segment| segment.size).sum();
        let mut peak = reserved;
        for entry in &*self.entries {
            match entry.action {
                Action::SegmentAlloc | Action::SegmentMap => reserved = reserved.saturating_add(entry.size),
                Action::SegmentFree | Action::SegmentUnmap => reserved = reserved.saturating_sub(entry.size),
                _ => {}
            }
            peak = peak.max(reserved);
        }
        peak
    }

    /// How many entries it has.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether it has none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
}

const fn is_release(action: Action) -> bool {
    matches!(action, Action::SegmentFree | Action::SegmentUnmap)
}

/// Larger than any request, and any address; sums of some of them do not overflow.
const MOST_SIZE: u64 = 1 << 56;
const MOST_ADDRESS: u64 = 1 << 62;
/// Larger than what all devices of a machine have.
const MOST_HELD: u64 = 1 << 60;

/// Refuses sizes and addresses that no device has.
fn check(entries: &[Entry]) -> Result<(), SimError> {
    let wrong = |entry: usize, reason: &str| Err(SimError::History { entry, reason: reason.to_owned() });
    for (index, entry) in entries.iter().enumerate() {
        let is_request = matches!(entry.action, Action::Alloc | Action::Oom);
        if is_request && entry.size == 0 {
            return wrong(index, "it asks for nothing");
        }
        if entry.action != Action::Snapshot && (entry.size > MOST_SIZE || entry.address > MOST_ADDRESS) {
            return wrong(index, "no device has such a size or address");
        }
    }
    Ok(())
}

/// Refuses segments whose blocks do not lie in them one behind the other.
fn check_segments(segments: &[Segment]) -> Result<(), SimError> {
    let wrong = |reason: String| Err(SimError::NotASnapshot { reason });
    for segment in segments {
        let Segment { address, size, .. } = *segment;
        if size == 0 || size > MOST_SIZE || address > MOST_ADDRESS {
            return wrong(format!("no device has a segment of {size} bytes at {address:#x}"));
        }
        let mut at = address;
        for block in &segment.blocks {
            let end = block.address.checked_add(block.size).filter(|end| *end <= address + size);
            let Some(end) = end.filter(|_| block.address >= at && block.size > 0) else {
                return wrong(format!("blocks of the segment at {address:#x} do not lie in it one behind the other"));
            };
            at = end;
        }
    }
    Ok(())
}

/// What gave memory back to the device: `empty_cache` leaves no entry of its own.
fn released(entries: &[Entry], start: usize) -> Input {
    // Whoever wants to be understood takes a snapshot right before.
    if start > 0 && entries[start - 1].action == Action::Snapshot {
        return Input::EmptyCache;
    }
    let behind = entries[start..].iter().map(|entry| entry.action).find(|action| !is_release(*action));
    match behind {
        Some(Action::SegmentAlloc | Action::SegmentMap | Action::Oom | Action::FreeCompleted) => Input::MaybeEmptyCache,
        _ => Input::EmptyCache,
    }
}
