//! Files and folders that look like checkpoints, where nothing says where a script writes them.
//!
//! Folders are looked into level by level, and in each level first those that something was last made in: data sets have
//! millions of names, and a look at all of them would take minutes. Links are followed, since checkpoints often stand on
//! another disk, but each folder is looked into once, and none that the search began in.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::fs::{self, DirEntry, File};
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use lowtide_trainers::ENDINGS;

use crate::command::checkpoint::{TRAINER_STATE, is_kept_folder};
use crate::command::contents::written;
use crate::command::wholeness::{Form, is_whole};
use crate::keeper::folder::{is_of_a_run, is_run_folder};

/// Folders that nobody writes checkpoints to: of other programs, and what is only a copy.
const OTHERS: [&str; 6] = ["node_modules", "site-packages", "__pycache__", "wandb", ".git", ".cache"];
/// What a folder of Python's programs has in it.
const ENVIRONMENTS: [&str; 2] = ["pyvenv.cfg", "conda-meta"];
/// What only a folder that is one checkpoint has in it: of Hugging Face's Trainer, and of PyTorch's distributed checkpoints.
const SIGNS: [&str; 2] = [TRAINER_STATE, ".metadata"];
/// What the names of states end with as often as those of something else.
const STATES: [&str; 7] = [".bin", ".pkl", ".pickle", ".npz", ".distcp", ".msgpack", ".pdparams"];
/// Far more checkpoints than people keep; more files are data that a script prepared.
const MOST_STRAYS: usize = 200;
/// More files than belong to a checkpoint of several files.
const MOST_BESIDE: usize = 50;

/// How far a look goes.
#[derive(Debug, Clone, Copy)]
struct Reach {
    /// Folders within each other.
    deepest: usize,
    /// Names in one folder.
    names: usize,
    /// Names in all.
    all_names: usize,
}

const REACH: Reach = Reach { deepest: 6, names: 10_000, all_names: 200_000 };

/// What looks like a checkpoint below a folder and was written since a moment, whole, the newest first.
pub(crate) fn strays(folder: &Path, since: SystemTime) -> Vec<PathBuf> {
    within(folder, since, REACH)
}

/// Whether a file may hold a part of a training's state, by its name.
pub(crate) fn may_be_state(path: &Path) -> bool {
    let name = path.file_name().map(OsStr::to_string_lossy).unwrap_or_default();
    is_certain(path) || STATES.iter().any(|ending| name.ends_with(ending))
}

/// Whether a file is a checkpoint by its name.
fn is_certain(path: &Path) -> bool {
    let name = path.file_name().map(OsStr::to_string_lossy).unwrap_or_default();
    ENDINGS.iter().any(|ending| name.ends_with(ending))
}

fn within(top: &Path, since: SystemTime, reach: Reach) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut left = reach.all_names;
    let mut seen = with_folders_above(top);
    let mut level = vec![top.to_owned()];
    for depth in 0..=reach.deepest {
        let mut next = Vec::new();
        for folder in level {
            let listing = Listing::read(folder, reach.names.min(left));
            left -= listing.names.len();
            if depth > 0 && listing.is_checkpoint(since) {
                found.extend(written(&listing.folder).map(|written| (written, listing.folder)));
                continue;
            }
            let states = listing.states(since);
            // What stands beside several of them belongs to them: settings, words, the state of the trainer.
            let is_several = depth > 0 && states.len() > 1;
            let all = is_several.then(|| listing.files(since, |_| true)).filter(|all| all.len() <= MOST_BESIDE);
            found.extend(all.unwrap_or(states));
            next.extend(listing.folders());
        }
        next.sort();
        let unseen = next.into_iter().rev().filter(|folder| seen.insert(folder.id));
        level = unseen.map(|folder| folder.path).collect();
    }
    // Of too many, those that are certainly checkpoints: a script may write thousands of arrays.
    found.sort_by_cached_key(|(written, path)| (path.is_dir() || is_certain(path), *written));
    found.drain(..found.len().saturating_sub(MOST_STRAYS));
    found.sort();
    let newest = found.into_iter().rev().map(|(_, path)| path);
    newest.filter(|path| path.is_dir() || is_whole(path, Form::Own)).collect()
}

