//! A recording as a program that asks: requests with their sizes, in order.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use crate::recording::Input;
use crate::{Action, AllocatorSettings, DeviceHistory, Frame, Recording, SimError, Snapshot, Source};

/// A recording of a program that ran at a known size.
#[derive(Debug, Clone)]
pub struct SizedRecording {
    pub(super) size: u64,
    pub(super) is_reconstructed: bool,
    /// The requests and frees, from an empty allocator on.
    pub(super) recording: Recording,
    pub(super) requests: Vec<Request>,
    pub(super) reserved_peak: u64,
}

/// One request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Request {
    pub(super) bytes: u64,
    /// The stream, by the order in which streams appear.
    pub(super) stream: u32,
    /// The lines of Python that asked, as one number; none where they are not recorded.
    pub(super) stack: Option<u64>,
    /// When it began and ended, in requests and frees.
    pub(super) birth: u32,
    pub(super) death: u32,
}

impl SizedRecording {
    /// The history of one device of a snapshot, recorded at a size.
    ///
    /// # Errors
    ///
    /// As for [`Recording::of`]; where the size is 0, or where memory ran out in it, so that what would have followed is not known.
    pub fn new(
        size: u64,
        snapshot: &Snapshot,
        history: &DeviceHistory,
        settings: &AllocatorSettings,
    ) -> Result<Self, SimError> {
        let wrong = |reason: &str| SimError::Sizes { reason: format!("size {size}: {reason}") };
        if size == 0 {
            return Err(wrong("a size is at least 1"));
        }
        if history.entries.iter().any(|entry| entry.action == Action::Oom) {
            return Err(wrong("memory ran out in this recording, so it is not complete; record a smaller size"));
        }
        let recording = Recording::of(history, settings)?;
        let keys: Vec<u64> = snapshot.stacks.iter().map(|frames| key(frames)).collect();
        let stack = |entry: u32| history.stacks.get(entry as usize).copied().flatten().map(|at| keys[at as usize]);
        let is_reconstructed = recording.is_reconstructed();
        let reserved_peak = recording.reserved_peak();
        let recording = from_nothing(recording);
        let requests = requests(&recording, stack);
        if requests.is_empty() {
            return Err(wrong("nothing was allocated"));
        }
        Ok(Self { size, is_reconstructed, recording, requests, reserved_peak })
    }

    /// The size that it was recorded at.
    #[must_use]
    pub const fn size(&self) -> u64 {
        self.size
    }

    /// Whose memory it is of.
    #[must_use]
    pub const fn source(&self) -> Source {
        self.recording.source
    }

    /// The most that was reserved in it.
    #[must_use]
    pub const fn reserved_peak(&self) -> u64 {
        self.reserved_peak
    }
}

/// Lines of Python are the same in each run; those of C++ are another kernel's where a library picks one.
fn key(frames: &[Frame]) -> u64 {
    let mut hasher = DefaultHasher::new();
    for frame in frames.iter().filter(|frame| frame.line > 0) {
        frame.hash(&mut hasher);
    }
    hasher.finish()
}

/// The same recording with what was held at its start asked for first, the largest first: its addresses belong to one size only.
fn from_nothing(mut recording: Recording) -> Recording {
    let start = std::mem::take(&mut recording.start);
    let mut held: Vec<(u32, u64, u64)> = Vec::new();
    for segment in &start {
        for block in &segment.blocks {
            held.push((held.len() as u32, block.requested, segment.stream));
        }
    }
    held.sort_by_key(|(number, requested, _)| (std::cmp::Reverse(*requested), *number));
    let mut renumbered = vec![0; held.len()];
    for (new, (old, ..)) in held.iter().enumerate() {
        renumbered[*old as usize] = new as u32;
    }
    let number = |old: u32| renumbered.get(old as usize).copied().unwrap_or(old);
    let pending = start.iter().flat_map(|segment| &segment.blocks).enumerate().filter(|(_, block)| block.is_pending);
    let freed = pending.map(|(old, _)| (Input::Free(number(old as u32)), 0));
    let first = held.iter().map(|(_, request, stream)| (Input::Alloc { request: *request, stream: *stream }, 0));
    let rest = recording.inputs.iter().map(|(input, entry)| {
        let input = match *input {
            Input::Free(old) => Input::Free(number(old)),
            Input::Complete(old) => Input::Complete(number(old)),
            other => other,
        };
        (input, *entry)
    });
    recording.inputs = first.chain(freed).chain(rest).collect();
    recording
}

fn requests(recording: &Recording, stack: impl Fn(u32) -> Option<u64>) -> Vec<Request> {
    let mut requests: Vec<Request> = Vec::with_capacity(recording.requests as usize);
    let mut streams: HashMap<u64, u32> = HashMap::new();
    for (index, (input, entry)) in recording.inputs.iter().enumerate() {
        match *input {
            Input::Alloc { request, stream } => {
                let next = streams.len() as u32;
                let stream = *streams.entry(stream).or_insert(next);
                let (birth, death) = (index as u32, u32::MAX);
                requests.push(Request { bytes: request, stream, stack: stack(*entry), birth, death });
            }
            Input::Free(number) => requests[number as usize].death = index as u32,
            _ => {}
        }
    }
    requests
}
