//! What there is on a machine, read without starting anything.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use lowtide_core::Bytes;
use lowtide_sensors::{CardProcesses, Cgroup, Gpus, Host, HostSampler, Machine, Options, Reading, Sampler};
use serde::Serialize;

use super::variables::{ALLOCATOR, meant};

/// One part in so many of the machine's memory that a reserve leaves, as the Python package has it.
const LEFT: u64 = 20;

/// Where to look.
pub(crate) struct HostEnvironment<'a> {
    /// Where `/proc`, `/sys` and installations are.
    pub(crate) root: PathBuf,
    /// Lowtide's own engine, where there is one.
    pub(crate) engine: Option<PathBuf>,
    /// A variable of the environment.
    pub(crate) variable: &'a dyn Fn(&str) -> Option<String>,
    /// The names of all variables.
    pub(crate) names: Vec<String>,
}

/// What there is on a machine.
#[derive(Debug, Serialize)]
pub(crate) struct Facts {
    pub(crate) gpus: Gpus,
    pub(crate) gpu_processes: Vec<CardProcesses>,
    /// The version of NVIDIA's driver, as `580.65.06`.
    pub(crate) driver: Option<String>,
    /// What `CUDA_VISIBLE_DEVICES` says, where it is set.
    pub(crate) visible: Option<String>,
    /// The LibTorch that Lowtide's own engine is linked with.
    pub(crate) own_torch: Option<Torch>,
    /// Every PyTorch that was found.
    pub(crate) torch: Vec<Torch>,
    /// The variables of PyTorch's allocator that are set.
    pub(crate) allocator: Vec<(String, String)>,
    /// Variables that look as if they were meant for it, or for CUDA.
    pub(crate) misspelt: Vec<String>,
    pub(crate) machine: Reading<Machine>,
    pub(crate) cgroup: Reading<Cgroup>,
    /// What is left to the control group where it has a limit; page cache that is given back first counts as left.
    pub(crate) cgroup_left_bytes: Option<u64>,
    pub(crate) shared_memory_bytes: Option<u64>,
    pub(crate) open_files: Option<Limit>,
    /// The most host memory that a process can pin for PyTorch to fall back on; none without a card, or where PyTorch cannot.
    pub(crate) reserve_bytes: Option<u64>,
    /// The addresses that a process may use, in bytes: `ulimit -v`.
    pub(crate) address_space: Option<Limit>,
    /// NVIDIA's cards on the bus, with a driver or without.
    pub(crate) cards_on_the_bus: usize,
    /// How the kernel promises memory: 0 by guess, 1 always, 2 never more than there is.
    pub(crate) overcommit: Option<u8>,
}

/// An installed PyTorch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Torch {
    pub(crate) folder: PathBuf,
    pub(crate) version: String,
    /// The CUDA it was built for.
    pub(crate) cuda: Option<String>,
    /// The ROCm it was built for.
    pub(crate) hip: Option<String>,
}

impl Torch {
    /// Whether its allocator can fall back on a pool of other memory: for CUDA from 2.8 on.
    fn has_reserve(&self) -> bool {
        let mut parts = self.version.split(['.', '+']).map(|part| part.parse::<u32>().unwrap_or(0));
        let version = (parts.next().unwrap_or(0), parts.next().unwrap_or(0));
        self.cuda.is_some() && version >= (2, 8)
    }
}

/// How much a process may have of something; `None` where there is no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(crate) struct Limit {
    pub(crate) soft: Option<u64>,
    pub(crate) hard: Option<u64>,
}

