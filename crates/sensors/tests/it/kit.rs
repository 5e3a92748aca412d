//! Made-up `/proc` and `/sys` trees.

use std::fs;
use std::path::{Path, PathBuf};

use lowtide_sensors::{Options, Sampler};

/// A folder that looks like the root of a machine.
pub(crate) struct Tree {
    folder: tempfile::TempDir,
}

impl Tree {
    /// A machine of 64 GiB without anything else.
    pub(crate) fn new() -> Self {
        let tree = Self { folder: tempfile::tempdir().expect("a folder") };
        tree.write("proc/meminfo", "MemTotal:       67108864 kB\nMemFree:  1 kB\nMemAvailable:   33554432 kB\n");
        tree
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn write(&self, place: &str, text: &str) -> &Self {
        let path = self.path().join(place);
        fs::create_dir_all(path.parent().expect("a place in a folder")).expect("a folder");
        fs::write(path, text).expect("a file");
        self
    }

    pub(crate) fn remove(&self, place: &str) -> &Self {
        let path = self.path().join(place);
        if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) }.expect("it was there");
        self
    }

    /// A process; `kib` is its memory in RAM, its peak is twice that, its share half of it.
    pub(crate) fn process(&self, pid: u32, parent: u32, name: &str, kib: u64) -> &Self {
        let pages = kib * 1024 / rustix::param::page_size() as u64;
        let rollup = format!("0-1 ---p 0 0:0 0 [rollup]\nRss: {kib} kB\nPss: {} kB\n", kib / 2);
        self.write(
            &format!("proc/{pid}/status"),
            &format!(
                "Name:\t{name}\nState:\tS (sleeping)\nPPid:\t{parent}\n\
                 VmHWM:\t{} kB\nVmRSS:\t{kib} kB\nVmSwap:\t4 kB\n",
                2 * kib
            ),
        )
        .write(&format!("proc/{pid}/stat"), &stat(pid, parent, name, u64::from(pid) * 100))
        .write(&format!("proc/{pid}/statm"), &format!("999999 {pages} 3 4 0 5 0\n"))
        .write(&format!("proc/{pid}/comm"), &format!("{name}\n"))
        .write(&format!("proc/{pid}/smaps_rollup"), &rollup)
    }

    /// A sampler of this tree without cards.
    pub(crate) fn sampler(&self, process: Option<u32>) -> Sampler {
        let nvml = Some(PathBuf::from("/no/such/libnvidia-ml.so"));
        Sampler::new(Options {
            root: self.path().to_owned(),
            process,
            nvml,
            share_up_to_bytes: 1 << 30,
            ..Options::default()
        })
    }
}

/// A line of `/proc/PID/stat` up to the time of start.
pub(crate) fn stat(pid: u32, parent: u32, name: &str, started: u64) -> String {
    format!("{pid} ({name}) S {parent} 1 1 0 -1 4194304 1 0 0 0 5 6 0 0 20 0 1 0 {started} 1000 10\n")
}
