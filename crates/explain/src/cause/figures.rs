//! The figures of a device, one derived from the others where it is missing.

use lowtide_core::Bytes;
use lowtide_oom::{Oom, ProcessUse};

use crate::verdict::Holder;

/// A CUDA context with the kernels of a usual training takes up to this much.
pub(super) const CONTEXT: u64 = 1 << 30;

/// What the figures of a device say, one derived from the others where it is missing.
pub(super) struct Figures<'a> {
    pub(super) oom: &'a Oom,
    pub(super) tried: Bytes,
    pub(super) idle: Option<Bytes>,
    pub(super) others: Option<Bytes>,
    /// Whether what others hold may be this process's own, outside its allocator: the message does not say what it holds.
    pub(super) others_may_be_own: bool,
    pub(super) outside: Option<Bytes>,
    pub(super) holders: Vec<Holder>,
}

/// The figures of a message, and what follows from them.
pub(super) fn figures(oom: &Oom, tried: Bytes) -> Figures<'_> {
    let idle = oom.reserved_unallocated_or_derived();
    let reserved = oom.reserved.or_else(|| Some(oom.allocated?.saturating_add(idle?)));
    let (own, holders) = own_process(oom, reserved);
    let named = holders.iter().filter_map(|holder| holder.used_bytes).fold(Bytes::ZERO, Bytes::saturating_add);
    // What the figures leave over is others' too: containers do not see each other's processes.
    let left_over = own.and_then(|own| Some(oom.capacity?.saturating_sub(oom.free?).saturating_sub(own)));
    // Without a figure for this process, its context counts as a usual one.
    let beyond_context = || {
        let used = oom.capacity?.saturating_sub(oom.free?).saturating_sub(reserved?);
        Some(used.saturating_sub(Bytes(CONTEXT))).filter(|left| !left.is_zero())
    };
    let others_may_be_own = own.is_none() && named.is_zero();
    let others = match left_over {
        Some(left) => Some(left.max(named)),
        None if others_may_be_own => beyond_context(),
        None => Some(named),
    };
    let outside = oom.outside_allocator.or_else(|| Some(own?.saturating_sub(reserved?)));
    Figures { oom, tried, idle, others, others_may_be_own, outside, holders }
}

/// What this process holds, and the other processes.
///
/// Inside a container a process sees itself as `Process 20398`: the one that holds a little more than the allocator is
/// taken for this one.
fn own_process(oom: &Oom, reserved: Option<Bytes>) -> (Option<Bytes>, Vec<Holder>) {
    if oom.in_use.is_some() || oom.processes.is_empty() {
        return (oom.in_use, oom.processes.iter().map(Holder::from).collect());
    }
    let is_own = |process: &&ProcessUse| match (process.used, reserved) {
        // The figures are rounded to two decimals each.
        (Some(used), Some(reserved)) => {
            used.get() + (used.get() >> 7) >= reserved.get() && used.get() <= reserved.get().saturating_add(3 * CONTEXT)
        }
        _ => false,
    };
    let own = oom.processes.iter().filter(is_own).min_by_key(|process| process.used).map(|process| process.pid);
    let (ours, theirs): (Vec<_>, Vec<_>) = oom.processes.iter().partition(|process| Some(process.pid) == own);
    (ours.first().and_then(|process| process.used), theirs.into_iter().map(Holder::from).collect())
}

/// At least a twentieth of the device, and more than a driver keeps for itself.
pub(super) fn is_large(bytes: Bytes, figures: &Figures<'_>) -> bool {
    let part = figures.oom.capacity.map_or(0, |capacity| capacity.get() / 20);
    bytes.get() >= part.max(256 << 20)
}