impl Facts {
    pub(crate) fn gather(around: &HostEnvironment<'_>) -> Self {
        // A machine that is made up has the driver's library in its root, or none.
        let nvml = (around.root != Path::new("/")).then(|| around.root.join("libnvidia-ml.so.1"));
        let mut sampler = Sampler::new(Options { root: around.root.clone(), nvml, ..Options::default() });
        let sample = sampler.fast(0.0);
        let read = |place: &str| fs::read_to_string(around.root.join(place)).ok();
        let set = |name: &&str| Some(((*name).to_owned(), (around.variable)(name)?));
        let limits = read("proc/self/limits").unwrap_or_default();
        let group_limit = sample.cgroup.known().and_then(|group| group.limit_bytes);
        let host = HostSampler::new(around.root.clone()).read().ok();
        let torch = installed(around);
        let left = |host: Host| host.total_bytes.saturating_sub(host.used_bytes);
        let can_fall_back = !sample.gpus.cards.is_empty() && torch.iter().any(Torch::has_reserve);
        let room = host.map(|host| left(host).saturating_sub(host.total_bytes / LEFT));
        Self {
            reserve_bytes: room.filter(|_| can_fall_back),
            gpus: sample.gpus,
            gpu_processes: sampler.slow(0.0).cards,
            driver: read("proc/driver/nvidia/version").and_then(|text| driver(&text)),
            visible: (around.variable)("CUDA_VISIBLE_DEVICES"),
            own_torch: around.engine.as_deref().and_then(linked_with),
            torch,
            allocator: ALLOCATOR.iter().filter_map(set).collect(),
            misspelt: around.names.iter().filter(|name| meant(name).is_some()).cloned().collect(),
            cgroup_left_bytes: host.filter(|host| Some(host.total_bytes) == group_limit).map(left),
            shared_memory_bytes: read("proc/mounts")
                .and_then(|text| shared_memory(&text, sample.machine.known().map(|machine| machine.total_bytes))),
            machine: sample.machine,
            cgroup: sample.cgroup,
            open_files: limit(&limits, "Max open files"),
            address_space: limit(&limits, "Max address space"),
            cards_on_the_bus: on_the_bus(&around.root),
            overcommit: read("proc/sys/vm/overcommit_memory").and_then(|text| text.trim().parse().ok()),
        }
    }

    /// Who holds memory of a card, in words, the largest first.
    pub(crate) fn holders(&self, card: u32) -> Vec<String> {
        let listed = self.gpu_processes.iter().find(|processes| processes.index == card);
        let processes = listed.and_then(|listed| listed.processes.known());
        let told = processes.into_iter().flatten().map(|process| {
            let name = process.name.known().map_or("outside of this container", String::as_str);
            let held =
                process.memory_bytes.known().map_or("an unknown amount".to_owned(), |bytes| Bytes(*bytes).to_string());
            format!("{held} held by process {} ({name})", process.pid)
        });
        told.collect()
    }
}

/// `NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.65.06  Sun Jul 27 ...`
fn driver(text: &str) -> Option<String> {
    let version = |word: &&str| word.contains('.') && word.chars().all(|it| it.is_ascii_digit() || it == '.');
    text.lines().next()?.split_whitespace().find(version).map(str::to_owned)
}

/// The size of `/dev/shm`: what it was mounted with, or half of the RAM.
fn shared_memory(mounts: &str, ram: Option<u64>) -> Option<u64> {
    let mount = mounts
        .lines()
        .map(|line| line.split(' ').collect::<Vec<_>>())
        .rfind(|words| words.get(1) == Some(&"/dev/shm"))?;
    let size = mount.get(3)?.split(',').find_map(|option| option.strip_prefix("size="));
    let Some(size) = size else { return ram.map(|ram| ram / 2) };
    if let Some(percent) = size.strip_suffix('%') {
        return Some(ram? / 100 * percent.parse::<u64>().ok()?);
    }
    let digits = size.trim_end_matches(|it: char| !it.is_ascii_digit());
    let unit = match &size[digits.len()..] {
        "" => 1,
        "k" => 1 << 10,
        "m" => 1 << 20,
        "g" => 1 << 30,
        _ => return None,
    };
    digits.parse::<u64>().ok()?.checked_mul(unit)
}

/// `Max open files            1024                 1048576              files`
fn limit(limits: &str, name: &str) -> Option<Limit> {
    let line = limits.lines().find_map(|line| line.strip_prefix(name))?;
    let mut words = line.split_whitespace().map(|word| word.parse().ok());
    Some(Limit { soft: words.next()?, hard: words.next()? })
}

/// NVIDIA's display adapters and accelerators among the devices of the PCI bus.
fn on_the_bus(root: &Path) -> usize {
    let devices = fs::read_dir(root.join("sys/bus/pci/devices")).into_iter().flatten().flatten();
    let is_card = |device: fs::DirEntry| {
        let says = |name: &str, start: &str| {
            fs::read_to_string(device.path().join(name)).is_ok_and(|text| text.starts_with(start))
        };
        says("vendor", "0x10de") && says("class", "0x03")
    };
    devices.filter(|device| device.file_type().is_ok()).map(is_card).filter(|is_card| *is_card).count()
}

/// The LibTorch whose folder a program has in it for its loader to look in.
fn linked_with(engine: &Path) -> Option<Torch> {
    const PLACE: &[u8] = b"/torch/lib";
    let program = fs::read(engine).ok()?;
    memchr::memmem::find_iter(&program, PLACE).find_map(|at| {
        // Folders stand one after the other, with colons between and a zero byte around them.
        let start = memchr::memrchr2(0, b':', &program[..at])? + 1;
        let folder = std::str::from_utf8(&program[start..at + PLACE.len()]).ok()?;
        if folder.starts_with('/') { torch(Path::new(folder).parent()?) } else { None }
    })
}

