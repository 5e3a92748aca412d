//! The control group that a process lives in, and the limits above it.

use serde::{Deserialize, Serialize};

use crate::files::Files;
use crate::{Cause, Missing};

const MOUNTS: &str = "proc/self/mountinfo";
/// Version 1 writes "no limit" as the largest multiple of a page; nobody has so much.
const UNLIMITED: u64 = 1 << 60;

/// The memory limit of a control group, and what is used of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cgroup {
    /// Which of the two interfaces the kernel has.
    pub version: CgroupVersion,
    /// The group of the process, as the kernel names it.
    pub path: String,
    /// The least limit over the group and its ancestors; `None` where no level has one.
    pub limit_bytes: Option<u64>,
    /// The group that has this limit; `None` where it lies outside of what is mounted here.
    pub limited_by: Option<String>,
    /// What the group with the least limit uses, page cache included, or the process's own group where there is no
    /// limit.
    pub used_bytes: Option<u64>,
    /// What is left at the fullest level. Less than limit less use where an ancestor is fuller, by other groups.
    pub left_bytes: Option<u64>,
}

/// The two interfaces to control groups.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum CgroupVersion {
    /// One hierarchy for each controller.
    V1,
    /// One hierarchy for all.
    V2,
}

/// Where a process's group and its visible ancestors are; found once in a while, for processes are seldom moved.
#[derive(Debug, Clone)]
pub(crate) struct Levels {
    version: CgroupVersion,
    path: String,
    /// The folders, the process's own first, without the leading slash.
    folders: Vec<String>,
    mount: String,
    /// The least limit over all ancestors as version 1 tells it, also those that are not mounted here.
    hierarchical: Option<u64>,
}

struct Mount {
    version: CgroupVersion,
    /// The group that is seen at `point`.
    root: String,
    point: String,
}

impl Levels {
    /// `process` is a number or `self`.
    pub(crate) fn find(files: &mut Files, process: &str) -> Result<Self, Missing> {
        let mounts = mounts(&files.read(MOUNTS)?);
        let place = format!("proc/{process}/cgroup");
        let text = files.read(&place)?;
        let (mount, path) = [CgroupVersion::V1, CgroupVersion::V2]
            .into_iter()
            .find_map(|version| {
                let mount = mounts.iter().find(|mount| mount.version == version)?;
                Some((mount, group(&text, version)?.to_owned()))
            })
            .ok_or_else(|| Missing::new(Cause::Absent, format!("/{place}: no memory controller is mounted")))?;
        let mut levels = Self {
            version: mount.version,
            folders: folders(mount, &path),
            path,
            mount: mount.point.clone(),
            hierarchical: None,
        };
        if levels.version == CgroupVersion::V1 {
            levels.hierarchical =
                levels.statistic(files, "hierarchical_memory_limit").ok().filter(|it| *it < UNLIMITED);
        }
        Ok(levels)
    }

    /// The limits and uses of all levels. A level without files, as the root of version 2, has no limit.
    pub(crate) fn read(&self, files: &mut Files) -> Cgroup {
        let (limit_file, use_file) = match self.version {
            CgroupVersion::V1 => ("memory.limit_in_bytes", "memory.usage_in_bytes"),
            CgroupVersion::V2 => ("memory.max", "memory.current"),
        };
        let mut least: Option<(u64, &str)> = None;
        let mut used_bytes = None;
        let mut left_bytes: Option<u64> = None;
        for (index, folder) in self.folders.iter().enumerate() {
            let limit = files.limit(&format!("{folder}/{limit_file}")).ok().flatten().filter(|it| *it < UNLIMITED);
            if limit.is_none() && index > 0 {
                continue;
            }
            let used = files.limit(&format!("{folder}/{use_file}")).ok().flatten();
            if index == 0 {
                used_bytes = used;
            }
            let Some(limit) = limit else { continue };
            if least.is_none_or(|(other, _)| limit < other) {
                least = Some((limit, folder));
                used_bytes = used;
            }
            let left = used.map(|used| limit.saturating_sub(used));
            left_bytes = [left_bytes, left].into_iter().flatten().min();
        }
        let hidden = self.hierarchical.filter(|limit| least.is_none_or(|(other, _)| *limit < other));
        if let Some(limit) = hidden {
            let left = used_bytes.map(|used| limit.saturating_sub(used));
            left_bytes = [left_bytes, left].into_iter().flatten().min();
        }
        Cgroup {
            version: self.version,
            path: self.path.clone(),
            limit_bytes: hidden.or(least.map(|(limit, _)| limit)),
            limited_by: if hidden.is_some() { None } else { least.map(|(_, folder)| self.name(folder)) },
            used_bytes,
            left_bytes,
        }
    }

