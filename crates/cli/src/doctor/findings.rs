//! What looks wrong with a machine, and the fix for each.

use lowtide_core::{Bytes, counted};
use serde::Serialize;

use super::allocator::misread;
use super::facts::Facts;
use super::variables::meant;

/// Something that looks wrong.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Finding {
    pub(crate) what: String,
    pub(crate) fix: String,
}

/// The least driver for each CUDA, by its first number.
const DRIVERS: [(u32, u32); 3] = [(13, 580), (12, 525), (11, 450)];
/// Data workers hand whole batches over in shared memory.
const LITTLE_SHARED_MEMORY: u64 = 1 << 30;
/// Each tensor from a data worker takes a file, and each shard another.
const FEW_FILES: u64 = 1024;
const LITTLE_RAM: u64 = 1 << 30;
/// Everything that looks wrong, the gravest first.
pub(crate) fn findings(facts: &Facts) -> Vec<Finding> {
    [cards(facts), torch(facts), held(facts), memory(facts), limits(facts), allocator(facts)]
        .into_iter()
        .flatten()
        .collect()
}

fn finding(what: String, fix: impl Into<String>) -> Finding {
    Finding { what, fix: fix.into() }
}

fn cards(facts: &Facts) -> Vec<Finding> {
    let mut found = Vec::new();
    if facts.driver.is_none() && facts.gpus.cards.is_empty() && facts.cards_on_the_bus > 0 {
        let what = format!("{} of NVIDIA on the bus, and no driver", counted(facts.cards_on_the_bus as u64, "card"));
        found.push(finding(
            what,
            "install NVIDIA's driver; in a virtual machine or container, ask its host for the card",
        ));
    }
    if let (Some(driver), Some(missing)) = (&facts.driver, &facts.gpus.missing) {
        let what = format!("driver {driver} is loaded, but no card can be asked: {missing}");
        found.push(finding(what, "in a container start it with --gpus all; else reboot after a change of drivers"));
    }
    if facts.visible.as_deref().is_some_and(|visible| visible.is_empty() || visible == "-1")
        && !facts.gpus.cards.is_empty()
    {
        let what = format!("CUDA_VISIBLE_DEVICES={} hides all cards", facts.visible.as_deref().unwrap_or(""));
        found.push(finding(what, "unset CUDA_VISIBLE_DEVICES, or name cards in it: CUDA_VISIBLE_DEVICES=0"));
    }
    let named = facts.visible.iter().flat_map(|visible| visible.split(','));
    let beyond = |index: &usize| !facts.gpus.cards.is_empty() && *index >= facts.gpus.cards.len();
    if let Some(index) = named.filter_map(|word| word.trim().parse().ok()).find(beyond) {
        let there = counted(facts.gpus.cards.len() as u64, "card");
        let what = format!("CUDA_VISIBLE_DEVICES names card {index}, counted from 0, and there are {there}");
        found.push(finding(what, "CUDA sees neither that one nor those named after it: name others"));
    }
    for card in &facts.gpus.cards {
        if let Some(missing) = card.memory.missing() {
            let what = format!("GPU {} ({}) does not answer: {missing}", card.index, card.name);
            found.push(finding(what, "`dmesg | grep Xid` says why; reset it (nvidia-smi --gpu-reset) or reboot"));
        }
    }
    found
}

fn torch(facts: &Facts) -> Vec<Finding> {
    let mut found = Vec::new();
    let first = |version: &str| version.split('.').next().and_then(|word| word.parse::<u32>().ok());
    let own = facts.own_torch.iter().map(|torch| ("Lowtide's LibTorch", torch));
    for (name, torch) in own.chain(facts.torch.iter().map(|torch| ("torch", torch))) {
        let name = format!("{name} {} in {}", torch.version, torch.folder.display());
        if torch.cuda.is_none() && torch.hip.is_none() && (facts.driver.is_some() || !facts.gpus.cards.is_empty()) {
            found.push(finding(
                format!("{name} is built for the CPU alone, and there is an NVIDIA driver"),
                "pip install torch from the index for CUDA: https://pytorch.org/get-started/locally",
            ));
        }
        let (Some(cuda), Some(driver)) = (&torch.cuda, &facts.driver) else { continue };
        let needed = DRIVERS.iter().find(|(major, _)| Some(*major) == first(cuda)).map(|(_, driver)| *driver);
        let Some(needed) = needed.filter(|needed| first(driver).is_some_and(|driver| driver < *needed)) else {
            continue;
        };
        let what = format!("{name} is built for CUDA {cuda}, which needs driver {needed} or newer; this is {driver}");
        let older = if needed > 525 { ", or a torch for CUDA 12 (its wheels end in +cu126 or +cu128)" } else { "" };
        found.push(finding(what, format!("install driver {needed} or newer{older}")));
    }
    found
}

