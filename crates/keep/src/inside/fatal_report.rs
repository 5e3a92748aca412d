//! What a process wrote down itself shows that memory ended it.

use std::fs;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::Evidence;
use crate::inside::memory_watch::REPORTS;

/// Far above what is written.
const LARGEST: u64 = 4 << 20;

#[derive(Deserialize)]
struct Form {
    pid: u32,
    asked_bytes: Option<u64>,
    error: String,
}

/// The reports of a start, in order.
pub(crate) fn reports(folder: &Path, start: usize) -> Vec<PathBuf> {
    let mark = format!("start-{start}-");
    let entries = fs::read_dir(folder.join(REPORTS)).into_iter().flatten().flatten();
    let is_of_it = |name: &str| name.starts_with(&mark) && name.ends_with(".json");
    let mut paths: Vec<_> =
        entries.filter(|entry| entry.file_name().to_str().is_some_and(is_of_it)).map(|entry| entry.path()).collect();
    paths.sort();
    paths
}

/// The first of them that is of an error which ended its process.
pub(crate) fn fatal_report(reports: &[PathBuf]) -> Option<Evidence> {
    let read = |path: &Path| {
        let is_small = fs::metadata(path).is_ok_and(|file| file.len() <= LARGEST);
        let form: Form = serde_json::from_slice(&fs::read(path).ok().filter(|_| is_small)?).ok()?;
        (!form.error.is_empty()).then_some(Evidence::Report { pid: form.pid, asked_bytes: form.asked_bytes })
    };
    reports.iter().find_map(|path| read(path))
}
