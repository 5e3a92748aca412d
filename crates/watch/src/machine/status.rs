//! The machine as it is now, in words, out of samples that others took.
//!
//! This crate measures nothing. Whoever owns a [`Board`](crate::Board) hands samples to it.

use lowtide_core::Bytes;
use lowtide_sensors::{Cause, Cgroup, Detail, Gpu, Machine, Reading, Sample};
use serde::Serialize;

use super::viewpoint::{Viewpoint, taken};

/// The most processes that are listed of the watched one and those below it, and of each card.
const LISTED: usize = 12;

/// One figure of the machine, such as the memory of a card.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Gauge {
    /// What it is: `GPU 0`, `host`, `this run`.
    pub name: String,
    /// What is in use.
    pub used: Bytes,
    /// Of how much, where there is a bound.
    pub of: Option<Bytes>,
    /// More about it: `81 %, 54 °C`.
    pub note: Option<String>,
}

/// A process that holds memory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Holder {
    /// Its number.
    pub pid: u32,
    /// The name of its program.
    pub name: String,
    /// What it holds, where that may be known.
    pub used: Option<Bytes>,
    /// The card it holds it on; none for memory of the host.
    pub card: Option<u32>,
    /// Whether it is the watched process or one below it.
    pub watched: bool,
}

/// The machine at a moment.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct MachineStatus {
    /// Figures with bars.
    pub gauges: Vec<Gauge>,
    /// Processes on the cards, by card, the largest first.
    pub on_cards: Vec<Holder>,
    /// The watched process and those below it, the largest first.
    pub holders: Vec<Holder>,
    /// Further processes that are not listed.
    pub unlisted: usize,
    /// What cannot be told, and why.
    pub notes: Vec<String>,
    /// The most memory of the host that the watched process can have: its control group's limit, else the machine's.
    pub host_limit: Option<Bytes>,
}

impl MachineStatus {
    /// Tells a sample, with what was read last of what takes long. `caption` is what a watched process is called, and the
    /// most memory that it means to take, where it has a limit.
    #[must_use]
    pub fn of(
        sample: &Sample,
        detail: Option<&Detail>,
        caption: impl Fn(u32) -> (String, Option<Bytes>),
    ) -> MachineStatus {
        let mut live = MachineStatus { host_limit: host_limit(sample), ..MachineStatus::default() };
        live.gauges.extend(sample.gpus.cards.iter().filter_map(card));
        live.gauges.extend(Viewpoint::all(sample, detail).filter_map(|it| process(&it, &caption)));
        live.gauges.extend(sample.cgroup.known().and_then(|group| limit(group, detail)));
        live.gauges.extend(sample.machine.known().map(host));
        live.gauges.extend(sample.machine.known().and_then(swap));
        live.notes.extend(notes(sample, detail));
        if let Some(detail) = detail {
            live.list_cards(detail);
            // The list may be older than the end of the watched process.
            if sample.process.known().is_some() {
                live.list_holders(detail);
            }
        }
        live
    }

    fn list_holders(&mut self, detail: &Detail) {
        let mut holders: Vec<Holder> = detail.processes.iter().map(holder).collect();
        holders.sort_by_key(|holder| std::cmp::Reverse(holder.used));
        self.unlisted += holders.len().saturating_sub(LISTED);
        holders.truncate(LISTED);
        self.holders = holders;
    }

    fn list_cards(&mut self, detail: &Detail) {
        for card in &detail.cards {
            let found = card.processes.known().map_or(&[][..], Vec::as_slice);
            self.unlisted += found.len().saturating_sub(LISTED);
            self.on_cards.extend(found.iter().take(LISTED).map(|process| Holder {
                pid: process.pid,
                name: process.name.known().cloned().unwrap_or_default(),
                used: process.memory_bytes.known().copied().map(Bytes),
                card: Some(card.index),
                watched: process.watched,
            }));
        }
    }
}

fn host_limit(sample: &Sample) -> Option<Bytes> {
    let machine = sample.machine.known().map(|machine| machine.total_bytes);
    let group = sample.cgroup.known().and_then(|group| group.limit_bytes);
    machine.into_iter().chain(group).min().map(Bytes)
}

fn card(card: &Gpu) -> Option<Gauge> {
    let memory = card.memory.known()?;
    let told = [
        Some(format!("{} free", Bytes(memory.free_bytes))),
        card.utilisation_percent.known().map(|percent| format!("{percent} % busy")),
        card.temperature_celsius.known().map(|degrees| format!("{degrees} °C")),
        Some(card.name.clone()).filter(|name| !name.is_empty()),
    ];
    let used = Bytes(taken(memory));
    let (name, of) = (format!("GPU {}", card.index), Some(Bytes(memory.total_bytes)));
    Some(Gauge { name, used, of, note: joined(told) })
}