fn held(facts: &Facts) -> Vec<Finding> {
    let crowded = facts.gpus.cards.iter().filter_map(|card| {
        let memory = card.memory.known()?;
        (memory.used_bytes > memory.total_bytes / 5).then(|| {
            let holders = facts.holders(card.index);
            let holders = if holders.is_empty() { String::new() } else { format!(": {}", holders.join(", ")) };
            let (used, total) = (Bytes(memory.used_bytes), Bytes(memory.total_bytes));
            let what = format!("{used} of {total} on GPU {} are taken{holders}", card.index);
            finding(what, "end what is not needed (`kill PID`; a notebook holds memory until its kernel is shut down)")
        })
    });
    crowded.collect()
}

fn memory(facts: &Facts) -> Vec<Finding> {
    let mut found = Vec::new();
    if let Some(machine) = facts.machine.known()
        && (machine.available_bytes < LITTLE_RAM || machine.available_bytes < machine.total_bytes / 10)
    {
        let what =
            format!("only {} of {} of RAM are available", Bytes(machine.available_bytes), Bytes(machine.total_bytes));
        found.push(finding(what, "end other programs, lower the number of data workers, or train with --host-limit"));
    }
    if let Some(group) = facts.cgroup.known()
        && let (Some(limit), Some(left)) = (group.limit_bytes, facts.cgroup_left_bytes)
        && left < limit / 10
    {
        let what = format!("the control group has {} of {} left", Bytes(left), Bytes(limit));
        found.push(finding(what, "give the container or job more memory: docker run --memory, sbatch --mem"));
    }
    if facts.overcommit == Some(2) {
        let what = "the kernel promises no more memory than there is (vm.overcommit_memory=2), and CUDA reserves much"
            .to_owned();
        found.push(finding(what, "sudo sysctl vm.overcommit_memory=0"));
    }
    found
}

fn limits(facts: &Facts) -> Vec<Finding> {
    let mut found = Vec::new();
    if let Some(limit) = facts.address_space
        && let Some(soft) = limit.soft
    {
        let what = format!(
            "a process may use no more than {} of addresses (ulimit -v), and CUDA reserves far more",
            Bytes(soft)
        );
        let fix = match limit.hard {
            None => "ulimit -v unlimited".to_owned(),
            Some(hard) => format!(
                "the hard limit is {}: raise `as` in /etc/security/limits.conf, or ask whoever runs the job's queue",
                Bytes(hard)
            ),
        };
        found.push(finding(what, fix));
    }
    match facts.shared_memory_bytes {
        Some(bytes) if bytes < LITTLE_SHARED_MEMORY => found.push(finding(
            format!("/dev/shm has {}, and data workers die with a bus error when it is full", Bytes(bytes)),
            "docker run --shm-size=8g (or --ipc=host), or num_workers=0",
        )),
        _ => {}
    }
    if let Some(limit) = facts.open_files
        && let Some(soft) = limit.soft.filter(|soft| *soft <= FEW_FILES)
    {
        let what = format!("a process may open {soft} files, and data workers take one for each tensor");
        let fix = match limit.hard {
            Some(hard) if hard <= FEW_FILES => format!(
                "the hard limit is {hard}: raise `nofile` in /etc/security/limits.conf, \
                 or docker run --ulimit nofile=65536"
            ),
            hard => format!("ulimit -n {}", hard.map_or(65536, |hard| hard.min(65536))),
        };
        found.push(finding(what, fix));
    }
    found
}

fn allocator(facts: &Facts) -> Vec<Finding> {
    let mut found = Vec::new();
    for (name, meant) in facts.misspelt.iter().filter_map(|name| Some((name, meant(name)?))) {
        let reader = if meant.starts_with("CUDA") { "CUDA" } else { "PyTorch" };
        found.push(finding(format!("{name} is set, which {reader} does not read"), format!("{meant} is the name")));
    }
    for (name, value) in &facts.allocator {
        if let Some(wrong) = misread(value) {
            found.push(finding(format!("{name}={value}: {wrong}"), format!("{name}=expandable_segments:True")));
            continue;
        }
        let expandable = value.contains("expandable_segments:True");
        if value.contains("max_split_size_mb") && !expandable {
            let what = format!("{name}={value}: max_split_size_mb rarely helps where segments can grow");
            found.push(finding(what, format!("{name}=expandable_segments:True")));
        }
        if value.contains("backend:cudaMallocAsync") && expandable {
            let what = format!("{name}={value}: expandable_segments does nothing with cudaMallocAsync");
            found.push(finding(what, "choose one of the two"));
        }
    }
    if let [(one, first), (other, second), ..] = facts.allocator.as_slice()
        && first != second
    {
        let what = format!("{one} and {other} are both set, and differ");
        found.push(finding(what, format!("unset {other}: which of the two counts depends on PyTorch's version")));
    }
    found
}
