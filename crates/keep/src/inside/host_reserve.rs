//! A reserve of host memory under the PyTorch of a command: a step that is too large is slow instead of out of memory.
//!
//! `reserve.py` is run once the command has imported torch, and hands over to the package, which that Python must have. Each process
//! that used its reserve writes a file into the run's folder [`USES`], one line of JSON a use, which is an event as runs
//! have them.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use lowtide_core::{Bytes, Event};
use serde_json::json;

use crate::StartRecord;
use crate::inside::door::{Moment, Part};

/// The folder of a run in which processes say how they used their reserve.
pub const USES: &str = "reserve";
const TEXT: &str = include_str!("reserve.py");
/// What is read of all that processes have written.
const MOST_USES: usize = 1000;
const LARGEST_FILE: u64 = 1 << 20;

/// The part of the next start, after those that were.
pub(crate) fn part(bytes: Bytes, folder: &Path, starts: &[StartRecord]) -> Option<Part> {
    let uses = folder.join(USES);
    let uses = std::path::absolute(&uses).unwrap_or(uses);
    // A name that is no text cannot be handed over; such folders are rare.
    let settings = json!({ "bytes": bytes.get(), "folder": uses.to_str()?, "start": starts.len() + 1 });
    let files = vec![("reserve.json", settings.to_string().into_bytes())];
    Some(Part { name: "reserve", moment: Moment::After("torch"), text: TEXT, files })
}

/// How the processes of a start used their reserves, the files in the order of their names.
pub(crate) fn uses(folder: &Path, start: usize) -> Vec<Event> {
    let prefix = format!("start-{start}-");
    let is_of_start = |path: &PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(&prefix));
    let Ok(entries) = fs::read_dir(folder.join(USES)) else { return Vec::new() };
    let mut files: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).filter(is_of_start).collect();
    files.sort();
    let lines = files.iter().filter_map(|path| File::open(path).ok()).flat_map(|file| {
        // A line that was cut short by a kill, or that is none, is passed over.
        BufReader::new(file.take(LARGEST_FILE)).lines().map_while(Result::ok)
    });
    let events = lines.filter_map(|line| serde_json::from_str(&line).ok());
    events.filter(|event| matches!(event, Event::Overflowed { .. })).take(MOST_USES).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uses_are_read_by_start_and_what_is_broken_is_passed_over() {
        let folder = tempfile::tempdir().unwrap();
        let place = folder.path().join(USES);
        fs::create_dir(&place).unwrap();
        let line = |step: u64| {
            format!(
                r#"{{"event": "overflowed", "step": {step}, "phase": "forward", "bytes": 5, "reserve": 9, "seconds": 0.5}}"#
            )
        };
        let other = r#"{"event": "note", "step": 1, "message": "m"}"#;
        let text = format!("{}\n{other}\n{}\n{{\"event\": \"overflo", line(3), line(4));
        fs::write(place.join("start-1-77.jsonl"), text).unwrap();
        fs::write(place.join("start-2-78.jsonl"), line(9)).unwrap();
        fs::write(place.join("start-10-79.jsonl"), line(9)).unwrap();
        let steps = |start| {
            uses(folder.path(), start).iter().filter_map(Event::step).map(|step| step.get()).collect::<Vec<_>>()
        };
        assert_eq!(steps(1), [3, 4]);
        assert_eq!(steps(2), [9]);
        assert_eq!(steps(3), [0; 0]);
    }
}