fn process(viewpoint: &Viewpoint<'_>, caption: impl Fn(u32) -> (String, Option<Bytes>)) -> Option<Gauge> {
    let Viewpoint { process, children, .. } = *viewpoint;
    let process = process?;
    let below = match children.processes {
        0 => None,
        1 => Some(format!("1 child with {}", Bytes(children.resident_bytes))),
        number => Some(format!("{number} children with {}", Bytes(children.resident_bytes))),
    };
    let told = [
        Some(format!("{}, process {}", process.name, process.pid)),
        Some(format!("peak {}", Bytes(process.peak_bytes))),
        below,
        Some(process.swap_bytes).filter(|swap| *swap > 0).map(|swap| format!("{} in swap", Bytes(swap))),
    ];
    let used = Bytes(process.resident_bytes);
    let (name, of) = caption(process.pid);
    Some(Gauge { name, used, of, note: joined(told) })
}

/// The control group, where it has a limit.
fn limit(group: &Cgroup, detail: Option<&Detail>) -> Option<Gauge> {
    let (used, limit) = (group.used_bytes?, group.limit_bytes?);
    let cache = detail.and_then(|detail| detail.cgroup_inactive_file_bytes.known()).filter(|bytes| **bytes > 0);
    let left = group.left_bytes.filter(|left| *left < limit.saturating_sub(used));
    let told = [
        cache.map(|bytes| format!("{} of it page cache that is given back first", Bytes(*bytes))),
        left.map(|left| format!("only {} left, because a group above is fuller", Bytes(left))),
    ];
    Some(Gauge { name: "limit of its group".to_owned(), used: Bytes(used), of: Some(Bytes(limit)), note: joined(told) })
}

fn host(machine: &Machine) -> Gauge {
    let waited = machine.pressure.known().map(|pressure| pressure.some.last_10s_percent);
    let told = [
        Some(format!("{} free", Bytes(machine.available_bytes))),
        waited.filter(|share| *share >= 0.1).map(|share| format!("work waits for memory {share:.1} % of the time")),
    ];
    Gauge {
        name: "host".to_owned(),
        used: Bytes(machine.used_bytes()),
        of: Some(Bytes(machine.total_bytes)),
        note: joined(told),
    }
}

fn swap(machine: &Machine) -> Option<Gauge> {
    let of = Some(Bytes(machine.swap_total_bytes));
    let used = Bytes(machine.swap_used_bytes);
    (machine.swap_used_bytes > 0).then(|| Gauge { name: "swap".to_owned(), used, of, note: None })
}

fn holder(detail: &lowtide_sensors::ProcessDetail) -> Holder {
    let process = &detail.process;
    // The share counts what several use once; where it may not be read, all that is in RAM.
    let used = detail.proportional_bytes.known().copied().unwrap_or(process.resident_bytes);
    Holder { pid: process.pid, name: process.name.clone(), used: Some(Bytes(used)), card: None, watched: true }
}

fn notes(sample: &Sample, detail: Option<&Detail>) -> Vec<String> {
    let mut notes = Vec::new();
    match &sample.gpus.missing {
        Some(missing) if missing.cause == Cause::Absent => notes.push("No NVIDIA card is here.".to_owned()),
        Some(missing) => notes.push(format!("Cards cannot be seen: {missing}.")),
        None => {}
    }
    for card in &sample.gpus.cards {
        if let Reading::Missing(missing) = &card.memory {
            notes.push(format!("GPU {}: {missing}.", card.index));
        }
    }
    if let Reading::Missing(missing) = &sample.machine {
        notes.push(format!("The memory of the machine cannot be read: {missing}."));
    }
    let denied = |it: &&lowtide_sensors::ProcessDetail| {
        it.proportional_bytes.missing().is_some_and(|missing| missing.cause == Cause::Denied)
    };
    if let Some(held) = detail.into_iter().flat_map(|detail| &detail.processes).find(denied) {
        notes.push(format!(
            "Process {} is another user's: what it shares with others cannot be told apart, so pages count as its own.",
            held.process.pid
        ));
    }
    notes
}

fn joined(told: impl IntoIterator<Item = Option<String>>) -> Option<String> {
    let told: Vec<String> = told.into_iter().flatten().collect();
    (!told.is_empty()).then(|| told.join(", "))
}
