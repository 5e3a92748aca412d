//! Who held which part of a device when memory ran out.

use lowtide_core::Bytes;
use lowtide_oom::{Oom, Place};
use serde::Serialize;

use crate::cause::Judgement;

/// A part of a device's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Holding {
    /// Who holds it.
    pub by: HoldingKind,
    /// How much it is.
    pub bytes: Bytes,
}

/// Who holds a part of a device's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum HoldingKind {
    /// Tensors of this process.
    Tensors,
    /// The allocator of this process, without having handed it out.
    Idle,
    /// This process, past its allocator: contexts, libraries.
    OutsideAllocator,
    /// This process, where its message does not say for what.
    Process,
    /// Other processes.
    Others,
    /// Somebody, as far as the figures tell.
    Unknown,
    /// Contexts and whoever else is on the device, of whom the message gives no figure.
    NotToldApart,
    /// Nobody.
    Free,
}

impl HoldingKind {
    /// What it is, in plain words.
    #[must_use]
    pub const fn words(self) -> &'static str {
        match self {
            Self::Tensors => "tensors of this process",
            Self::Idle => "idle in its allocator",
            Self::OutsideAllocator => "this process outside its allocator",
            Self::Process => "this process",
            Self::Others => "other processes",
            Self::Unknown => "not accounted for",
            Self::NotToldApart => "contexts and others, not told apart",
            Self::Free => "free",
        }
    }
}

/// The parts of a device; none where the log does not say how large it is, or whether anything is held.
pub(crate) fn holdings(oom: &Oom, judgement: &Judgement) -> Vec<Holding> {
    let Some(capacity) = oom.capacity.filter(|_| oom.place == Place::Device) else { return Vec::new() };
    let tensors = oom.allocated;
    let idle = oom.reserved_unallocated_or_derived();
    let own = oom.in_use.filter(|_| tensors.is_none());
    let parts = [
        (HoldingKind::Tensors, tensors),
        (HoldingKind::Idle, idle.filter(|_| tensors.is_some())),
        (HoldingKind::OutsideAllocator, judgement.outside.filter(|_| tensors.is_some())),
        (HoldingKind::Process, own),
        // What nobody counted is not known to be theirs.
        (HoldingKind::Others, judgement.others.filter(|_| !judgement.is_left_over)),
        (HoldingKind::Free, oom.free),
    ];
    let mut holdings: Vec<Holding> = parts
        .into_iter()
        .filter_map(|(by, bytes)| Some(Holding { by, bytes: bytes.filter(|bytes| !bytes.is_zero())? }))
        .collect();
    if holdings.iter().all(|holding| holding.by == HoldingKind::Free) {
        return Vec::new();
    }
    let named = holdings.iter().fold(Bytes::ZERO, |sum, holding| sum.saturating_add(holding.bytes));
    let rest = capacity.saturating_sub(named);
    // Figures are rounded, and a driver keeps a little for itself.
    if rest.get() > capacity.get() / 100 {
        let at = holdings.iter().position(|holding| holding.by == HoldingKind::Free).unwrap_or(holdings.len());
        let by = if judgement.is_left_over { HoldingKind::NotToldApart } else { HoldingKind::Unknown };
        holdings.insert(at, Holding { by, bytes: rest });
    }
    holdings
}
