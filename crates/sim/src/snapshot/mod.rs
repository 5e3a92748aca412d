//! A snapshot of PyTorch's CUDA allocator: `torch.cuda.memory._snapshot()`, or the file of `_dump_snapshot`.

use std::collections::HashMap;
use std::io::BufRead;
use std::sync::Arc;

use crate::{AllocatorSettings, Entry, SimError, TorchVersion};

mod events;
mod reader;

/// What a snapshot holds that can be replayed.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Snapshot {
    /// Each device that has a history or memory.
    pub devices: Vec<DeviceHistory>,
    /// The stacks that entries point at.
    pub stacks: Vec<Vec<Frame>>,
    pub(crate) settings: Option<SettingsOfSnapshot>,
}

/// The history of one device.
#[derive(Debug, Clone, Default, PartialEq)]
#[non_exhaustive]
pub struct DeviceHistory {
    /// Whose memory it is.
    pub source: Source,
    /// Its number.
    pub device: u32,
    /// What happened, oldest first; shared with the recordings that are made of it.
    pub entries: Arc<Vec<Entry>>,
    /// Which of the stacks each entry has; empty where there is none at all.
    pub stacks: Vec<Option<u32>>,
    /// When each entry was, in microseconds; empty where the snapshot does not tell.
    pub times: Vec<u64>,
    /// What was held from the device at the end.
    pub segments: Vec<Segment>,
    /// How many of its entries are of pools of their own, as far as the snapshot tells (2.12 and later).
    pub private_entries: usize,
    /// The most that could be held, where the recording tells.
    pub limit: Option<u64>,
}

/// Whose memory a history is of.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Source {
    /// PyTorch's caching allocator, of a GPU.
    #[default]
    CachingAllocator,
    /// LibTorch's CPU allocator with the line of Lowtide's engine.
    Host,
}

/// A segment, as it was when the snapshot was taken.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Segment {
    /// Where it begins.
    pub address: u64,
    /// Its size.
    pub size: u64,
    /// Its stream.
    pub stream: u64,
    /// Whether it is of the small pool.
    pub is_small: bool,
    /// Whether it can grow.
    pub is_expandable: bool,
    /// Whether it is of a pool of its own: a CUDA graph's, or a `MemPool`.
    pub is_private: bool,
    /// Its blocks, by address.
    pub blocks: Vec<SegmentBlock>,
}

/// A block of a segment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SegmentBlock {
    /// Where it begins.
    pub address: u64,
    /// Its size.
    pub size: u64,
    /// What was asked for, where it is in use.
    pub requested: u64,
    /// Whether a tensor has it.
    pub is_allocated: bool,
    /// Whether a stream may still use it.
    pub is_active: bool,
}

/// A frame of a stack.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Frame {
    /// The file.
    pub file: Arc<str>,
    /// The line.
    pub line: u64,
    /// The function.
    pub function: Arc<str>,
}

#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct SettingsOfSnapshot {
    pub(crate) conf: String,
    pub(crate) max_split_size: Option<u64>,
    pub(crate) garbage_collection_threshold: f64,
    pub(crate) expandable_segments: bool,
    pub(crate) divisions: HashMap<u64, u64>,
}

impl DeviceHistory {
    /// What pools of their own held at the end: those of CUDA graphs and of `MemPool`, which are simulated as if they were the common one.
    #[must_use]
    pub fn private_bytes(&self) -> u64 {
        let private = self.segments.iter().filter(|segment| segment.is_private);
        private.fold(0, |sum, segment| sum.saturating_add(segment.size))
    }
}

impl Snapshot {
    /// Reads a pickled snapshot, unpacked.
    ///
    /// # Errors
    ///
    /// It is none.
    pub fn read(input: impl BufRead) -> Result<Self, SimError> {
        reader::read(input)
    }

    /// The settings under which it was recorded.
    ///
    /// # Errors
    ///
    /// Where they are none that this version of PyTorch takes.
    pub fn settings(&self, version: TorchVersion) -> Result<AllocatorSettings, SimError> {
        let Some(told) = &self.settings else { return Ok(AllocatorSettings::new(version)) };
        let mut settings = AllocatorSettings::parse(&told.conf, version)?;
        // They may have been set by a call, which the text does not tell.
        settings.max_split_size = told.max_split_size;
        settings.garbage_collection_threshold = told.garbage_collection_threshold;
        settings.expandable_segments = told.expandable_segments;
        for (mebibytes, divisions) in &told.divisions {
            let interval = (mebibytes.max(&1).ilog2() as usize).min(settings.roundup_power2_divisions.len() - 1);
            settings.roundup_power2_divisions[interval] = *divisions;
        }
        Ok(settings)
    }

    /// The text of the settings, as it was set.
    #[must_use]
    pub fn conf(&self) -> &str {
        self.settings.as_ref().map_or("", |settings| &settings.conf)
    }
}
