//! Which run a process trains, told from the files that it has open.

use std::fs;
use std::path::{Path, PathBuf};

const EVENTS: &str = "events.jsonl";
const SERIES: &str = ".series";

/// The folder of the run, or of the series of runs, that a process trains.
pub(crate) fn run_folder(pid: u32) -> Option<PathBuf> {
    let open = fs::read_dir(format!("/proc/{pid}/fd")).ok()?.flatten();
    let files: Vec<PathBuf> = open.filter_map(|entry| fs::read_link(entry.path()).ok()).collect();
    let named = |name: &str| files.iter().find(|file| file.file_name().is_some_and(|it| it == name));
    // Within a series the process has both open, and the whole is what it is about.
    named(SERIES).or_else(|| named(EVENTS)).and_then(|file| file.parent()).map(Path::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;

    #[test]
    fn an_open_file_tells_the_run_and_a_series_the_whole() {
        let folder = tempfile::tempdir().unwrap();
        let place = folder.path().canonicalize().unwrap();
        let run = place.join("lstm");
        fs::create_dir(&run).unwrap();
        let me = std::process::id();
        let events = File::create(run.join(EVENTS)).unwrap();
        assert_eq!(run_folder(me), Some(run));
        let series = File::create(place.join(SERIES)).unwrap();
        assert_eq!(run_folder(me), Some(place));
        drop((events, series));
        assert_eq!(run_folder(me), None);
    }
}