    /// Page cache that the process's group would give back first. Slow on large machines: the kernel sums up counters.
    pub(crate) fn inactive_file_bytes(&self, files: &mut Files) -> Result<u64, Missing> {
        let name = match self.version {
            CgroupVersion::V1 => "total_inactive_file",
            CgroupVersion::V2 => "inactive_file",
        };
        self.statistic(files, name)
    }

    /// How many processes of the process's group the kernel ended for want of memory, for whichever limit.
    pub(crate) fn oom_kills(&self, files: &mut Files) -> Result<u64, Missing> {
        let name = match self.version {
            CgroupVersion::V1 => "memory.oom_control",
            CgroupVersion::V2 => "memory.events",
        };
        let place = format!("{}/{name}", self.folders[0]);
        let text = files.read(&place)?;
        text.lines()
            .find_map(|line| line.strip_prefix("oom_kill ")?.trim().parse().ok())
            .ok_or_else(|| Missing::malformed(&place, "no oom_kill"))
    }

    fn statistic(&self, files: &mut Files, name: &str) -> Result<u64, Missing> {
        let place = format!("{}/memory.stat", self.folders[0]);
        let text = files.read(&place)?;
        text.lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.trim().parse().ok())
            .ok_or_else(|| Missing::malformed(&place, &format!("no {name}")))
    }

    /// A group as it is seen below the mount point.
    fn name(&self, folder: &str) -> String {
        let below = folder.strip_prefix(self.mount.as_str()).unwrap_or(folder);
        if below.is_empty() { "/".to_owned() } else { below.to_owned() }
    }
}

/// The group of the memory controller in `/proc/PID/cgroup`.
fn group(text: &str, version: CgroupVersion) -> Option<&str> {
    text.lines().find_map(|line| {
        let mut parts = line.splitn(3, ':');
        let (number, controllers, path) = (parts.next()?, parts.next()?, parts.next()?);
        let wanted = match version {
            CgroupVersion::V1 => controllers.split(',').any(|name| name == "memory"),
            CgroupVersion::V2 => number == "0" && controllers.is_empty(),
        };
        // A group that was deleted while the process is in it.
        let path = path.strip_suffix(" (deleted)").unwrap_or(path);
        (wanted && path.starts_with('/')).then_some(path)
    })
}

fn mounts(text: &str) -> Vec<Mount> {
    text.lines().filter_map(mount).collect()
}

/// `35 31 0:32 ROOT POINT rw,relatime [optional ...] - TYPE SOURCE OPTIONS`
fn mount(line: &str) -> Option<Mount> {
    let (before, after) = line.split_once(" - ")?;
    let mut fields = before.split(' ').skip(3);
    let (root, point) = (unescaped(fields.next()?), unescaped(fields.next()?));
    let mut fields = after.split(' ');
    let version = match fields.next()? {
        "cgroup2" => CgroupVersion::V2,
        "cgroup" if fields.nth(1)?.split(',').any(|option| option == "memory") => CgroupVersion::V1,
        _ => return None,
    };
    Some(Mount { version, root, point: point.trim_start_matches('/').to_owned() })
}

/// Blanks, tabs, line ends and backslashes are written as `\040`, `\011`, `\012` and `\134`.
fn unescaped(text: &str) -> String {
    text.replace("\\040", " ").replace("\\011", "\t").replace("\\012", "\n").replace("\\134", "\\")
}

/// The folders of a group and of its ancestors that are mounted.
///
/// Inside a container the mount often shows a part of the hierarchy, and the group's path may be told from the top.
/// Where the path does not lie below what is mounted, the mount itself is the nearest that can be seen.
fn folders(mount: &Mount, path: &str) -> Vec<String> {
    let root = mount.root.trim_end_matches('/');
    let below = path.strip_prefix(root).filter(|rest| rest.is_empty() || rest.starts_with('/')).unwrap_or("");
    let mut names: Vec<&str> = below.split('/').filter(|name| !name.is_empty()).collect();
    // A process outside of our namespace: its path leads up from our root, where nothing is mounted.
    if names.contains(&"..") {
        names.clear();
    }
    (0..=names.len())
        .rev()
        .map(|depth| {
            let mut folder = mount.point.clone();
            for name in &names[..depth] {
                folder.push('/');
                folder.push_str(name);
            }
            folder
        })
        .collect()
}
