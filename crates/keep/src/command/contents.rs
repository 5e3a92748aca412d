//! The files of a checkpoint, which is one of them or a folder with many.
//!
//! A folder's own time says when a name in it was made or taken away, and stays where a file is written over in its place, as
//! most trainers do. So the times of its files count.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// Deeper than any checkpoint.
const DEEPEST: usize = 8;
/// More files than any checkpoint has.
const MOST: usize = 100_000;

/// What a checkpoint is made of, as it is on the disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Contents {
    /// Its files, in the order of their names. What is neither file nor folder is none.
    pub(crate) files: Vec<CheckpointFile>,
    /// Whether these are all of them, and not only as many as are looked at.
    pub(crate) is_all: bool,
}

/// A file of a checkpoint.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct CheckpointFile {
    /// Its path below the checkpoint; empty where the checkpoint is the file.
    pub(crate) place: PathBuf,
    pub(crate) bytes: u64,
    pub(crate) written: Option<SystemTime>,
}

/// A folder of a checkpoint that is still to be looked into.
struct Folder {
    place: PathBuf,
    /// The folders that it is in, and itself, as the file system knows them: a link may lead back to one of them.
    within: Vec<(u64, u64)>,
}

impl Contents {
    pub(crate) fn of(checkpoint: &Path) -> Self {
        let mut contents = Self { files: Vec::new(), is_all: true };
        let mut left: Vec<Folder> = contents.add(checkpoint, PathBuf::new(), &[]).into_iter().collect();
        while let Some(folder) = left.pop() {
            for entry in fs::read_dir(below(checkpoint, &folder.place)).into_iter().flatten().flatten() {
                left.extend(contents.add(checkpoint, folder.place.join(entry.file_name()), &folder.within));
            }
        }
        contents.files.sort();
        contents
    }

    /// Takes in a file; a folder is given back.
    fn add(&mut self, checkpoint: &Path, place: PathBuf, within: &[(u64, u64)]) -> Option<Folder> {
        let metadata = fs::metadata(below(checkpoint, &place)).ok()?;
        let is_too_much = self.files.len() >= MOST || within.len() > DEEPEST;
        let this = (metadata.dev(), metadata.ino());
        match metadata.is_dir() {
            true if within.contains(&this) => None,
            false if !metadata.is_file() => None,
            _ if is_too_much => {
                self.is_all = false;
                None
            }
            true => Some(Folder { place, within: [within, &[this]].concat() }),
            false => {
                self.files.push(CheckpointFile { place, bytes: metadata.len(), written: metadata.modified().ok() });
                None
            }
        }
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.files.iter().map(|file| file.bytes).sum()
    }

    /// Whether something is a copy of it: the same files, each with the same time and size.
    pub(crate) fn is_copied_in(&self, copy: &Path) -> bool {
        !self.files.is_empty() && self.is_all && *self == Self::of(copy)
    }
}

/// A file of a checkpoint on the disk.
pub(crate) fn below(checkpoint: &Path, place: &Path) -> PathBuf {
    // Joined to nothing, a path gets a slash at its end, and a file has no path with one.
    if place.as_os_str().is_empty() { checkpoint.to_owned() } else { checkpoint.join(place) }
}

/// The folder that a checkpoint or a folder is in, by its name.
pub(crate) fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// When a checkpoint was written: of a folder, when the newest of its files was.
pub(crate) fn written(checkpoint: &Path) -> Option<SystemTime> {
    let newest = Contents::of(checkpoint).files.iter().filter_map(|file| file.written).max();
    newest.or_else(|| fs::metadata(checkpoint).and_then(|metadata| metadata.modified()).ok())
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::unix::fs::symlink;
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_folder_is_as_new_as_the_newest_of_its_files() {
        let top = tempfile::tempdir().unwrap();
        let step = top.path().join("step_500");
        fs::create_dir_all(step.join("inner")).unwrap();
        let at = |seconds| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
        for (name, seconds) in [("model.safetensors", 100), ("inner/optimizer.pt", 300), ("rng.pkl", 200)] {
            fs::write(step.join(name), name).unwrap();
            File::options().append(true).open(step.join(name)).unwrap().set_modified(at(seconds)).unwrap();
        }
        File::open(&step).unwrap().set_modified(at(50)).unwrap();
        assert_eq!(written(&step), Some(at(300)));
        assert_eq!(written(&step.join("rng.pkl")), Some(at(200)));
        let contents = Contents::of(&step);
        let places: Vec<_> = contents.files.iter().map(|file| file.place.to_str().unwrap()).collect();
        assert_eq!((places, contents.bytes()), (vec!["inner/optimizer.pt", "model.safetensors", "rng.pkl"], 42));
        // A folder that nothing is in yet has its own.
        let empty = top.path().join("step_600");
        fs::create_dir(&empty).unwrap();
        File::open(&empty).unwrap().set_modified(at(50)).unwrap();
        assert_eq!((written(&empty), written(&top.path().join("none"))), (Some(at(50)), None));
    }

    #[test]
    fn what_is_named_alone_is_in_the_working_folder() {
        let folders = ["ckpt.pt", "out/ckpt.pt", "/ckpt.pt", "/"].map(|path| folder_of(Path::new(path)).to_owned());
        assert_eq!(folders, [".", "out", "/", "."].map(PathBuf::from));
    }

    #[test]
    fn a_folder_that_leads_round_in_a_circle_has_an_end() {
        let top = tempfile::tempdir().unwrap();
        fs::create_dir(top.path().join("in")).unwrap();
        fs::write(top.path().join("in/a.pt"), "a").unwrap();
        for number in 0..20 {
            symlink("..", top.path().join(format!("in/{number}"))).unwrap();
        }
        let contents = Contents::of(top.path());
        assert!(contents.is_all && contents.files.len() == 1);
        let deep = top.path().join("1/2/3/4/5/6/7/8/9");
        fs::create_dir_all(&deep).unwrap();
        fs::write(deep.join("a.pt"), "a").unwrap();
        assert!(!Contents::of(top.path()).is_all);
    }
}
