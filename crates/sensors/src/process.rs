//! A process and its children, as `/proc` shows them.

use std::collections::BTreeSet;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::files::{Files, kilobytes};
use crate::{Cause, Missing};

/// More descendants than a training run has; the rest is not looked at.
const MOST_CHILDREN: usize = 4096;

/// The memory of one process, in bytes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Process {
    /// Its number.
    pub pid: u32,
    /// The number of the process that started it.
    pub parent: u32,
    /// The name of its program, at most 15 bytes of it.
    pub name: String,
    /// Memory in RAM, shared pages included (`VmRSS`).
    pub resident_bytes: u64,
    /// The most it ever had in RAM (`VmHWM`).
    pub peak_bytes: u64,
    /// Memory in swap (`VmSwap`).
    pub swap_bytes: u64,
}

/// The processes below the watched one, together.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Children {
    /// How many there are.
    pub processes: u64,
    /// Memory in RAM; pages that several share are counted for each.
    pub resident_bytes: u64,
}

/// What tells a process from a later one with the same number: when it started, in ticks since the machine did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct StartTime(u64);

impl Process {
    pub(crate) fn read(files: &mut Files, pid: u32) -> Result<Self, Missing> {
        let place = format!("proc/{pid}/status");
        let text = files.read(&place).map_err(|missing| ended(pid, missing))?;
        let field = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        // What has ended and was not waited for holds nothing any more.
        if field("State").is_some_and(|state| state.trim_start().starts_with(['Z', 'X'])) {
            return Err(Missing::new(Cause::Ended, format!("process {pid} has ended")));
        }
        // A thread of the kernel has no memory of its own, and no lines about it.
        let bytes = |name: &str| match field(name) {
            None => Ok(0),
            Some(value) => kilobytes(value)
                .ok_or_else(|| Missing::malformed(&place, &format!("{name} is no number of kB: {}", value.trim()))),
        };
        Ok(Self {
            pid,
            parent: field("PPid").and_then(|value| value.trim().parse().ok()).unwrap_or(0),
            name: field("Name").unwrap_or("").trim().to_owned(),
            resident_bytes: bytes("VmRSS")?,
            peak_bytes: bytes("VmHWM")?,
            swap_bytes: bytes("VmSwap")?,
        })
    }
}

impl Children {
    /// The sum over those of `pids` that are still there.
    pub(crate) fn read(files: &mut Files, pids: &[u32]) -> Self {
        let page = rustix::param::page_size() as u64;
        let mut sum = Self::default();
        for pid in pids {
            let Ok(text) = files.read(&format!("proc/{pid}/statm")) else { continue };
            let Some(pages) = text.split_whitespace().nth(1).and_then(|word| word.parse::<u64>().ok()) else {
                continue;
            };
            sum.processes += 1;
            sum.resident_bytes = sum.resident_bytes.saturating_add(pages.saturating_mul(page));
        }
        sum
    }
}

impl StartTime {
    pub(crate) fn read(files: &mut Files, pid: u32) -> Result<Self, Missing> {
        let place = format!("proc/{pid}/stat");
        let text = files.read(&place).map_err(|missing| ended(pid, missing))?;
        stat_field(&text, 22)
            .and_then(|word| word.parse().ok())
            .map(Self)
            .ok_or_else(|| Missing::malformed(&place, "no time of start"))
    }
}

/// Every process below `process`, without itself, in order; `root` is where `proc` is, usually `/`.
#[must_use]
pub fn processes_below(root: &Path, process: u32) -> Vec<u32> {
    descendants(&mut Files::new(root.to_owned()), process)
}

/// Every process below `root`, without itself, in order.
pub(crate) fn descendants(files: &mut Files, root: u32) -> Vec<u32> {
    let mut found = BTreeSet::new();
    let mut waiting = vec![root];
    let parents = if lists_children(files, root) { None } else { Some(parents(files)) };
    while let Some(pid) = waiting.pop() {
        let children = match &parents {
            None => listed_children(files, pid),
            Some(pairs) => pairs.iter().filter(|(_, parent)| *parent == pid).map(|(child, _)| *child).collect(),
        };
        for child in children {
            if found.len() < MOST_CHILDREN && child != root && found.insert(child) {
                waiting.push(child);
            }
        }
    }
    found.into_iter().collect()
}