/// A folder as the file system knows it, whatever it is called.
type FolderId = (u64, u64);

/// A folder that may have checkpoints in it, in the order of a look from its end: the newest first, and links last.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Folder {
    is_real: bool,
    /// When something was last made in it.
    written: SystemTime,
    path: PathBuf,
    id: FolderId,
}

impl Folder {
    fn of(entry: &DirEntry) -> Option<Self> {
        let kind = entry.file_type().ok().filter(|kind| kind.is_dir() || kind.is_symlink())?;
        let path = entry.path();
        let metadata = fs::metadata(&path).ok().filter(|metadata| metadata.is_dir())?;
        let own_name = if kind.is_symlink() { path.canonicalize().ok()? } else { path.clone() };
        if [&path, &own_name].into_iter().filter_map(|path| path.file_name()).any(is_others) {
            return None;
        }
        let (is_real, written, id) = (kind.is_dir(), metadata.modified().ok()?, (metadata.dev(), metadata.ino()));
        Some(Self { is_real, written, path, id })
    }
}

/// Whether a folder with a name has nothing that a script wrote.
fn is_others(name: &OsStr) -> bool {
    is_kept_folder(name) || OTHERS.iter().any(|other| name == *other)
}

/// A folder and those that it is in, to which a link may lead back.
fn with_folders_above(folder: &Path) -> HashSet<FolderId> {
    let path = folder.canonicalize().unwrap_or_default();
    let metadata = path.ancestors().filter_map(|folder| fs::metadata(folder).ok());
    metadata.map(|metadata| (metadata.dev(), metadata.ino())).collect()
}

/// The names in a folder.
struct Listing {
    folder: PathBuf,
    /// All of them, but for those that `lowtide run` made itself.
    names: Vec<DirEntry>,
}

impl Listing {
    fn read(folder: PathBuf, most: usize) -> Self {
        let mut names: Vec<DirEntry> = fs::read_dir(&folder).into_iter().flatten().flatten().take(most).collect();
        let is_run = is_run_folder(names.iter().map(DirEntry::file_name));
        let is_ours = |name: &OsStr| is_kept_folder(name) || is_run && is_of_a_run(name);
        names.retain(|entry| !is_ours(&entry.file_name()));
        Self { folder, names }
    }

    fn has(&self, names: &[&str]) -> bool {
        self.names.iter().any(|entry| names.iter().any(|name| entry.file_name() == *name))
    }

    /// Whether the folder is one checkpoint that was written since a moment, and none with others in it.
    fn is_checkpoint(&self, since: SystemTime) -> bool {
        let is_sign = |path: PathBuf| file_time(&path).is_some_and(|written| written >= since);
        let has_sign = |folder: &Path| SIGNS.iter().any(|sign| is_sign(folder.join(sign)));
        has_sign(&self.folder) && !self.names.iter().any(|entry| has_sign(&entry.path()))
    }

    /// Files with a state that were written since a moment.
    fn states(&self, since: SystemTime) -> Vec<(SystemTime, PathBuf)> {
        self.files(since, |path| may_be_state(path) && !is_other_bin(path))
    }

    /// Files of a kind that were written since a moment.
    fn files(&self, since: SystemTime, is_it: impl Fn(&Path) -> bool) -> Vec<(SystemTime, PathBuf)> {
        let is_file = |entry: &&DirEntry| match entry.file_type() {
            Ok(kind) if kind.is_symlink() => entry.path().is_file(),
            kind => kind.is_ok_and(|kind| kind.is_file()),
        };
        let named = self.names.iter().filter(|entry| is_it(&entry.path()));
        let files = named.filter(is_file).map(DirEntry::path);
        let dated = files.filter_map(|path| Some((file_time(&path)?, path)));
        dated.filter(|(written, _)| *written >= since).collect()
    }

