//! The memory of the host that this process may use, without a look at cards and other processes.

use std::path::PathBuf;

use crate::cgroup::Levels;
use crate::files::Files;
use crate::{Machine, Missing};

/// The memory of the host at one moment, in bytes: of the control group that limits this process, or of the machine
/// where none limits it further.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Host {
    /// Taken by all that share it; page cache that is given back first left out.
    pub used_bytes: u64,
    /// All there is.
    pub total_bytes: u64,
}

/// Reads [`Host`].
#[derive(Debug)]
pub struct HostSampler {
    files: Files,
    levels: Result<Levels, Missing>,
}

impl HostSampler {
    /// `root` is where `proc` and `sys` are, usually `/`.
    #[must_use]
    pub fn new(root: PathBuf) -> Self {
        let mut files = Files::new(root);
        let levels = Levels::find(&mut files, "self");
        Self { files, levels }
    }

    /// The memory as it is now.
    ///
    /// # Errors
    ///
    /// The machine does not tell.
    pub fn read(&mut self) -> Result<Host, Missing> {
        let machine = Machine::read(&mut self.files)?;
        Ok(self
            .limited(machine.total_bytes)
            .unwrap_or(Host { used_bytes: machine.used_bytes(), total_bytes: machine.total_bytes }))
    }

    /// How many processes of this process's control group the kernel has ended for want of memory.
    ///
    /// # Errors
    ///
    /// There is no control group, or its kernel does not count.
    pub fn oom_kills(&mut self) -> Result<u64, Missing> {
        self.levels.as_ref().map_err(Clone::clone)?.oom_kills(&mut self.files)
    }

    /// What this process's control group allows, in bytes, where that is less than the machine has.
    pub fn group_limit(&mut self) -> Option<u64> {
        let machine = Machine::read(&mut self.files).ok()?;
        self.limited(machine.total_bytes).map(|host| host.total_bytes)
    }

    /// The group that leaves less than the machine has, where there is one.
    fn limited(&mut self, machine: u64) -> Option<Host> {
        let levels = self.levels.as_ref().ok()?;
        let group = levels.read(&mut self.files);
        let total_bytes = group.limit_bytes.filter(|limit| *limit < machine)?;
        let idle = levels.inactive_file_bytes(&mut self.files).unwrap_or(0);
        Some(Host { used_bytes: group.used_bytes?.saturating_sub(idle), total_bytes })
    }
}
