//! A sample as one of the watched processes sees it.

use lowtide_core::Bytes;
use lowtide_sensors::{Cgroup, Children, Detail, Gpu, GpuMemory, Machine, Process, Sample};

use super::free_memory::FreeMemory;
use super::history::History;

/// Memory of a process in RAM.
pub const RESIDENT: &str = "process_resident";
/// What of it is kept for a full device.
pub const RESERVE: &str = "reserve";
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

/// What cannot be had of a card, its driver's part included.
pub(crate) fn taken(memory: &GpuMemory) -> u64 {
    memory.used_bytes.saturating_add(memory.driver_bytes)
}

/// A sample as one of the watched processes sees it: itself, what it shares with others, and what is left to it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Viewpoint<'a> {
    pub(crate) process: Option<&'a Process>,
    pub(crate) children: Children,
    cgroup: Option<&'a Cgroup>,
    /// Page cache of the group that is given back first.
    idle: u64,
    machine: Option<&'a Machine>,
    cards: &'a [Gpu],
    detail: Option<&'a Detail>,
}

impl<'a> Viewpoint<'a> {
    /// That of the process that is watched first.
    pub(crate) fn first(sample: &'a Sample, detail: Option<&'a Detail>) -> Self {
        let idle = detail.and_then(|detail| detail.cgroup_inactive_file_bytes.known());
        Self {
            process: sample.process.known(),
            children: sample.children,
            cgroup: sample.cgroup.known(),
            idle: idle.copied().unwrap_or(0),
            machine: sample.machine.known(),
            cards: &sample.gpus.cards,
            detail,
        }
    }

    /// Those of all processes that are watched and there.
    pub(crate) fn all(sample: &'a Sample, detail: Option<&'a Detail>) -> impl Iterator<Item = Self> {
        let first = Self::first(sample, detail);
        let others = sample.others.iter().map(move |other| {
            let cgroup = other.cgroup.known();
            // Page cache is read of the first one's group alone.
            let is_same = cgroup.zip(first.cgroup).is_some_and(|(group, first)| group.path == first.path);
            let idle = if is_same { first.idle } else { 0 };
            Self { process: other.process.known(), children: other.children, cgroup, idle, ..first }
        });
        std::iter::once(first).chain(others).filter(|viewpoint| viewpoint.process.is_some())
    }

    /// Its number.
    pub(crate) fn pid(&self) -> Option<u32> {
        self.process.map(|process| process.pid)
    }

    /// In RAM, those below it included.
    pub(crate) fn resident(&self) -> Option<Bytes> {
        self.process.map(|process| Bytes(process.resident_bytes.saturating_add(self.children.resident_bytes)))
    }

    /// What is taken of the host: by the control group that limits the process, page cache that is given back first left
    /// out, else by all.
    fn host_used(&self) -> Option<u64> {
        let total = self.machine.map_or(u64::MAX, |machine| machine.total_bytes);
        let group = self.cgroup.filter(|group| group.limit_bytes.is_some_and(|limit| limit < total));
        match group.and_then(|group| group.used_bytes) {
            Some(used) => Some(used.saturating_sub(self.idle)),
            None => self.machine.map(Machine::used_bytes),
        }
    }

    /// What the host has left for the process: the machine, or its control group where that leaves less.
    pub(crate) fn host_free(&self) -> Option<Bytes> {
        let group = self.cgroup.and_then(|group| group.left_bytes).map(|left| left.saturating_add(self.idle));
        self.machine.map(|machine| machine.available_bytes).into_iter().chain(group).min().map(Bytes)
    }

    /// The memory of the card that the process is on, by the driver: of several the fullest. Where it is not known which
    /// they are, that of the only card.
    pub(crate) fn card(&self) -> Option<(u32, &'a GpuMemory)> {
        let known = |card: &'a Gpu| Some((card.index, card.memory.known()?));
        let own: Vec<u32> = self.own_on_cards().map(|(card, _)| card).collect();
        let cards = self.cards.iter().filter(|card| own.contains(&card.index));
        let fullest = cards.filter_map(known).min_by_key(|(_, memory)| memory.free_bytes);
        fullest.or_else(|| if let [card] = self.cards { known(card) } else { None })
    }

    /// What is still to be had for a process of which nothing else is known: on its card, else on the host.
    pub(crate) fn free(&self) -> Option<FreeMemory> {
        FreeMemory::on_card(self).or_else(|| FreeMemory::on_host(self.host_free(), None, None))
    }

    /// What it holds on each card, where the driver tells; the same card several times where several processes are there.
    fn own_on_cards(&self) -> impl Iterator<Item = (u32, Option<u64>)> + 'a {
        let pid = self.pid();
        let cards = self.detail.into_iter().flat_map(|detail| &detail.cards);
        cards.flat_map(move |card| {
            let processes = card.processes.known().into_iter().flatten();
            let own = processes.filter(move |process| pid.is_some() && process.of == pid);
            own.map(|process| (card.index, process.memory_bytes.known().copied()))
        })
    }

    /// Takes the figures that make curves into a history.
    pub(crate) fn record(&self, history: &mut History, time: f64) {
        let names: Vec<String> = self.cards.iter().map(|card| card_used(card.index)).collect();
        let held = self.own_on_cards().filter_map(|(_, bytes)| bytes).reduce(u64::saturating_add);
        let mut figures = vec![
            (RESIDENT, self.process.map(|process| process.resident_bytes)),
            (CHILDREN, self.process.map(|_| self.children.resident_bytes)),
            (ON_CARDS, held),
            (HOST_USED, self.host_used()),
        ];
        let cards = self.cards.iter().map(|card| card.memory.known().map(taken));
        figures.extend(names.iter().map(String::as_str).zip(cards));
        history.push(time, &figures);
    }
}