    /// Folders that may have checkpoints in them.
    fn folders(&self) -> Vec<Folder> {
        if self.has(&ENVIRONMENTS) { Vec::new() } else { self.names.iter().filter_map(Folder::of).collect() }
    }
}

fn file_time(path: &Path) -> Option<SystemTime> {
    fs::metadata(path).and_then(|metadata| metadata.modified()).ok()
}

/// Whether a file that is named as those of `torch.save` often are is something else: packed data, for the most part.
fn is_other_bin(path: &Path) -> bool {
    if path.extension().is_none_or(|ending| ending != "bin") {
        return false;
    }
    let mut begin = [0; 2];
    let read = File::open(path).and_then(|mut file| file.read_exact(&mut begin));
    // A zip archive, or a pickle.
    read.is_err() || begin != *b"PK" && begin[0] != 0x80
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::time::Duration;

    use super::*;

    /// A zip archive without files in it.
    const ZIP: &[u8] = b"PK\x03\x04 a file PK\x05\x06\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0";

    struct Place {
        folder: tempfile::TempDir,
        begun: SystemTime,
    }

    impl Place {
        fn new() -> Self {
            Self { folder: tempfile::tempdir().unwrap(), begun: SystemTime::now() - Duration::from_secs(10) }
        }

        fn write(&self, name: &str, bytes: &[u8], age: u64) {
            let path = self.folder.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, bytes).unwrap();
            let time = SystemTime::now() - Duration::from_secs(age);
            File::options().append(true).open(path).unwrap().set_modified(time).unwrap();
        }

        fn found(&self, reach: Reach) -> Vec<String> {
            let name = |path: PathBuf| path.strip_prefix(self.folder.path()).unwrap().to_str().unwrap().to_owned();
            within(self.folder.path(), self.begun, reach).into_iter().map(name).collect()
        }
    }

    #[test]
    fn only_what_was_written_since_and_looks_like_one() {
        let place = Place::new();
        assert!(place.found(REACH).is_empty());
        for name in ["old.pt", "out/best.pth"] {
            place.write(name, b"whole", 3600);
        }
        for name in ["notes.txt", ".cache/a.pt", "before-t-1-start-1/c.pt", "1/2/3/4/5/6/7/f.pt", "data/train.bin"] {
            place.write(name, b"whole", 1);
        }
        assert!(place.found(REACH).is_empty());
        place.write("out/last.pth.tar", b"whole", 2);
        place.write("out/deep/epoch.ckpt", b"whole", 3);
        let both = ["out/last.pth.tar", "out/deep/epoch.ckpt"];
        assert_eq!(place.found(REACH), both);
        place.write("out/half.pt", b"PK\x03\x04 cut", 1);
        assert_eq!(place.found(REACH), both);
    }

    #[test]
    fn whatever_the_folder_and_the_form_are_called() {
        let place = Place::new();
        let names =
            ["_out/a.bin", ".work/b.pkl", "params.npz", "flax/c.msgpack", "runs/exp1/last.pt", "2/3/4/5/6/7/deep.pt"];
        for (age, name) in (1..).zip(names) {
            place.write(name, ZIP, age);
        }
        assert_eq!(place.found(REACH), names);
    }

    #[test]
    fn of_a_run_folder_only_what_lowtide_wrote_is_passed_over() {
        let place = Place::new();
        for name in ["start-1.log", "events.jsonl", "before-start-2/a.pt", "resume-2/b/c.pt", "memory/snapshot.pickle"]
        {
            place.write(&format!("runs/t-1/{name}"), ZIP, 1);
        }
        assert!(place.found(REACH).is_empty());
        place.write("runs/t-1/last.pt", ZIP, 1);
        place.write("memory/net.pt", ZIP, 2);
        assert_eq!(place.found(REACH), ["runs/t-1/last.pt", "memory/net.pt"]);
    }

    #[test]
    fn a_large_data_set_does_not_hide_what_stands_behind_it() {
        let place = Place::new();
        let reach = Reach { names: 20, all_names: 70, ..REACH };
        for folder in ["a", "b", "c"] {
            for number in 0..21 {
                place.write(&format!("{folder}/{number}.png"), b"", 1);
            }
        }
        place.write("z/last.pt", ZIP, 1);
        assert_eq!(place.found(reach), ["z/last.pt"]);
    }

    #[test]
    fn what_links_lead_to_is_found_once() {
        let (place, disk) = (Place::new(), tempfile::tempdir().unwrap());
        let link = |target: &Path, name: &str| symlink(target, place.folder.path().join(name)).unwrap();
        for name in ["exp/epoch_0.pt", "exp/in/epoch_1.pt", "linked", "before-t-1-start-1/a.pt", "wandb/b.pt"] {
            let path = disk.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, ZIP).unwrap();
        }
        link(&disk.path().join("exp"), "ckpt");
        assert_eq!(place.found(REACH).len(), 2);
        link(&disk.path().join("exp"), "another");
        link(&disk.path().join("exp/in"), "deeper");
        link(&disk.path().join("linked"), "last.pt");
        link(&disk.path().join("before-t-1-start-1"), "kept");
        link(&disk.path().join("wandb"), "log");
        link(&disk.path().join("none"), "broken");
        link(place.folder.path(), "round");
        link(Path::new("/"), "root");
        let mut found = place.found(REACH);
        found.sort();
        assert_eq!(found, ["ckpt/epoch_0.pt", "deeper/epoch_1.pt", "last.pt"]);
        // The folder itself before a link to it.
        place.write("out/best.pt", ZIP, 1);
        link(Path::new("out"), "a");
        link(Path::new("out"), "z");
        assert!(place.found(REACH).contains(&"out/best.pt".to_owned()) && place.found(REACH).len() == 4);
    }

    #[test]
    fn a_folder_that_is_one_checkpoint_is_kept_as_one() {
        let place = Place::new();
        let names = ["model.safetensors", "optimizer.pt", "trainer_state.json", "config.json", "pytorch_model.bin"];
        for name in names {
            place.write(&format!("out/checkpoint-5/{name}"), ZIP, 1);
        }
        place.write("out/checkpoint-5/global_step5/rank_0.pt", ZIP, 1);
        place.write("dcp/step/.metadata", ZIP, 2);
        place.write("dcp/step/__0_0.distcp", ZIP, 2);
        // What was written by an earlier run is in nobody's way.
        place.write("out/checkpoint-4/trainer_state.json", b"{}", 3600);
        place.write("out/trainer_state.json", b"{}", 1);
        assert_eq!(place.found(REACH), ["out/checkpoint-5", "dcp/step"]);
    }

    #[test]
    fn several_states_are_kept_with_what_stands_beside_them() {
        let place = Place::new();
        place.write("out/model.pt", ZIP, 1);
        place.write("out/optimizer.pt", ZIP, 2);
        place.write("out/args.json", b"{}", 3);
        place.write("out/notes.txt", b"older", 3600);
        place.write("one/model.pt", ZIP, 4);
        place.write("one/args.json", b"{}", 4);
        assert_eq!(place.found(REACH), ["out/model.pt", "out/optimizer.pt", "out/args.json", "one/model.pt"]);
    }

    #[test]
    fn thousands_of_arrays_do_not_hide_a_checkpoint() {
        let place = Place::new();
        place.write("best.pt", ZIP, 5);
        for number in 0..MOST_STRAYS + 50 {
            place.write(&format!("predictions/{number}.npz"), ZIP, 1);
            place.write(&format!("pictures/{number}.png"), b"", 1);
        }
        place.write("pictures/a.pt", ZIP, 5);
        place.write("pictures/b.pt", ZIP, 5);
        let found = place.found(REACH);
        assert_eq!(found.len(), MOST_STRAYS);
        assert!(["best.pt", "pictures/a.pt", "pictures/b.pt"].iter().all(|name| found.iter().any(|it| it == name)));
        assert!(!found.iter().any(|name| name.ends_with(".png")));
    }
}
