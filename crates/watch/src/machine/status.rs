//! The machine as it is now, in words, out of samples that others took.
//!
//! This crate measures nothing. Whoever owns a [`Board`](crate::Board) hands samples to it.

use lowtide_core::Bytes;
use lowtide_sensors::{Cause, Cgroup, Detail, Gpu, GpuMemory, Machine, Reading, Sample};
use serde::Serialize;

use super::history::History;

/// Memory of a process in RAM.
pub const RESIDENT: &str = "process_resident";
/// Memory of the processes below it in RAM.
pub const CHILDREN: &str = "children_resident";
/// What the process and those below it hold on all cards.
pub const ON_CARDS: &str = "process_on_cards";
/// What is taken of the host by all who share it.
pub const HOST_USED: &str = "host_used";
/// What is taken of a run's device by all programs.
pub const DEVICE_USED: &str = "device_used";

/// What is taken of a card by all programs.
pub(crate) fn card_used(index: u32) -> String {
    format!("gpu{index}_used")
}

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
    /// Tells a sample, with what was read last of what takes long. `bound` is the most memory that the watched process
    /// means to take, where it has a line; `word` is what it is called.
    #[must_use]
    pub fn of(sample: &Sample, detail: Option<&Detail>, word: &str, bound: Option<Bytes>) -> MachineStatus {
        let mut live = MachineStatus { host_limit: host_limit(sample), ..MachineStatus::default() };
        live.gauges.extend(sample.gpus.cards.iter().filter_map(card));
        live.gauges.extend(process(sample, word, bound));
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

/// Takes the figures of a sample that make curves into a history.
pub(crate) fn record(history: &mut History, time: f64, sample: &Sample, detail: Option<&Detail>) {
    let process = sample.process.known();
    let cards = &sample.gpus.cards;
    let names: Vec<String> = cards.iter().map(|card| card_used(card.index)).collect();
    let mut figures = vec![
        (RESIDENT, process.map(|process| process.resident_bytes)),
        (CHILDREN, process.map(|_| sample.children.resident_bytes)),
        (ON_CARDS, process.and(detail).and_then(held_on_cards)),
        (HOST_USED, host_used(sample, detail)),
    ];
    figures.extend(names.iter().zip(cards).map(|(name, card)| (name.as_str(), card.memory.known().map(taken))));
    history.push(time, &figures);
}

/// What the watched processes hold on all cards; nothing where the driver does not tell.
fn held_on_cards(detail: &Detail) -> Option<u64> {
    let watched = detail.cards.iter().filter_map(|card| card.processes.known()).flatten().filter(|it| it.watched);
    watched.filter_map(|process| process.memory_bytes.known().copied()).reduce(u64::saturating_add)
}

fn host_limit(sample: &Sample) -> Option<Bytes> {
    let machine = sample.machine.known().map(|machine| machine.total_bytes);
    let group = sample.cgroup.known().and_then(|group| group.limit_bytes);
    machine.into_iter().chain(group).min().map(Bytes)
}

/// What is taken of the host: by the control group that limits the process, page cache that is given back first left
/// out, else by all.
fn host_used(sample: &Sample, detail: Option<&Detail>) -> Option<u64> {
    let machine = sample.machine.known();
    let total = machine.map_or(u64::MAX, |machine| machine.total_bytes);
    let group = sample.cgroup.known().filter(|group| group.limit_bytes.is_some_and(|limit| limit < total));
    let idle = detail.and_then(|detail| detail.cgroup_inactive_file_bytes.known()).copied().unwrap_or(0);
    match group.and_then(|group| group.used_bytes) {
        Some(used) => Some(used.saturating_sub(idle)),
        None => machine.map(Machine::used_bytes),
    }
}

/// What cannot be had of a card, its driver's part included.
fn taken(memory: &GpuMemory) -> u64 {
    memory.used_bytes.saturating_add(memory.driver_bytes)
}

fn card(card: &Gpu) -> Option<Gauge> {
    let memory = card.memory.known()?;
    let told = [
        card.utilisation_percent.known().map(|percent| format!("{percent} % busy")),
        card.temperature_celsius.known().map(|degrees| format!("{degrees} °C")),
        Some(card.name.clone()).filter(|name| !name.is_empty()),
    ];
    let used = Bytes(taken(memory));
    let (name, of) = (format!("GPU {}", card.index), Some(Bytes(memory.total_bytes)));
    Some(Gauge { name, used, of, note: joined(told) })
}

fn process(sample: &Sample, word: &str, bound: Option<Bytes>) -> Option<Gauge> {
    let process = sample.process.known()?;
    let children = sample.children;
    let below = match children.processes {
        0 => None,
        1 => Some(format!("1 child with {}", Bytes(children.resident_bytes))),
        number => Some(format!("{number} children with {}", Bytes(children.resident_bytes))),
    };
    let told = [
        Some(format!("{}, process {}", process.name, process.pid)),
        Some(format!("at most {}", Bytes(process.peak_bytes))),
        below,
        Some(process.swap_bytes).filter(|swap| *swap > 0).map(|swap| format!("{} in swap", Bytes(swap))),
    ];
    let used = Bytes(process.resident_bytes);
    Some(Gauge { name: word.to_owned(), used, of: bound, note: joined(told) })
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
        Some(format!("{} available", Bytes(machine.available_bytes))),
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
