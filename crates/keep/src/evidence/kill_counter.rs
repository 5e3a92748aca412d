//! Kills for want of memory since a start began: those that the control group counts, and those in the kernel's log,
//! where this user may read it.

use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use lowtide_oom::{Source, scan};
use lowtide_sensors::HostSampler;
use rustix::fs::OFlags;

use crate::Evidence;
use crate::evidence::footprint::Footprint;

const KERNEL_LOG: &str = "dev/kmsg";
/// One record is never longer.
const RECORD: usize = 8192;
/// More records than a kernel keeps, so that reading ends even where they come as fast as they are read.
const RECORDS: usize = 1 << 20;

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
            return Some(Evidence::ControlGroup { kills, limit_bytes: self.host.group_limit() });
        }
        match self.log.killed(&footprint.pids) {
            Some((_, Source::Cgroup)) => {
                Some(Evidence::ControlGroup { kills: 1, limit_bytes: self.host.group_limit() })
            }
            Some((pid, _)) => Some(Evidence::KernelLog { pid }),
            None => footprint.full(),
        }
    }
}

/// The kernel's log from where it was opened.
#[derive(Debug)]
struct KernelLog(Option<File>);

impl KernelLog {
    /// Opens it at its end; `path` is usually `/dev/kmsg`.
    fn at_end(path: &Path) -> Self {
        let open = || {
            let waits_not = i32::try_from(OFlags::NONBLOCK.bits()).unwrap_or(0);
            let mut file = OpenOptions::new().read(true).custom_flags(waits_not).open(path)?;
            file.seek(SeekFrom::End(0))?;
            std::io::Result::Ok(file)
        };
        Self(open().ok())
    }

    /// The first of these processes that the kernel ended for want of memory since, and whose memory it was.
    fn killed(&mut self, pids: &[u32]) -> Option<(u32, Source)> {
        let file = self.0.as_mut()?;
        let mut record = vec![0; RECORD];
        for _ in 0..RECORDS {
            // Each read gives one record. What was overwritten meanwhile is an error, after which the next one comes.
            let size = match file.read(&mut record) {
                Ok(0) => return None,
                Ok(size) => size,
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => return None,
                Err(_) => continue,
            };
            if let Some(victim) = victim(&record[..size], pids) {
                return Some(victim);
            }
        }
        None
    }
}

fn victim(record: &[u8], pids: &[u32]) -> Option<(u32, Source)> {
    let told = scan(record).filter(|found| matches!(found.oom.source, Source::Kernel | Source::Cgroup));
    let mut victims = told.flat_map(|found| {
        let source = found.oom.source;
        found.oom.processes.into_iter().map(move |process| (process.pid, source))
    });
    victims.find(|(pid, _)| pids.contains(pid))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Write;

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
        assert_eq!(
            outside.evidence(&Footprint::default()),
            Some(Evidence::ControlGroup { kills: 1, limit_bytes: None })
        );
        // A limit of its own, below the machine's memory.
        machine.file("proc/meminfo", "MemTotal: 8388608 kB\nMemAvailable: 4194304 kB\n");
        machine.file("sys/fs/cgroup/system.slice/job.scope/memory.max", "1073741824\n");
        machine.file("sys/fs/cgroup/system.slice/job.scope/memory.current", "1073741824\n");
        let limited = Some(Evidence::ControlGroup { kills: 1, limit_bytes: Some(1 << 30) });
        assert_eq!(outside.evidence(&Footprint::default()), limited);
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

    #[test]
    fn only_what_came_since_counts() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        let line = |pid: u32| {
            format!("3,1,2,-;Out of memory: Killed process {pid} (python3) total-vm:9kB, anon-rss:8kB, file-rss:0kB\n")
        };
        file.write_all(line(7).as_bytes()).unwrap();
        let mut log = KernelLog::at_end(file.path());
        assert_eq!(log.killed(&[7, 8]), None);
        file.write_all(line(8).as_bytes()).unwrap();
        assert_eq!(log.killed(&[7, 8]), Some((8, Source::Kernel)));
        assert_eq!(KernelLog::at_end(Path::new("/none")).killed(&[7]), None);
    }
}
