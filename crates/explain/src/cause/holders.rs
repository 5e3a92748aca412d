//! Who holds memory of a device: this process, ranks of the same job, a desktop, others.

use lowtide_core::Bytes;
use lowtide_log::CardProcess;
use lowtide_oom::{Oom, ProcessUse};

use super::figures::CONTEXT;
use crate::log::Printout;
use crate::verdict::{Holder, Relation};

/// What this process holds, and the other processes.
pub(super) struct Holders {
    pub(super) own: Option<Bytes>,
    pub(super) others: Vec<Holder>,
    /// Whether it is a guess which of them is this process.
    pub(super) is_guess: bool,
}

/// Processes that a launcher starts have numbers next to each other.
const NEXT: u32 = 4;
/// The same where the log shows that several processes train together.
const NEXT_IN_GROUP: u32 = 64;
/// The same where each has begun threads of its own meanwhile, which have numbers too.
const OF_ONE_LAUNCH: u32 = 4096;

pub(super) fn holders(oom: &Oom, reserved: Option<Bytes>, log: &Printout) -> Holders {
    let Own { used, pid, is_guess } = own(oom, reserved);
    let is_of_log = |pid: &u32| !oom.processes.iter().any(|process| process.pid == *pid);
    let near = if log.is_group { NEXT_IN_GROUP } else { NEXT };
    let named = oom.processes.iter().filter(|process| Some(process.pid) != pid).map(|process| {
        let is_next = |other: &&ProcessUse| other.pid != process.pid && other.pid.abs_diff(process.pid) <= near;
        let runs_beside = log.is_group || log.cards.has_too_few_cards(log.switches.sharing.ranks_of_machine());
        let is_far = pid.is_some_and(|own| own.abs_diff(process.pid) > OF_ONE_LAUNCH);
        let is_like_own = runs_beside && !is_far && is_alike(process.used, used);
        let is_rank = oom.processes.iter().any(|other| is_next(&other)) || is_like_own;
        let relation = if is_rank { Relation::SameJob } else { Relation::Other };
        let known = log.cards.processes(oom.device).find(|known| known.pid == process.pid);
        Holder {
            name: known.map(|known| known.name.clone()).or_else(|| process.name.clone()),
            relation: if known.is_some_and(|known| known.is_graphics) { Relation::Desktop } else { relation },
            ..Holder::from(process)
        }
    });
    let mut others: Vec<Holder> = named.collect();
    let is_own = |process: &CardProcess| {
        let held = process.used_mib.map(Bytes::from_mib);
        !process.is_graphics && used.or(reserved).is_some_and(|own| is_alike(held, Some(own)))
    };
    others.extend(log.cards.processes(oom.device).filter(|process| is_of_log(&process.pid) && !is_own(process)).map(
        |process| Holder {
            pid: process.pid,
            name: Some(process.name.clone()),
            used_bytes: process.used_mib.map(Bytes::from_mib),
            relation: if process.is_graphics { Relation::Desktop } else { Relation::Other },
        },
    ));
    Holders { own: used, others, is_guess }
}

#[derive(Default)]
struct Own {
    used: Option<Bytes>,
    pid: Option<u32>,
    is_guess: bool,
}

/// What this process holds, and its number where the message names it as one of several.
///
/// Inside a container the driver does not tell a process which one it is, so a message names it among the others: the one
/// that holds a little more than the allocator.
fn own(oom: &Oom, reserved: Option<Bytes>) -> Own {
    // The figures are rounded to two decimals each.
    let holds_pool =
        |used: Bytes| reserved.is_none_or(|reserved| used.get().saturating_add(used.get() >> 7) >= reserved.get());
    if let Some(used) = oom.in_use {
        // A counter that a container cannot read is 0.
        return Own { used: Some(used).filter(|used| holds_pool(*used)), ..Own::default() };
    }
    let known = oom.processes.iter().filter_map(|process| Some((process.pid, process.used?)));
    if let [process] = &*oom.processes
        && let Some(used) = process.used
    {
        // It is named because it is on the card; what it holds besides is its libraries'.
        let is_own = holds_pool(used) && reserved.is_none_or(|reserved| reserved.get() >= used.get() / 4);
        return match is_own {
            true => Own { used: Some(used), pid: Some(process.pid), is_guess: reserved.is_none() },
            false => Own::default(),
        };
    }
    let Some(reserved) = reserved else {
        let largest = known.max_by_key(|(_, used)| *used);
        return Own { used: largest.map(|(_, used)| used), pid: largest.map(|(pid, _)| pid), is_guess: true };
    };
    let most = reserved.get().saturating_add((3 * CONTEXT).max(reserved.get() / 4));
    let nearest = known.filter(|(_, used)| holds_pool(*used) && used.get() <= most).min_by_key(|(_, used)| *used);
    Own { used: nearest.map(|(_, used)| used), pid: nearest.map(|(pid, _)| pid), is_guess: false }
}

/// Whether two processes hold about the same, as ranks do, or one of them no more than a context.
fn is_alike(theirs: Option<Bytes>, own: Option<Bytes>) -> bool {
    let Some(theirs) = theirs else { return false };
    let is_context = theirs.get() <= CONTEXT;
    is_context || own.is_some_and(|own| theirs.get().abs_diff(own.get()) <= own.get().max(theirs.get()) / 4)
}
