//! What is read once in a while, because it takes long.

use serde::{Deserialize, Serialize};

use crate::{Process, Reading};

/// What is read once in a while, because it takes long: shares of memory, and who is on the cards.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Detail {
    /// When, in the caller's seconds.
    pub time: f64,
    /// The watched process, then those below it by number. Empty where none is watched or it has ended.
    pub processes: Vec<ProcessDetail>,
    /// The processes on every card.
    pub cards: Vec<CardProcesses>,
    /// Page cache that the control group would give back first, and that its use includes.
    pub cgroup_inactive_file_bytes: Reading<u64>,
}

/// A process with its share of memory.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ProcessDetail {
    /// What `/proc` tells at once.
    #[serde(flatten)]
    pub process: Process,
    /// Memory in RAM where a page that `n` processes share counts for one `n`th of each. Denied for processes of
    /// others.
    pub proportional_bytes: Reading<u64>,
}

/// The processes on one card.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CardProcesses {
    /// The card.
    pub index: u32,
    /// The processes on it, largest first.
    pub processes: Reading<Vec<GpuProcess>>,
}

/// A process on a card.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GpuProcess {
    /// Its number as the driver knows it: inside a container it may be one that means nothing there.
    pub pid: u32,
    /// Its name; missing where the number means nothing here.
    pub name: Reading<String>,
    /// Its memory on this card.
    pub memory_bytes: Reading<u64>,
    /// Whether it is the watched process or one below it.
    pub watched: bool,
    /// The process that it is or is below, of the watched one and those besides it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub of: Option<u32>,
}