/// The proportional share of a process in the memory it maps: pages shared by `n` count for one `n`th. Takes
/// milliseconds for each gigabyte, for the kernel walks the page tables.
pub(crate) fn proportional_bytes(files: &mut Files, pid: u32) -> Result<u64, Missing> {
    let place = format!("proc/{pid}/smaps_rollup");
    let text = files.read(&place).map_err(|missing| ended(pid, missing))?;
    text.lines()
        .find_map(|line| line.strip_prefix("Pss:"))
        .and_then(kilobytes)
        .ok_or_else(|| Missing::malformed(&place, "no Pss"))
}

/// Whether numbers of processes here are those of the whole machine, which drivers tell: not so inside most containers.
pub(crate) fn numbers_are_the_machines(files: &Files) -> bool {
    // The first namespace has this number on every kernel (`PROC_PID_INIT_INO`).
    files.link("proc/self/ns/pid").is_none_or(|name| name == "pid:[4026531836]")
}

/// Whether a process has an NVIDIA driver's files in its memory.
pub(crate) fn maps_driver(files: &mut Files, pid: u32) -> bool {
    let Ok(text) = files.read(&format!("proc/{pid}/maps")) else { return false };
    text.contains("/dev/nvidia") || text.contains("libcuda.so")
}

/// The name of a process's program.
pub(crate) fn name(files: &mut Files, pid: u32) -> Result<String, Missing> {
    files
        .read(&format!("proc/{pid}/comm"))
        .map(|text| text.trim_end().to_owned())
        .map_err(|missing| ended(pid, missing))
}

/// Whether this kernel lists a process's children, which saves looking at every process there is.
fn lists_children(files: &mut Files, pid: u32) -> bool {
    files.read(&format!("proc/{pid}/task/{pid}/children")).is_ok()
}

/// The children of all threads of a process.
fn listed_children(files: &mut Files, pid: u32) -> Vec<u32> {
    let mut children = Vec::new();
    for thread in files.numbers(&format!("proc/{pid}/task")).unwrap_or_default() {
        if let Ok(text) = files.read(&format!("proc/{pid}/task/{thread}/children")) {
            children.extend(text.split_whitespace().filter_map(|word| word.parse::<u32>().ok()));
        }
    }
    children
}

/// Every process with its parent.
fn parents(files: &mut Files) -> Vec<(u32, u32)> {
    let pids = files.numbers("proc").unwrap_or_default();
    let parent = |pid: u32, files: &mut Files| {
        let text = files.read(&format!("proc/{pid}/stat")).ok()?;
        stat_field(&text, 4)?.parse().ok()
    };
    pids.into_iter().filter_map(|pid| Some((pid, parent(pid, files)?))).collect()
}

/// A field of `/proc/PID/stat`, counted from 1 as its manual does. The second, the name, may hold blanks and brackets.
fn stat_field(text: &str, number: usize) -> Option<&str> {
    let (_, rest) = text.rsplit_once(')')?;
    rest.split_whitespace().nth(number.checked_sub(3)?)
}

/// A process's file that is not there means that the process is not there.
fn ended(pid: u32, missing: Missing) -> Missing {
    match missing.cause {
        Cause::Absent | Cause::Ended => Missing::new(Cause::Ended, format!("process {pid} is not there")),
        _ => missing,
    }
}

#[cfg(test)]
mod tests {
    use super::stat_field;

    #[test]
    fn a_name_with_brackets_and_blanks_moves_no_field() {
        let text = "42 (a) b (c) S 7 42 42 0 -1";
        assert_eq!((stat_field(text, 3), stat_field(text, 4), stat_field(text, 99)), (Some("S"), Some("7"), None));
        assert_eq!(stat_field("42 S 7", 4), None);
    }
}
