//! A process that is watched: itself, those below it, and its control group.

use crate::cgroup::Levels;
use crate::files::Files;
use crate::process::{StartTime, descendants};
use crate::{Cause, Cgroup, Children, Missing, Process, ProcessSample};

/// A watched process, or none; what is found of it stays until somebody looks around again.
#[derive(Debug)]
pub(crate) struct Watched {
    pid: Option<u32>,
    /// Its time of start, by which a later process with its number is told apart.
    started: Result<StartTime, Missing>,
    children: Vec<u32>,
    levels: Result<Levels, Missing>,
}

impl Watched {
    /// Finds the process, its children without `leave_out`, and its control group; this process's own where there is none.
    pub(crate) fn find(files: &mut Files, pid: Option<u32>, leave_out: Option<u32>) -> Self {
        let started = match pid {
            Some(pid) => StartTime::read(files, pid),
            None => Err(Missing::new(Cause::NotAsked, "no process is watched")),
        };
        let levels = Err(Missing::new(Cause::NotAsked, "not looked for"));
        let mut watched = Self { pid, started, children: Vec::new(), levels };
        watched.look_around(files, leave_out);
        watched
    }

    /// Its number.
    pub(crate) fn pid(&self) -> Option<u32> {
        self.pid
    }

    /// Those below it, as they were found last.
    pub(crate) fn children(&self) -> &[u32] {
        &self.children
    }

    /// Finds the children and the control group anew.
    pub(crate) fn look_around(&mut self, files: &mut Files, leave_out: Option<u32>) {
        self.children.clear();
        let mut process = "self".to_owned();
        if let Some(pid) = self.pid
            && self.process(files).is_ok()
        {
            self.children = descendants(files, pid);
            self.children.retain(|child| Some(*child) != leave_out);
            process = pid.to_string();
        }
        self.levels = Levels::find(files, &process);
    }

    /// The process, unless it has ended and its number belongs to another.
    pub(crate) fn process(&self, files: &mut Files) -> Result<Process, Missing> {
        let started = self.started.clone()?;
        let pid = self.pid.ok_or_else(|| Missing::new(Cause::NotAsked, "no process is watched"))?;
        if StartTime::read(files, pid)? != started {
            return Err(Missing::new(Cause::Ended, format!("process {pid} is not there")));
        }
        Process::read(files, pid)
    }

    /// What changes quickly about it.
    pub(crate) fn read(&self, files: &mut Files) -> ProcessSample {
        let cgroup: Result<Cgroup, Missing> =
            self.levels.as_ref().map(|levels| levels.read(files)).map_err(Clone::clone);
        let process = self.process(files);
        let children = match &process {
            Ok(_) => Children::read(files, &self.children),
            Err(_) => Children::default(),
        };
        ProcessSample { process: process.into(), children, cgroup: cgroup.into() }
    }

    pub(crate) fn inactive_file_bytes(&self, files: &mut Files) -> Result<u64, Missing> {
        self.levels.as_ref().map_err(Clone::clone)?.inactive_file_bytes(files)
    }
}
