//! What is read at every tick.

use serde::{Deserialize, Serialize};

use crate::{Cgroup, Children, Gpus, Machine, Process, Reading};

/// What is read at every tick, in well under half a millisecond; each process besides the watched one adds a few small files.
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
    /// The processes that are watched besides it, in the order in which they were named.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub others: Vec<ProcessSample>,
}

/// What is read at every tick of one process.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ProcessSample {
    /// The process.
    pub process: Reading<Process>,
    /// The processes below it that were there when the last [`Detail`](crate::Detail) was taken.
    pub children: Children,
    /// Its control group.
    pub cgroup: Reading<Cgroup>,
}
