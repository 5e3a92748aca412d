//! Folders that each start makes anew, as Lightning's loggers do: `version_0`, `version_1`, ...
//!
//! Another run in the same place makes such folders too, at any time, and what is in them is that run's. So a folder is a run's
//! own only where one of its starts made it: it was not there before that start, and nobody still writes into it when that
//! start has ended. Where several are left, which of them it is cannot be known.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The folders of a run's starts.
#[derive(Debug, Default)]
pub(crate) struct StartFolders {
    /// All that were there at the last look.
    known: Vec<PathBuf>,
    /// Those that starts of this run made.
    own: Vec<PathBuf>,
    /// Those of which one at most can be the last start's.
    pub(crate) unclear: Vec<PathBuf>,
}

impl StartFolders {
    /// Looks at those that are there before a start.
    pub(crate) fn before(&mut self, patterns: &[String]) {
        self.known = matching(patterns);
        self.unclear.clear();
    }

    /// Looks for the one that the start has made, after its end.
    pub(crate) fn after(&mut self, patterns: &[String]) {
        let now = matching(patterns);
        // A start has one in each place: there may be several loggers.
        let mut by_place: BTreeMap<Option<&Path>, Vec<&PathBuf>> = BTreeMap::new();
        for folder in now.iter().filter(|folder| !self.known.contains(folder)) {
            by_place.entry(folder.parent()).or_default().push(folder);
        }
        for mut folders in by_place.into_values() {
            if folders.len() > 1 {
                folders.retain(|folder| !is_written_to(folder, Path::new("/proc")));
            }
            match folders.as_slice() {
                [only] => self.own.push((*only).clone()),
                several => self.unclear.extend(several.iter().map(|folder| (*folder).clone())),
            }
        }
        self.known = now;
    }

    /// Whether a checkpoint is in a folder that no start of this run made for certain.
    pub(crate) fn is_anothers(&self, checkpoint: &Path) -> bool {
        if self.known.is_empty() {
            return false;
        }
        let Ok(path) = checkpoint.canonicalize() else { return false };
        let is_in = |folders: &[PathBuf]| path.ancestors().any(|above| folders.iter().any(|folder| folder == above));
        is_in(&self.known) && !is_in(&self.own)
    }
}

/// The folders of these patterns, each once.
fn matching(patterns: &[String]) -> Vec<PathBuf> {
    let found = patterns.iter().filter_map(|pattern| glob::glob(pattern).ok()).flatten().flatten();
    let mut folders: Vec<PathBuf> =
        found.filter(|path| path.is_dir()).filter_map(|it| it.canonicalize().ok()).collect();
    folders.sort();
    folders.dedup();
    folders
}

/// Whether a process has a file in a folder open to write into it, as far as we may see that.
fn is_written_to(folder: &Path, processes: &Path) -> bool {
    let within = |path: PathBuf| fs::read_dir(path).into_iter().flatten().flatten().map(|entry| entry.path());
    let mut files = within(processes.to_owned()).flat_map(|process| within(process.join("fd")));
    files.any(|file| {
        // Of such a link the mode says what the file was opened for.
        let is_to_write = || fs::symlink_metadata(&file).is_ok_and(|link| link.mode() & 0o200 != 0);
        fs::read_link(&file).is_ok_and(|path| path.starts_with(folder)) && is_to_write()
    })
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;

    #[test]
    fn only_the_folder_that_a_start_made_is_its_own() {
        let top = tempfile::tempdir().unwrap();
        let patterns = [format!("{}/logs/version_*", top.path().display())];
        let checkpoint = |number: u32| {
            let folder = top.path().join(format!("logs/version_{number}/checkpoints"));
            fs::create_dir_all(&folder).unwrap();
            fs::write(folder.join("a.ckpt"), "a").unwrap();
            folder.join("a.ckpt")
        };
        let mut folders = StartFolders::default();
        let another = checkpoint(0);
        folders.before(&patterns);
        let own = checkpoint(1);
        folders.after(&patterns);
        assert_eq!([&another, &own].map(|path| folders.is_anothers(path)), [true, false]);
        // Another run begins while the next start is under way, and still runs.
        folders.before(&patterns);
        let (second, live) = (checkpoint(2), checkpoint(3));
        let writer = File::options().append(true).open(&live).unwrap();
        folders.after(&patterns);
        assert_eq!([&own, &second, &live].map(|path| folders.is_anothers(path)), [false, false, true]);
        assert!(folders.unclear.is_empty());
        drop(writer);
        // Both have ended, and nothing tells whose is whose. One that is only read is as good as any.
        folders.before(&patterns);
        let both = [checkpoint(4), checkpoint(5)];
        let reader = File::open(&both[0]).unwrap();
        folders.after(&patterns);
        drop(reader);
        assert_eq!(both.each_ref().map(|path| folders.is_anothers(path)), [true, true]);
        assert_eq!(folders.unclear.len(), 2);
        // Where no such folders are made, nothing is another's.
        assert!(!StartFolders::default().is_anothers(&another));
    }
}
