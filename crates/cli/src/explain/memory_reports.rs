//! What the processes of a run wrote down themselves when memory ran out, beside its log.

use std::fs::{self, File};
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};

use lowtide_explain::{MemoryReport, MemorySnapshot};
use lowtide_keep::REPORTS;

/// How many reports are read, and how large each may be; what writes them stays far below.
const MOST_REPORTS: usize = 256;
const LARGEST_REPORT: u64 = 4 << 20;
/// How much is read of all snapshots together.
const MOST_SNAPSHOTS: u64 = 256 << 20;

/// The reports that belong to the log of a start, with their snapshots; none where there are none.
pub(super) fn reports_of(log: &Path) -> Vec<MemoryReport> {
    let Some(start) = log.file_stem().and_then(|name| name.to_str()) else { return Vec::new() };
    let folder = log.parent().unwrap_or(Path::new("")).join(REPORTS);
    let is_of_it = |path: &PathBuf| {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        name.ends_with(".json") && name.strip_prefix(start).is_some_and(|rest| rest.starts_with('-'))
    };
    let entries = fs::read_dir(&folder).into_iter().flatten().flatten();
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.path()).filter(is_of_it).take(MOST_REPORTS).collect();
    paths.sort();
    let mut reports: Vec<MemoryReport> = paths.iter().filter_map(|path| MemoryReport::read(&text(path)?)).collect();
    // Those that ended a process first: of many ranks, not all snapshots are read.
    reports.sort_by_key(|report| !report.is_fatal);
    let mut left = MOST_SNAPSHOTS;
    reports.into_iter().map(|report| with_snapshot(report, &folder, &mut left)).collect()
}

fn text(path: &Path) -> Option<String> {
    let mut text = String::new();
    File::open(path).ok()?.take(LARGEST_REPORT).read_to_string(&mut text).ok()?;
    Some(text)
}

/// A snapshot that is damaged or too large costs what it would have told, and nothing else.
fn with_snapshot(report: MemoryReport, folder: &Path, left: &mut u64) -> MemoryReport {
    let read = |left: &mut u64| {
        // A name, and no path to elsewhere.
        let name = report.snapshot_name.as_ref().filter(|name| !name.contains('/'))?;
        let file = File::open(folder.join(name)).ok()?;
        let size = file.metadata().ok()?.len();
        *left = left.checked_sub(size)?;
        MemorySnapshot::read(BufReader::new(file)).ok()
    };
    match read(left) {
        Some(snapshot) => report.with_snapshot(snapshot),
        None => report,
    }
}
