//! `lowtide doctor` on machines that are made up.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use insta::assert_snapshot;
use serde_json::Value;
use tempfile::TempDir;

/// A machine as its files tell.
struct Machine(TempDir);

impl Machine {
    fn new() -> Machine {
        let machine = Machine(tempfile::tempdir().unwrap());
        machine.file(
            "proc/meminfo",
            "MemTotal: 33554432 kB\nMemAvailable: 16777216 kB\nSwapTotal: 2097152 kB\nSwapFree: 0 kB\n",
        );
        machine.file("proc/mounts", "tmpfs /dev/shm tmpfs rw,nosuid,nodev 0 0\n");
        machine.file("proc/self/limits", "Max open files            65536                1048576              files\n");
        machine.file("proc/sys/vm/overcommit_memory", "0\n");
        machine
    }

    fn file(&self, place: &str, text: &str) {
        let path = self.0.path().join(place);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn torch(&self, prefix: &str, version: &str, cuda: &str) {
        let text = format!(
            "from typing import Optional\n__version__ = '{version}'\ncuda: Optional[str] = {cuda}\nhip = None\n"
        );
        self.file(&format!("{prefix}/lib/python3.12/site-packages/torch/version.py"), &text);
    }

    /// A control group of version 2 with a limit, one level above the process's own.
    fn group_v2(&self, limit: &str, used: u64, inactive_file: u64) {
        self.file("proc/self/mountinfo", "30 1 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n");
        self.file("proc/self/cgroup", "0::/job/step\n");
        self.file("sys/fs/cgroup/job/memory.max", limit);
        self.file("sys/fs/cgroup/job/memory.current", &used.to_string());
        self.file("sys/fs/cgroup/job/step/memory.max", "max\n");
        self.file("sys/fs/cgroup/job/step/memory.current", &used.to_string());
        self.file("sys/fs/cgroup/job/step/memory.stat", &format!("anon 5\ninactive_file {inactive_file}\n"));
    }

    fn doctor(&self, words: &[&str], variables: &[(&str, &str)]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_lowtide"));
        command.arg("doctor").args(words).arg("--root").arg(self.0.path());
        command.env_clear().envs(variables.iter().copied()).output().unwrap()
    }

    /// What is said, with the machine's folder and those of packages left out.
    fn told(&self, variables: &[(&str, &str)]) -> (Option<i32>, String) {
        let output = self.doctor(&[], variables);
        let text = String::from_utf8(output.stdout).unwrap().replace(self.root(), "");
        let text = text.replace("/lib/python3.12/site-packages", "");
        (output.status.code(), text)
    }

    fn root(&self) -> &str {
        Path::to_str(self.0.path()).unwrap()
    }
}

#[test]
fn a_sound_machine() {
    let machine = Machine::new();
    machine.torch("venv", "2.11.0+cpu", "None");
    let (code, text) = machine.told(&[("VIRTUAL_ENV", "/venv")]);
    assert_eq!(code, Some(0));
    assert_snapshot!(text, @r"
    GPU         none (/libnvidia-ml.so.1 cannot be loaded: no NVIDIA driver)
    driver      none
    torch       2.11.0+cpu (CPU only) in /venv/torch
    allocator   as PyTorch has it (`lowtide run` sets expandable_segments:True)
    RAM         16.00 GiB of 32.00 GiB available
    swap        2.00 GiB of 2.00 GiB used
    cgroup      none
    /dev/shm    16.00 GiB
    open files  65536
    overcommit  0

    nothing looks wrong
    ");
}

#[test]
fn everything_wrong_has_a_mend() {
    let machine = Machine::new();
    machine.file("proc/meminfo", "MemTotal: 33554432 kB\nMemAvailable: 524288 kB\n");
    machine.file("proc/driver/nvidia/version", "NVRM version: NVIDIA UNIX x86_64 Kernel Module  570.124.06  Wed\n");
    machine.file("proc/mounts", "shm /dev/shm tmpfs rw,size=65536k 0 0\n");
    machine.file("proc/self/limits", "Max open files            1024                 524288               files\n");
    machine.file("proc/sys/vm/overcommit_memory", "2\n");
    machine.torch("venv", "2.11.0+cu130", "'13.0'");
    machine.torch("conda", "2.6.0+cpu", "None");
    let variables = [
        ("VIRTUAL_ENV", "/venv"),
        ("CONDA_PREFIX", "/conda"),
        ("PYTORCH_ALLOC_CONF", "expandable_segments:True"),
        ("PYTORCH_CUDA_ALLOC_CONF", "max_split_size_mb:128"),
    ];
    let (code, text) = machine.told(&variables);
    assert_eq!(code, Some(1));
    assert_snapshot!(text, @r"
    GPU         none (/libnvidia-ml.so.1 cannot be loaded: no NVIDIA driver)
    driver      570.124.06
    torch       2.11.0+cu130 (CUDA 13.0) in /venv/torch
    torch       2.6.0+cpu (CPU only) in /conda/torch
    allocator   PYTORCH_ALLOC_CONF=expandable_segments:True
    allocator   PYTORCH_CUDA_ALLOC_CONF=max_split_size_mb:128
    RAM         512.00 MiB of 32.00 GiB available
    swap        none
    cgroup      none
    /dev/shm    64.00 MiB
    open files  1024
    overcommit  2

    wrong: driver 570.124.06 is loaded, but no card can be asked: /libnvidia-ml.so.1 cannot be loaded: no NVIDIA driver
    fix:   in a container start it with --gpus all; else reboot after a change of drivers
    wrong: torch 2.11.0+cu130 in /venv/torch is built for CUDA 13.0, which needs driver 580 or newer; this is 570.124.06
    fix:   install driver 580 or newer, or a torch for CUDA 12 (its wheels end in +cu126 or +cu128)
    wrong: torch 2.6.0+cpu in /conda/torch is built for the CPU alone, and there is an NVIDIA driver
    fix:   pip install torch from the index for CUDA: https://pytorch.org/get-started/locally
    wrong: only 512.00 MiB of 32.00 GiB of RAM are available
    fix:   end other programs, lower the number of data workers, or train with --host-limit
    wrong: the kernel promises no more memory than there is (vm.overcommit_memory=2), and CUDA reserves much
    fix:   sudo sysctl vm.overcommit_memory=0
    wrong: /dev/shm has 64.00 MiB, and data workers die with a bus error when it is full
    fix:   docker run --shm-size=8g (or --ipc=host), or num_workers=0
    wrong: a process may open 1024 files, and data workers take one for each tensor
    fix:   ulimit -n 65536
    wrong: PYTORCH_CUDA_ALLOC_CONF=max_split_size_mb:128: max_split_size_mb rarely helps where segments can grow
    fix:   PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True
    wrong: PYTORCH_ALLOC_CONF and PYTORCH_CUDA_ALLOC_CONF are both set, and differ
    fix:   unset PYTORCH_CUDA_ALLOC_CONF: which of the two counts depends on PyTorch's version
    ");
}

#[test]
fn a_driver_that_is_new_enough_is_no_fault() {
    for (driver, cuda, faults) in [("580.65.06", "'13.0'", 0), ("579.1", "'13.0'", 1), ("525.60.13", "'12.8'", 0)] {
        let machine = Machine::new();
        machine.file("proc/driver/nvidia/version", &format!("NVRM version: NVIDIA Kernel Module  {driver}  Wed\n"));
        machine.torch("venv", "2.11.0", cuda);
        let output = machine.doctor(&["--json"], &[("VIRTUAL_ENV", "/venv")]);
        let told: Value = serde_json::from_slice(&output.stdout).unwrap();
        let wrong = told["wrong"].as_array().unwrap().iter().map(|finding| finding["what"].as_str().unwrap());
        assert_eq!(wrong.filter(|what| what.contains("or newer")).count(), faults, "{driver} {cuda}: {told:#}");
        assert_eq!(told["machine"]["driver"], driver);
    }
}

#[test]
fn a_job_with_limits() {
    let machine = Machine::new();
    machine.file("proc/self/limits", "Max address space         8589934592           unlimited            bytes\n");
    machine.file("proc/mounts", "tmpfs /dev/shm tmpfs rw,size=50% 0 0\n");
    machine.file("sys/bus/pci/devices/0000:01:00.0/vendor", "0x10de\n");
    machine.file("sys/bus/pci/devices/0000:01:00.0/class", "0x030200\n");
    machine.file("sys/bus/pci/devices/0000:01:00.1/vendor", "0x10de\n");
    machine.file("sys/bus/pci/devices/0000:01:00.1/class", "0x040300\n");
    machine.group_v2("8589934592", 8_000_000_000, 100_000_000);
    let variables = [
        ("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments=True"),
        ("PYTORCH_CUDA_ALLOCATOR_CONF", "expandable_segments:True"),
    ];
    let (code, text) = machine.told(&variables);
    assert_eq!(code, Some(1));
    assert_snapshot!(text, @r"
    GPU         none (/libnvidia-ml.so.1 cannot be loaded: no NVIDIA driver)
    driver      none
    torch       none found (python3 and python on PATH, VIRTUAL_ENV, CONDA_PREFIX, .venv)
    allocator   PYTORCH_CUDA_ALLOC_CONF=expandable_segments=True
    RAM         16.00 GiB of 32.00 GiB available
    swap        2.00 GiB of 2.00 GiB used
    cgroup      limit 8.00 GiB, 657.97 MiB left
    /dev/shm    16.00 GiB
    open files  unknown
    addresses   at most 8.00 GiB
    overcommit  0

    wrong: 1 card of NVIDIA on the bus, and no driver
    fix:   install NVIDIA's driver; in a virtual machine or container, ask its host for the card
    wrong: the control group has 657.97 MiB of 8.00 GiB left
    fix:   give the container or job more memory: docker run --memory, sbatch --mem
    wrong: a process may use no more than 8.00 GiB of addresses (ulimit -v), and CUDA reserves far more
    fix:   ulimit -v unlimited
    wrong: PYTORCH_CUDA_ALLOCATOR_CONF is set, which PyTorch does not read
    fix:   PYTORCH_CUDA_ALLOC_CONF is the name
    wrong: PYTORCH_CUDA_ALLOC_CONF=expandable_segments=True: `expandable_segments=True` is no key:value, and PyTorch ends by it
    fix:   PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True
    ");
}

#[test]
fn mends_that_mend() {
    let machine = Machine::new();
    machine.file(
        "proc/self/limits",
        "Max address space         8589934592           17179869184          bytes\n\
         Max open files            64                   64                   files\n",
    );
    let variables = [
        ("PYTORCH_CUDA_ALOC_CONF", "expandable_segments:True"),
        ("CUDA_VISIBLE_DEVICE", "0"),
        ("PYTORCH_CUDA_ALLOC_CONF", "garbage_collection_threshold:1.5"),
    ];
    let (_, text) = machine.told(&variables);
    let (_, wrong) = text.split_once("\n\n").unwrap();
    assert_snapshot!(wrong, @r"
    wrong: a process may use no more than 8.00 GiB of addresses (ulimit -v), and CUDA reserves far more
    fix:   the hard limit is 16.00 GiB: raise `as` in /etc/security/limits.conf, or ask whoever runs the job's queue
    wrong: a process may open 64 files, and data workers take one for each tensor
    fix:   the hard limit is 64: raise `nofile` in /etc/security/limits.conf, or docker run --ulimit nofile=65536
    wrong: CUDA_VISIBLE_DEVICE is set, which CUDA does not read
    fix:   CUDA_VISIBLE_DEVICES is the name
    wrong: PYTORCH_CUDA_ALOC_CONF is set, which PyTorch does not read
    fix:   PYTORCH_CUDA_ALLOC_CONF is the name
    wrong: PYTORCH_CUDA_ALLOC_CONF=garbage_collection_threshold:1.5: garbage_collection_threshold is `1.5`, which does not lie between 0 and 1
    fix:   PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True
    ");
}

#[test]
fn every_python_on_the_path_is_looked_at() {
    let machine = Machine::new();
    machine.file("usr/bin/python3", "");
    machine.file("opt/tool/bin/python", "");
    machine.torch("opt/tool", "2.11.0+cpu", "None");
    let (_, text) = machine.told(&[("PATH", "/usr/bin:/opt/tool/bin")]);
    assert!(text.contains("torch       2.11.0+cpu (CPU only) in /opt/tool/torch\n"), "{text}");
}

#[test]
fn cards_and_who_holds_them() {
    let machine = Machine::new();
    // The made-up library of the sensors' own tests: two cards, the second of which has fallen off the bus.
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/../sensors/tests/it/fake_nvml.c");
    let library = machine.0.path().join("libnvidia-ml.so.1");
    let compiled = Command::new("cc").args(["-shared", "-fPIC", "-o"]).arg(library).arg(source).status();
    assert!(compiled.unwrap().success());
    machine.file("proc/driver/nvidia/version", "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.65.06  Sun\n");
    machine.file("proc/77/status", "Name:\tjupyter\nPid:\t77\nPPid:\t1\nVmRSS:\t1 kB\n");
    machine.file("proc/77/comm", "jupyter\n");
    machine.torch("venv", "2.11.0+cpu", "None");
    let (code, text) = machine.told(&[("VIRTUAL_ENV", "/venv"), ("CUDA_VISIBLE_DEVICES", "0,2")]);
    assert_eq!(code, Some(1));
    assert_snapshot!(text, @r#"
    GPU 0       Made "Up" 9000, 6.00 GiB of 48.00 GiB free
                40.00 GiB held by process 10 (outside of this container)
                2.00 GiB held by process 77 (jupyter)
                an unknown amount held by process 78 (outside of this container)
    GPU 1       Lost, memory unknown
    driver      580.65.06
    torch       2.11.0+cpu (CPU only) in /venv/torch
    allocator   as PyTorch has it (`lowtide run` sets expandable_segments:True)
    RAM         16.00 GiB of 32.00 GiB available
    swap        2.00 GiB of 2.00 GiB used
    cgroup      none
    reserve     none: needs torch 2.8 or newer with CUDA
    /dev/shm    16.00 GiB
    open files  65536
    overcommit  0

    wrong: CUDA_VISIBLE_DEVICES names card 2, counted from 0, and there are 2 cards
    fix:   CUDA sees neither that one nor those named after it: name others
    wrong: GPU 1 (Lost) does not answer: memory: device fell off the bus or has otherwise become inacessible
    fix:   `dmesg | grep Xid` says why; reset it (nvidia-smi --gpu-reset) or reboot
    wrong: torch 2.11.0+cpu in /venv/torch is built for the CPU alone, and there is an NVIDIA driver
    fix:   pip install torch from the index for CUDA: https://pytorch.org/get-started/locally
    wrong: 41.00 GiB of 48.00 GiB on GPU 0 are taken: 40.00 GiB held by process 10 (outside of this container), 2.00 GiB held by process 77 (jupyter), an unknown amount held by process 78 (outside of this container)
    fix:   end what is not needed (`kill PID`; a notebook holds memory until its kernel is shut down)
    "#);
    machine.torch("conda", "2.11.0+cu130", "'13.0'");
    let (_, text) = machine.told(&[("CONDA_PREFIX", "/conda")]);
    assert!(text.contains("\nreserve     up to 14.40 GiB of RAM"), "{text}");
}

#[test]
fn page_cache_is_not_taken() {
    let left = |limit: &str, machine: &Machine| {
        let output = machine.doctor(&["--json"], &[]);
        let told: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(told["machine"]["cgroup"]["limit_bytes"].to_string(), limit);
        (told["machine"]["cgroup_left_bytes"].as_u64().unwrap(), told["wrong"].as_array().unwrap().len())
    };
    let machine = Machine::new();
    machine.group_v2("8589934592", 8_500_000_000, 8_000_000_000);
    assert_eq!(left("8589934592", &machine), (8_089_934_592, 0));
    let machine = Machine::new();
    machine.file("proc/self/mountinfo", "34 25 0:29 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n");
    machine.file("proc/self/cgroup", "4:memory:/docker\n");
    machine.file("sys/fs/cgroup/memory/docker/memory.limit_in_bytes", "8589934592\n");
    machine.file("sys/fs/cgroup/memory/docker/memory.usage_in_bytes", "8500000000\n");
    machine.file("sys/fs/cgroup/memory/docker/memory.stat", "total_inactive_file 100\n");
    assert_eq!(left("8589934592", &machine), (89_934_692, 1));
}

#[test]
fn the_form_for_programs() {
    let machine = Machine::new();
    machine.torch("venv", "2.11.0+cpu", "None");
    let output = machine.doctor(&["--json"], &[("VIRTUAL_ENV", "/venv")]);
    let told: Value = serde_json::from_slice(&output.stdout).unwrap();
    let names = |value: &Value| value.as_object().unwrap().keys().cloned().collect::<Vec<_>>().join(" ");
    assert_eq!(names(&told), "machine schema wrong");
    assert_eq!(told["schema"], 1);
    assert_eq!(
        names(&told["machine"]),
        "address_space allocator cards_on_the_bus cgroup cgroup_left_bytes driver gpu_processes gpus machine misspelt \
         open_files overcommit own_torch reserve_bytes shared_memory_bytes torch visible"
    );
    assert_eq!(names(&told["machine"]["torch"][0]), "cuda folder hip version");
}

#[test]
fn an_empty_machine_is_survived() {
    let machine = Machine(tempfile::tempdir().unwrap());
    let output = machine.doctor(&["--json"], &[]);
    assert!(serde_json::from_slice::<Value>(&output.stdout).is_ok());
    assert!(output.stderr.is_empty());
}
