//! What memory there is and who holds it, sampled.
//!
//! **What it does.** A [`Sampler`] reads NVIDIA cards (by NVML, loaded at run time), one process and its children, the
//! machine and its control group. The fast part, a [`Sample`], takes well under half a millisecond; the slow part, a
//! [`Detail`], walks page tables and process lists. A [`Schedule`] says when either is due.
//!
//! **What it leaves out.** It has no clock, no threads, no network and no LibTorch, and it prints nothing. There are no
//! errors either: a figure that cannot be had is a [`Missing`] in its place, with the reason. A machine without a card
//! is normal.
//!
//! **Where to start reading.** [`Sampler`], then [`Sample`] and [`Detail`] for what comes out of it.

mod cgroup;
mod detail;
mod files;
mod gpu;
mod host;
mod machine;
mod process;
mod reading;
mod sample;
mod sampler;
mod schedule;
mod watched;

pub use cgroup::{Cgroup, CgroupVersion};
pub use detail::{CardProcesses, Detail, GpuProcess, ProcessDetail};
pub use gpu::{Gpu, GpuMemory, Gpus};
pub use host::{Host, HostSampler};
pub use machine::{Machine, Pressure, Stall};
pub use process::{Children, Process, processes_below};
pub use reading::{Cause, Missing, Reading};
pub use sample::{ProcessSample, Sample};
pub use sampler::{Options, Sampler};
pub use schedule::{Due, Schedule};
