//! Entries of a history, as PyTorch records them.

use serde::Serialize;

/// What an entry tells of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Action {
    /// A tensor got memory.
    Alloc,
    /// A tensor gave it back.
    FreeRequested,
    /// No stream uses it any more.
    FreeCompleted,
    /// The device gave a segment.
    SegmentAlloc,
    /// The device got it back.
    SegmentFree,
    /// The device gave pages of an expandable segment.
    SegmentMap,
    /// The device got them back.
    SegmentUnmap,
    /// Memory ran out.
    Oom,
    /// Somebody took a snapshot.
    Snapshot,
}

impl Action {
    /// By the name that PyTorch has for it.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Some(match name {
            "alloc" => Self::Alloc,
            "free_requested" => Self::FreeRequested,
            "free_completed" => Self::FreeCompleted,
            "segment_alloc" => Self::SegmentAlloc,
            "segment_free" => Self::SegmentFree,
            "segment_map" => Self::SegmentMap,
            "segment_unmap" => Self::SegmentUnmap,
            "oom" => Self::Oom,
            "snapshot" => Self::Snapshot,
            _ => return None,
        })
    }
}

/// One entry of a history.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Entry {
    /// What happened.
    pub action: Action,
    /// Where; of an out-of-memory error what was free on the device.
    pub address: u64,
    /// What was asked for; of a segment its size, of an out-of-memory error the rounded request.
    pub size: u64,
    /// The stream.
    pub stream: u64,
}
