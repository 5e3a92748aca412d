//! Reads everything, fast or in full.

use std::collections::BTreeMap;
use std::path::PathBuf;

use crate::files::Files;
use crate::gpu::Cards;
use crate::process::proportional_bytes;
use crate::watched::Watched;
use crate::{Cause, Detail, Machine, Missing, Process, ProcessDetail, ProcessSample, Sample};

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
    leave_out: Option<u32>,
    share_up_to_bytes: u64,
    watched: Watched,
    /// Processes that are watched besides it.
    others: Vec<Watched>,
    /// The shares of memory that were read last, by process.
    shares: BTreeMap<u32, Result<u64, Missing>>,
}

impl Sampler {
    /// Opens the driver's library, which takes some tenths of a second where there is a driver, and finds the process.
    #[must_use]
    pub fn new(options: Options) -> Self {
        let mut files = Files::new(options.root);
        Self {
            cards: Cards::open(options.nvml.as_ref()),
            watched: Watched::find(&mut files, options.process, options.leave_out),
            files,
            leave_out: options.leave_out,
            share_up_to_bytes: options.share_up_to_bytes,
            others: Vec::new(),
            shares: BTreeMap::new(),
        }
    }

    /// Watches another process, or none, from now on; the driver's library stays open.
    pub fn watch(&mut self, process: Option<u32>) {
        self.watched = Watched::find(&mut self.files, process, self.leave_out);
    }

    /// Watches these processes too, and no others besides. Their shares of memory, which take long, are not read.
    pub fn watch_besides(&mut self, processes: &[u32]) {
        let mut before = std::mem::take(&mut self.others);
        for pid in processes {
            let known = before.iter().position(|watched| watched.pid() == Some(*pid));
            let watched = match known {
                Some(at) => before.swap_remove(at),
                None => Watched::find(&mut self.files, Some(*pid), self.leave_out),
            };
            self.others.push(watched);
        }
    }

    /// What changes quickly. Made to be called twice a second.
    pub fn fast(&mut self, now: f64) -> Sample {
        let ProcessSample { process, children, cgroup } = self.watched.read(&mut self.files);
        Sample {
            time: now,
            gpus: self.cards.read(),
            process,
            children,
            machine: Machine::read(&mut self.files).into(),
            cgroup,
            others: self.others.iter().map(|watched| watched.read(&mut self.files)).collect(),
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
        self.watched.look_around(&mut self.files, self.leave_out);
        for other in &mut self.others {
            other.look_around(&mut self.files, self.leave_out);
        }
        let mut processes: Vec<ProcessDetail> = Vec::new();
        if let Ok(watched) = self.watched.process(&mut self.files) {
            let children = self.watched.children().iter();
            let children: Vec<Process> = children.filter_map(|pid| Process::read(&mut self.files, *pid).ok()).collect();
            for process in std::iter::once(watched).chain(children) {
                let known = self.shares.get(&process.pid).cloned();
                let share = known.unwrap_or_else(|| self.share(&process));
                self.shares.insert(process.pid, share.clone());
                let proportional_bytes = share.into();
                processes.push(ProcessDetail { process, proportional_bytes });
            }
        }
        self.shares.retain(|pid, _| processes.iter().any(|detail| detail.process.pid == *pid));
        let owners = self.owners(&processes);
        Detail {
            time: now,
            processes,
            cards: self.cards.read_slow(&mut self.files, &owners, self.watched.pid()),
            cgroup_inactive_file_bytes: self.watched.inactive_file_bytes(&mut self.files).into(),
        }
    }

    /// Every process that is watched or below one that is, and which that is; the first one counts.
    fn owners(&self, processes: &[ProcessDetail]) -> BTreeMap<u32, u32> {
        let mut owners = BTreeMap::new();
        for (watched, below) in self.others.iter().filter_map(|other| Some((other.pid()?, other.children()))).rev() {
            owners.extend(std::iter::once(&watched).chain(below).map(|pid| (*pid, watched)));
        }
        if let Some(watched) = self.watched.pid() {
            owners.extend(processes.iter().map(|detail| (detail.process.pid, watched)));
        }
        owners
    }

    fn share(&mut self, process: &Process) -> Result<u64, Missing> {
        if process.resident_bytes > self.share_up_to_bytes {
            let detail = format!("process {} holds too much for its share to be found quickly", process.pid);
            return Err(Missing::new(Cause::NotAsked, detail));
        }
        proportional_bytes(&mut self.files, process.pid)
    }
}
