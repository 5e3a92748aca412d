//! Reads everything, fast or in full.

use std::collections::BTreeMap;
use std::path::PathBuf;

use crate::cgroup::Levels;
use crate::files::Files;
use crate::gpu::Cards;
use crate::process::{StartTime, descendants, proportional_bytes};
use crate::{Cause, Cgroup, Children, Detail, Machine, Missing, Process, ProcessDetail, Sample};

/// What a [`Sampler`] looks at.
#[derive(Debug, Clone)]
pub struct Options {
    /// Where `proc` and `sys` are; default `/`.
    pub root: PathBuf,
    /// The process to watch, with its children; default none.
    pub process: Option<u32>,
    /// A process that does not count as a child, such as the one that samples; default none.
    pub leave_out: Option<u32>,
    /// The driver's library, where it is not to be looked for; default none.
    pub nvml: Option<PathBuf>,
    /// Processes with more than this in RAM are not asked for their share, in bytes; default 16 GiB, which take a
    /// quarter of a second. The process itself may have to wait meanwhile when it maps memory.
    pub share_up_to_bytes: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self { root: PathBuf::from("/"), process: None, leave_out: None, nvml: None, share_up_to_bytes: 16 << 30 }
    }
}

/// Reads cards, the watched process and its children, the machine and the control group.
///
/// It has no clock: whoever calls says what time it is. A figure that cannot be had is a [`Missing`], never an error,
/// and a watched process that ends is one too.
#[derive(Debug)]
pub struct Sampler {
    files: Files,
    cards: Cards,
    process: Option<u32>,
    leave_out: Option<u32>,
    share_up_to_bytes: u64,
    /// The watched process's time of start, by which a later process with its number is told apart.
    started: Result<StartTime, Missing>,
    children: Vec<u32>,
    /// The shares of memory that were read last, by process.
    shares: BTreeMap<u32, Result<u64, Missing>>,
    levels: Result<Levels, Missing>,
}

impl Sampler {
    /// Opens the driver's library, which takes some tenths of a second where there is a driver, and finds the process.
    #[must_use]
    pub fn new(options: Options) -> Self {
        let mut sampler = Self {
            cards: Cards::open(options.nvml.as_ref()),
            files: Files::new(options.root),
            process: None,
            leave_out: options.leave_out,
            share_up_to_bytes: options.share_up_to_bytes,
            started: Err(Missing::new(Cause::NotAsked, "no process is watched")),
            children: Vec::new(),
            shares: BTreeMap::new(),
            levels: Err(Missing::new(Cause::NotAsked, "not looked for")),
        };
        sampler.watch(options.process);
        sampler
    }

    /// Watches another process, or none, from now on; the driver's library stays open.
    pub fn watch(&mut self, process: Option<u32>) {
        self.process = process;
        self.started = match process {
            Some(pid) => StartTime::read(&mut self.files, pid),
            None => Err(Missing::new(Cause::NotAsked, "no process is watched")),
        };
        self.look_around();
    }

    /// What changes quickly. Made to be called twice a second.
    pub fn fast(&mut self, now: f64) -> Sample {
        let cgroup: Result<Cgroup, Missing> =
            self.levels.as_ref().map(|levels| levels.read(&mut self.files)).map_err(Clone::clone);
        let process = self.watched();
        let children = match &process {
            Ok(_) => Children::read(&mut self.files, &self.children),
            Err(_) => Children::default(),
        };
        Sample {
            time: now,
            gpus: self.cards.read(),
            process: process.into(),
            children,
            machine: Machine::read(&mut self.files).into(),
            cgroup: cgroup.into(),
        }
    }

    /// What takes long: shares of memory and process lists, 10 to 20 ms for each GiB that the processes hold. Finds new
    /// children and temperatures for [`Sampler::fast`] too.
    pub fn slow(&mut self, now: f64) -> Detail {
        self.shares.clear();
        self.lists(now)
    }

    /// As [`Sampler::slow`], but with the shares of memory that were read last; those of new processes are read. Takes
    /// about as long as a fast sample.
    pub fn lists(&mut self, now: f64) -> Detail {
        self.look_around();
        let mut processes: Vec<ProcessDetail> = Vec::new();
        if let Ok(watched) = self.watched() {
            let children: Vec<Process> =
                self.children.iter().filter_map(|pid| Process::read(&mut self.files, *pid).ok()).collect();
            for process in std::iter::once(watched).chain(children) {
                let known = self.shares.get(&process.pid).cloned();
                let share = known.unwrap_or_else(|| self.share(&process));
                self.shares.insert(process.pid, share.clone());
                let proportional_bytes = share.into();
                processes.push(ProcessDetail { process, proportional_bytes });
            }
        }
        self.shares.retain(|pid, _| processes.iter().any(|detail| detail.process.pid == *pid));
        let pids: Vec<u32> = processes.iter().map(|detail| detail.process.pid).collect();
        let inactive = self.levels.as_ref().map_err(Clone::clone);
        let inactive = inactive.and_then(|levels| levels.inactive_file_bytes(&mut self.files));
        Detail {
            time: now,
            processes,
            cards: self.cards.read_slow(&mut self.files, &pids),
            cgroup_inactive_file_bytes: inactive.into(),
        }
    }

    fn share(&mut self, process: &Process) -> Result<u64, Missing> {
        if process.resident_bytes > self.share_up_to_bytes {
            let detail = format!("process {} holds too much for its share to be found quickly", process.pid);
            return Err(Missing::new(Cause::NotAsked, detail));
        }
        proportional_bytes(&mut self.files, process.pid)
    }

    /// The watched process, unless it has ended and its number belongs to another.
    fn watched(&mut self) -> Result<Process, Missing> {
        let started = self.started.clone()?;
        let pid = self.process.ok_or_else(|| Missing::new(Cause::NotAsked, "no process is watched"))?;
        if StartTime::read(&mut self.files, pid)? != started {
            return Err(Missing::new(Cause::Ended, format!("process {pid} is not there")));
        }
        Process::read(&mut self.files, pid)
    }

    /// Finds the children and the control group anew.
    fn look_around(&mut self) {
        self.children.clear();
        let mut process = "self".to_owned();
        if let Some(pid) = self.process
            && self.watched().is_ok()
        {
            self.children = descendants(&mut self.files, pid);
            self.children.retain(|child| Some(*child) != self.leave_out);
            process = pid.to_string();
        }
        self.levels = Levels::find(&mut self.files, &process);
    }
}
