//! Kills for want of memory since a start began.

use std::path::Path;

use lowtide_sensors::HostSampler;

use crate::Evidence;
use crate::evidence::footprint::Footprint;
use crate::evidence::kernel_log::KernelLog;

const KERNEL_LOG: &str = "dev/kmsg";

/// What the system counts of kills, from before a start.
pub(crate) struct KillCounter {
    host: HostSampler,
    kills: Option<u64>,
    log: KernelLog,
}

impl KillCounter {
    /// `root` is where `proc`, `sys` and `dev` are, usually `/`.
    pub(crate) fn look(root: &Path) -> Self {
        let mut host = HostSampler::new(root.to_owned());
        let kills = host.oom_kills().ok();
        Self { host, kills, log: KernelLog::at_end(&root.join(KERNEL_LOG)) }
    }

    pub(crate) fn evidence(&mut self, footprint: &Footprint) -> Option<Evidence> {
        let kills = self.kills.zip(self.host.oom_kills().ok()).map_or(0, |(before, now)| now.saturating_sub(before));
        if kills > 0 {
            return Some(Evidence::ControlGroup { kills });
        }
        match self.log.killed(&footprint.pids) {
            Some(pid) => Some(Evidence::KernelLog { pid }),
            None => footprint.full(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// A machine of control groups of version 2, as its files tell.
    struct Machine(tempfile::TempDir);

    impl Machine {
        fn new(group: &str) -> Self {
            let machine = Self(tempfile::tempdir().unwrap());
            machine
                .file("proc/self/mountinfo", "30 1 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n");
            machine.file("proc/self/cgroup", &format!("0::{group}\n"));
            machine.file("dev/kmsg", "");
            machine
        }

        fn file(&self, place: &str, text: &str) {
            let path = self.0.path().join(place);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }

        /// `memory.events` counts what is below a group too, `memory.events.local` does not.
        fn kills(&self, group: &str, with_below: u64, own: u64) {
            let text = |kills| format!("low 0\nhigh 0\nmax 41\noom 5\noom_kill {kills}\noom_group_kill 0\n");
            self.file(&format!("sys/fs/cgroup{group}/memory.events"), &text(with_below));
            self.file(&format!("sys/fs/cgroup{group}/memory.events.local"), &text(own));
        }
    }

    #[test]
    fn kills_since_a_start_are_evidence() {
        let machine = Machine::new("/system.slice/job.scope");
        machine.kills("/system.slice", 9, 0);
        machine.kills("/system.slice/job.scope", 2, 2);
        let mut outside = KillCounter::look(machine.0.path());
        assert_eq!(outside.evidence(&Footprint::default()), None);
        // In a group that the command made for itself, as a container's does.
        machine.kills("/system.slice/job.scope", 3, 2);
        assert_eq!(outside.evidence(&Footprint::default()), Some(Evidence::ControlGroup { kills: 1 }));
        // Those of others, above and beside, are none.
        let mut outside = KillCounter::look(machine.0.path());
        machine.kills("/system.slice", 12, 0);
        assert_eq!(outside.evidence(&Footprint::default()), None);
    }

    #[test]
    fn without_a_count_the_kernels_log_is_read() {
        let machine = Machine::new("/");
        let mut outside = KillCounter::look(machine.0.path());
        machine.file("dev/kmsg", "3,1,2,-;Out of memory: Killed process 8 (python3) total-vm:9kB, anon-rss:8kB\n");
        let seen = Footprint { pids: vec![7, 8], ..Footprint::default() };
        assert_eq!(outside.evidence(&seen), Some(Evidence::KernelLog { pid: 8 }));
        assert_eq!(KillCounter::look(Path::new("/none")).evidence(&seen), None);
    }
}
