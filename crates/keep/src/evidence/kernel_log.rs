//! The kernel's log since a moment, where this user may read it.

use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use lowtide_oom::{Source, scan};
use rustix::fs::OFlags;

/// One record is never longer.
const RECORD: usize = 8192;
/// More records than a kernel keeps, so that reading ends even where they come as fast as they are read.
const RECORDS: usize = 1 << 20;

/// The kernel's log from where it was opened.
#[derive(Debug)]
pub(crate) struct KernelLog(Option<File>);

impl KernelLog {
    /// Opens it at its end; `path` is usually `/dev/kmsg`.
    pub(crate) fn at_end(path: &Path) -> Self {
        let open = || {
            let waits_not = i32::try_from(OFlags::NONBLOCK.bits()).unwrap_or(0);
            let mut file = OpenOptions::new().read(true).custom_flags(waits_not).open(path)?;
            file.seek(SeekFrom::End(0))?;
            std::io::Result::Ok(file)
        };
        Self(open().ok())
    }

    /// The first of these processes that the kernel ended for want of memory since.
    pub(crate) fn killed(&mut self, pids: &[u32]) -> Option<u32> {
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
            if let Some(pid) = victim(&record[..size], pids) {
                return Some(pid);
            }
        }
        None
    }
}

fn victim(record: &[u8], pids: &[u32]) -> Option<u32> {
    let told = scan(record).filter(|found| matches!(found.oom.source, Source::Kernel | Source::Cgroup));
    told.flat_map(|found| found.oom.processes).map(|process| process.pid).find(|pid| pids.contains(pid))
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

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
        assert_eq!(log.killed(&[7, 8]), Some(8));
        assert_eq!(KernelLog::at_end(Path::new("/none")).killed(&[7]), None);
    }
}
