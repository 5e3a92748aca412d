//! The figures of a device, one derived from the others where it is missing.

use lowtide_core::Bytes;
use lowtide_oom::Oom;

use super::holders::holders;
use crate::log::Printout;
use crate::verdict::{Holder, Relation};

/// A CUDA context with the kernels of a usual training takes up to this much.
pub(super) const CONTEXT: u64 = 1 << 30;

/// What the figures of a device say, one derived from the others where it is missing.
pub(super) struct Figures<'a> {
    pub(super) oom: &'a Oom,
    pub(super) tried: Bytes,
    pub(super) idle: Option<Bytes>,
    pub(super) others: Option<Bytes>,
    /// Of that, what ranks of the same job hold with nothing but a context.
    pub(super) contexts: Bytes,
    /// How it is known that this is held by others.
    pub(super) basis: Basis,
    pub(super) outside: Option<Bytes>,
    pub(super) holders: Vec<Holder>,
}

/// How it is known what others hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Basis {
    /// The message says what this process holds, or names the others.
    Counted,
    /// It is what is left over beyond a usual context: it may be this process's own, outside its allocator.
    LeftOver,
}

/// The figures of a message, and what follows from them.
pub(super) fn figures<'a>(oom: &'a Oom, tried: Bytes, log: &Printout) -> Figures<'a> {
    let idle = oom.reserved_unallocated_or_derived();
    let reserved = oom.reserved.or_else(|| Some(oom.allocated?.saturating_add(idle?))).or(oom.allocated);
    let found = holders(oom, reserved, log);
    let sum = |wanted: &dyn Fn(&Holder) -> bool| {
        let used = found.others.iter().filter(|holder| wanted(holder)).filter_map(|holder| holder.used_bytes);
        used.fold(Bytes::ZERO, Bytes::saturating_add)
    };
    let named = sum(&|holder| oom.processes.iter().any(|process| process.pid == holder.pid));
    let is_context = |holder: &Holder| holder.used_bytes.is_some_and(|used| used.get() <= CONTEXT);
    let contexts = sum(&|holder| holder.relation == Relation::SameJob && is_context(holder));
    // What the figures leave over is others' too: containers do not see each other's processes.
    let left_over = found.own.and_then(|own| Some(oom.capacity?.saturating_sub(oom.free?).saturating_sub(own)));
    // Without a figure for this process, its context counts as a usual one.
    let beyond_context = || {
        let used = oom.capacity?.saturating_sub(oom.free?).saturating_sub(reserved?);
        Some(used.saturating_sub(Bytes(CONTEXT))).filter(|left| !left.is_zero())
    };
    let (others, basis) = match left_over {
        Some(left) => (Some(left.max(named)), if found.is_guess { Basis::LeftOver } else { Basis::Counted }),
        None if named.is_zero() => (beyond_context(), Basis::LeftOver),
        // A single process that is named may be this one, with libraries that hold most of it.
        None if oom.in_use.is_none() && oom.processes.len() == 1 => (Some(named), Basis::LeftOver),
        None => (Some(named), Basis::Counted),
    };
    let outside = oom.outside_allocator.or_else(|| Some(found.own?.saturating_sub(reserved?)));
    Figures { oom, tried, idle, others, contexts, basis, outside, holders: found.others }
}

impl Figures<'_> {
    /// In use on the device and not by this process's allocator, whoever holds it.
    pub(super) fn beyond_allocator(&self) -> Option<Bytes> {
        let reserved = self.oom.reserved.or_else(|| Some(self.oom.allocated?.saturating_add(self.idle?)))?;
        Some(self.oom.capacity?.saturating_sub(self.oom.free?).saturating_sub(reserved))
    }

    /// At least so many parts of the device.
    pub(super) fn is_part(&self, bytes: Bytes, parts: u64) -> bool {
        self.oom.capacity.is_some_and(|capacity| bytes.get() >= capacity.get() / parts)
    }

    /// At least a twentieth of the device, and more than a driver keeps for itself; where it is counted, a fortieth.
    pub(super) fn is_large(&self, bytes: Bytes) -> bool {
        let parts = if self.basis == Basis::Counted { 40 } else { 20 };
        bytes.get() >= 256 << 20 && (self.oom.capacity.is_none() || self.is_part(bytes, parts))
    }

    /// What others hold that could be the reason: contexts of a job's own ranks are its need, unless they are very many.
    pub(super) fn blamed(&self) -> Bytes {
        let others = self.others.unwrap_or_default();
        let contexts = if self.is_part(self.contexts, 8) { Bytes::ZERO } else { self.contexts };
        Some(others.saturating_sub(contexts)).filter(|others| self.is_large(*others)).unwrap_or_default()
    }

    /// Whether nine tenths of the device are this process's.
    pub(super) fn is_ours(&self) -> bool {
        let held = self.oom.in_use.or(self.oom.reserved).or(self.oom.allocated);
        held.is_some_and(|held| self.is_part(Bytes(held.get() / 9), 10))
    }

    /// Whether all that others hold is held by ranks of the same job, as far as they are named.
    pub(super) fn is_same_job(&self) -> bool {
        !self.holders.is_empty() && self.holders.iter().all(|holder| holder.relation == Relation::SameJob)
    }
}