/// Every PyTorch that a person here would meet first.
fn installed(around: &HostEnvironment<'_>) -> Vec<Torch> {
    let below = |path: &str| around.root.join(path.trim_start_matches('/'));
    let mut prefixes: Vec<PathBuf> = Vec::new();
    for name in ["VIRTUAL_ENV", "CONDA_PREFIX"] {
        prefixes.extend((around.variable)(name).filter(|path| !path.is_empty()).map(|path| below(&path)));
    }
    let path = (around.variable)("PATH").unwrap_or_default();
    let folders = path.split(':').filter(|folder| folder.starts_with('/')).map(below);
    let pythons = folders.flat_map(|folder| ["python3", "python"].map(|name| folder.join(name)));
    for python in pythons.filter(|python| python.exists()) {
        let prefix_of = |program: &Path| Some(program.parent()?.parent()?.to_owned());
        prefixes.extend(prefix_of(&python));
        // A program that is a link belongs to where it points, except in a virtual environment.
        prefixes.extend(python.canonicalize().ok().and_then(|real| prefix_of(&real)));
    }
    if around.root == Path::new("/") {
        prefixes.extend(std::env::current_dir().map(|here| here.join(".venv")));
    }
    let mut seen = BTreeSet::new();
    let folders = prefixes.iter().flat_map(|prefix| packages(prefix)).map(|packages| packages.join("torch"));
    let found = folders.filter_map(|folder| torch(&folder));
    found.filter(|torch| seen.insert(torch.folder.canonicalize().unwrap_or_else(|_| torch.folder.clone()))).collect()
}

/// The folders of packages below a prefix.
fn packages(prefix: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for library in ["lib", "lib64", "local/lib"] {
        let Ok(entries) = fs::read_dir(prefix.join(library)) else { continue };
        let mut versions: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
        versions.sort();
        for version in versions {
            let name = version.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if name.starts_with("python3") {
                found.extend([version.join("site-packages"), version.join("dist-packages")]);
            }
        }
    }
    found
}

/// The PyTorch in a folder, as its `version.py` tells.
fn torch(folder: &Path) -> Option<Torch> {
    let text = fs::read_to_string(folder.join("version.py")).ok()?;
    let value = |name: &str| {
        text.lines().find_map(|line| {
            let rest = line.strip_prefix(name)?;
            let (_, value) = rest.split_once('=')?;
            let quoted = value.trim();
            let quote = quoted.chars().next().filter(|it| matches!(it, '\'' | '"'))?;
            Some(quoted[1..].split(quote).next()?.to_owned())
        })
    };
    Some(Torch { folder: folder.to_owned(), version: value("__version__")?, cuda: value("cuda"), hip: value("hip") })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_can_fall_back_on_host_memory() {
        let torch = |version: &str, cuda: Option<&str>| Torch {
            folder: PathBuf::new(),
            version: version.to_owned(),
            cuda: cuda.map(str::to_owned),
            hip: None,
        };
        assert!(torch("2.11.0+cu130", Some("13.0")).has_reserve() && torch("2.8.0", Some("12.8")).has_reserve());
        assert!(!torch("2.7.1+cu126", Some("12.6")).has_reserve() && !torch("2.11.0+cpu", None).has_reserve());
        assert!(torch("3.0.0a0+git1", Some("14.0")).has_reserve() && !torch("unknown", Some("1")).has_reserve());
    }

    #[test]
    fn files_of_the_system() {
        let text = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.65.06  Sun Jul 27 2025\nGCC version: 12.3.0\n";
        assert_eq!(driver(text).as_deref(), Some("580.65.06"));
        let open = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.124.06  Release Build";
        assert_eq!(driver(open).as_deref(), Some("570.124.06"));
        assert_eq!(driver(""), None);
        let mounts = "proc /proc proc rw 0 0\nshm /dev/shm tmpfs rw,nosuid,size=65536k,inode64 0 0\n";
        assert_eq!(shared_memory(mounts, Some(1)), Some(64 << 20));
        assert_eq!(shared_memory("tmpfs /dev/shm tmpfs rw 0 0\n", Some(16 << 30)), Some(8 << 30));
        assert_eq!(shared_memory("", Some(1)), None);
        let limits = "Limit  Soft Limit  Hard Limit\nMax open files            1024        unlimited     files\n";
        assert_eq!(limit(limits, "Max open files"), Some(Limit { soft: Some(1024), hard: None }));
        assert_eq!(limit(limits, "Max address space"), None);
        assert_eq!(shared_memory("tmpfs /dev/shm tmpfs rw,size=25% 0 0\n", Some(400)), Some(100));
    }
}
