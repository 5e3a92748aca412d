//! A snapshot of PyTorch's CUDA allocator, as `torch.cuda.memory._snapshot()` gives it and its viewer takes it.
//!
//! It is a dict with `segments`, each with its `device` and `blocks`. A block in use has its size and, where PyTorch kept a
//! history, the `frames` of whoever asked for it, the innermost first. What else is in it is for the viewer.

use std::collections::HashMap;
use std::io::BufRead;

use lowtide_core::Bytes;
use lowtide_log::StackFrame;
use lowtide_pickle::{AllowList, Limits, NodeId, Pickle, PickleError, Value, read};

use crate::code_line::code_line;
use crate::{CodeLine, TensorGroup};

/// How many frames of a stack are looked at.
const MOST_FRAMES: usize = 200;
/// How many groups are kept; the rest is summed up.
const MOST_GROUPS: usize = 12;

/// Why a snapshot cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SnapshotError {
    /// It is no pickle, or one that holds something else than numbers and texts.
    #[error("this is no memory snapshot: {0}")]
    Pickle(#[from] PickleError),
    /// It is a pickle of something else.
    #[error("this is no memory snapshot: it has no `segments`")]
    NoSegments,
}

/// What the allocator of each card had handed out.
#[derive(Debug, Clone, Default, PartialEq)]
#[non_exhaustive]
pub struct MemorySnapshot {
    devices: HashMap<u32, Device>,
}

#[derive(Debug, Clone, Default, PartialEq)]
struct Device {
    allocated: u64,
    /// Bytes and blocks by place; those without a stack have none.
    groups: HashMap<Option<CodeLine>, (u64, u64)>,
}

impl MemorySnapshot {
    /// Reads a pickled snapshot.
    ///
    /// # Errors
    ///
    /// It is none.
    pub fn read(bytes: impl BufRead) -> Result<Self, SnapshotError> {
        let pickle = read(bytes, &AllowList::plain(), &Limits::default())?;
        let segments = pickle.entry(pickle.root(), "segments").map(|node| pickle.get(node));
        let Some(Value::List(segments)) = segments else { return Err(SnapshotError::NoSegments) };
        let mut snapshot = Self::default();
        let mut places = Places::default();
        for segment in segments {
            let number = |key: &str| pickle.entry(*segment, key).and_then(|node| size(&pickle, node));
            let index = number("device").and_then(|index| u32::try_from(index).ok()).unwrap_or(0);
            let device = snapshot.devices.entry(index).or_default();
            let blocks = pickle.entry(*segment, "blocks").map(|node| pickle.get(node));
            let Some(Value::List(blocks)) = blocks else { continue };
            for block in blocks {
                device.add(&pickle, *block, &mut places);
            }
        }
        Ok(snapshot)
    }

    /// The cards that are in it, in order.
    #[must_use]
    pub fn devices(&self) -> Vec<u32> {
        let mut devices: Vec<u32> = self.devices.keys().copied().collect();
        devices.sort_unstable();
        devices
    }

    /// What a card's allocator had handed out.
    #[must_use]
    pub fn allocated(&self, device: u32) -> Option<Bytes> {
        self.devices.get(&device).map(|device| Bytes(device.allocated))
    }

    /// Who asked for it, by line of code, the largest first; empty where PyTorch kept no history.
    #[must_use]
    pub fn groups(&self, device: u32) -> Vec<TensorGroup> {
        let Some(device) = self.devices.get(&device) else { return Vec::new() };
        if device.groups.keys().all(Option::is_none) {
            return Vec::new();
        }
        let group = |name: Option<&str>, place: Option<CodeLine>, (bytes, count): (u64, u64)| TensorGroup {
            name: name.map(str::to_owned),
            place,
            shape: Vec::new(),
            dtype: None,
            bytes: Bytes(bytes),
            count,
        };
        let mut by_size: Vec<_> = device.groups.iter().collect();
        let line = |place: &Option<CodeLine>| place.as_ref().map(|place| (place.file.clone(), place.line));
        by_size.sort_by_cached_key(|(place, (bytes, _))| (std::cmp::Reverse(*bytes), line(place)));
        let (first, rest) = by_size.split_at(by_size.len().min(MOST_GROUPS));
        let named = |place: &Option<CodeLine>| place.is_none().then_some("made before the history began");
        let mut groups: Vec<TensorGroup> =
            first.iter().map(|(place, sums)| group(named(place), (*place).clone(), **sums)).collect();
        if !rest.is_empty() {
            let bytes = rest.iter().fold(0_u64, |sum, (_, (bytes, _))| sum.saturating_add(*bytes));
            let count = rest.iter().map(|(_, (_, count))| count).sum();
            groups.push(group(Some("made by other lines"), None, (bytes, count)));
        }
        groups
    }
}

impl Device {
    fn add(&mut self, pickle: &Pickle, block: NodeId, places: &mut Places) {
        let state = pickle.entry(block, "state").and_then(|node| pickle.str(node));
        if !state.is_some_and(|state| state.starts_with("active")) {
            return;
        }
        let number = |key: &str| pickle.entry(block, key).and_then(|node| size(pickle, node));
        let bytes = number("size").unwrap_or(0);
        self.allocated = self.allocated.saturating_add(bytes);
        let place = pickle.entry(block, "frames").and_then(|frames| places.of(pickle, frames));
        let (sum, count) = self.groups.entry(place).or_default();
        (*sum, *count) = (sum.saturating_add(bytes), *count + 1);
    }
}

/// The places of stacks, of which many blocks have the same.
#[derive(Default)]
struct Places(HashMap<usize, Option<CodeLine>>);

impl Places {
    fn of(&mut self, pickle: &Pickle, frames: NodeId) -> Option<CodeLine> {
        let Value::List(stack) = pickle.get(frames) else { return None };
        self.0.entry(frames.index()).or_insert_with(|| place(pickle, stack)).clone()
    }
}

/// The line of the program's own code that asked.
fn place(pickle: &Pickle, stack: &[NodeId]) -> Option<CodeLine> {
    let frame = |node: &NodeId| {
        let text = |key: &str| Some(pickle.str(pickle.entry(*node, key)?)?.to_owned());
        let mut frame = StackFrame::default();
        frame.file = text("filename")?;
        frame.function = text("name")?;
        frame.line = pickle.entry(*node, "line").and_then(|node| size(pickle, node));
        Some(frame)
    };
    let mut frames: Vec<StackFrame> = stack.iter().take(MOST_FRAMES).filter_map(frame).collect();
    frames.reverse();
    code_line(&frames)
}

fn size(pickle: &Pickle, node: NodeId) -> Option<u64> {
    pickle.int(node).and_then(|number| u64::try_from(number).ok())
}
