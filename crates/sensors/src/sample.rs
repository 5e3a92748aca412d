//! What is read at every tick.

use serde::{Deserialize, Serialize};

use crate::{Cgroup, Children, Gpus, Machine, Process, Reading};

/// What is read at every tick, in well under half a millisecond.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// When, in the caller's seconds.
    pub time: f64,
    /// The NVIDIA cards.
    pub gpus: Gpus,
    /// The watched process.
    pub process: Reading<Process>,
    /// The processes below it that were there when the last [`Detail`](crate::Detail) was taken.
    pub children: Children,
    /// The whole machine.
    pub machine: Reading<Machine>,
    /// The control group of the watched process, or of this one.
    pub cgroup: Reading<Cgroup>,
}

impl Sample {
    /// The figures in bytes that make curves, by name. A sampler's samples all have the same names in the same order,
    /// as a [`Recorder`](crate::Recorder) wants them; what is missing is `None`.
    pub fn figures(&self) -> Vec<(String, Option<u64>)> {
        let mut figures = Vec::with_capacity(2 * self.gpus.cards.len() + 6);
        for card in &self.gpus.cards {
            let memory = card.memory.known();
            figures.push((format!("gpu{}_used", card.index), memory.map(|memory| memory.used_bytes)));
            figures.push((format!("gpu{}_free", card.index), memory.map(|memory| memory.free_bytes)));
        }
        let machine = self.machine.known();
        let process = self.process.known();
        let host = [
            ("system_used", machine.map(Machine::used_bytes)),
            ("swap_used", machine.map(|machine| machine.swap_used_bytes)),
            ("process_resident", process.map(|process| process.resident_bytes)),
            ("children_resident", process.map(|_| self.children.resident_bytes)),
            ("cgroup_used", self.cgroup.known().and_then(|group| group.used_bytes)),
            ("cgroup_left", self.cgroup.known().and_then(|group| group.left_bytes)),
        ];
        figures.extend(host.map(|(name, bytes)| (name.to_owned(), bytes)));
        figures
    }
}
