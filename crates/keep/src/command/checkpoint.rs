//! The newest checkpoint that is whole.
//!
//! A checkpoint counts only if it was written since the first start, for an older one belongs to another run, and only
//! if it is whole (`wholeness.rs`): memory may run out while it is written. One that a start could not resume from does not count
//! either. Where trainers write theirs and what makes them resume is
//! one table (`trainers/checkpoints/knowledge.rs`); a flag is added only where the script shows that it takes it, and
//! in a copy of the script the call that trains gets the checkpoint (`trainers/resume_call.rs`). Of Hugging Face's
//! checkpoints a folder of links with the new micro-batch is given (`keep/keeper/trainer_state.rs`), since many
//! versions take the checkpoint's instead of the one they are told.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use lowtide_disk::read_text;
use lowtide_tensorfile::Tree;

use crate::command::contents::{Contents, written};
use crate::command::start_folders::StartFolders;
use crate::command::strays::may_be_state;
use crate::command::wholeness::{Form, is_whole};

/// What the names of folders begin with in which checkpoints are kept safe.
pub(crate) const BEFORE: &str = "before-";
/// What Hugging Face's Trainer writes of itself in each checkpoint.
pub(crate) const TRAINER_STATE: &str = "trainer_state.json";
/// It has a line for each report of the whole training.
pub(crate) const LARGEST_STATE: u64 = 64 << 20;

/// A checkpoint that is whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Checkpoint {
    /// The file or folder.
    pub path: PathBuf,
    /// The step that it was written at, where it says so.
    pub step: Option<u64>,
    /// When it was written.
    pub written: SystemTime,
}

/// What a look for a checkpoint found.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct CheckpointSearch {
    /// The newest whole one.
    pub(crate) found: Option<Checkpoint>,
    /// Newer ones that are not whole, the newest first.
    pub(crate) damaged: Vec<PathBuf>,
    /// Newer ones that a start could not resume from.
    pub(crate) refused: Vec<PathBuf>,
    /// Folders that the last start may have made, or another run meanwhile: what is in them is not looked at.
    pub(crate) unclear: Vec<PathBuf>,
}

/// Where checkpoints are, and what is known of them.
#[derive(Debug, Clone)]
pub(crate) struct CheckpointKind {
    /// Patterns of file names.
    pub(crate) patterns: Vec<String>,
    /// The file that is written last, where they are folders.
    pub(crate) last_file: Option<&'static str>,
    pub(crate) form: Form,
    /// Patterns of folders that each start makes anew.
    pub(crate) start_folders: Vec<String>,
}

impl CheckpointKind {
    /// The newest file or folder that was written since a moment, is whole and was not refused. An older one is another
    /// run's, and memory may have run out while the newest was being written. One that was refused and is written anew is
    /// another one.
    pub(crate) fn newest(&self, since: SystemTime, refused: &[Checkpoint], own: &StartFolders) -> CheckpointSearch {
        let mut search = CheckpointSearch { unclear: own.unclear.clone(), ..CheckpointSearch::default() };
        for (written, path) in self.dated(since) {
            if own.is_anothers(&path) {
                continue;
            }
            if refused.iter().any(|it| it.path == path && it.written == written) {
                search.refused.push(path);
            } else if !self.is_whole(&path) || !self.is_of_since(&path, since) {
                search.damaged.push(path);
            } else {
                let step = step_of(&path);
                return CheckpointSearch { found: Some(Checkpoint { path, step, written }), ..search };
            }
        }
        search
    }

    /// Whether a checkpoint is all of what was written since a moment. A folder of an earlier run that is written over in its
    /// place is half of each, until what is written last is there.
    fn is_of_since(&self, path: &Path, since: SystemTime) -> bool {
        if let Some(last) = self.last_file.filter(|_| path.is_dir()) {
            return written(&path.join(last)).is_some_and(|written| written >= since);
        }
        let files = Contents::of(path).files;
        files.iter().filter(|file| may_be_state(&file.place)).all(|file| file.written >= Some(since))
    }

    /// Whether a whole one was written since a moment into a folder that is not another run's.
    pub(crate) fn has_one(&self, since: SystemTime, own: &StartFolders) -> bool {
        self.newest(since, &[], own).found.is_some()
    }

    /// Whether a checkpoint is whole. A folder has the file that is written last, where that is known.
    pub(crate) fn is_whole(&self, path: &Path) -> bool {
        is_whole(path, self.form) && self.last_file.is_none_or(|file| !path.is_dir() || path.join(file).exists())
    }

    /// All that was written since a moment, the newest first; not what is kept safe of earlier starts.
    pub(crate) fn by_age(&self, since: SystemTime) -> Vec<PathBuf> {
        self.dated(since).into_iter().map(|(_, path)| path).collect()
    }

    fn dated(&self, since: SystemTime) -> Vec<(SystemTime, PathBuf)> {
        let is_kept = |path: &PathBuf| path.parent().and_then(Path::file_name).is_some_and(is_kept_folder);
        let found = self.patterns.iter().filter_map(|pattern| glob::glob(pattern).ok()).flatten().flatten();
        let found = found.filter(|path| !is_kept(path)).filter_map(|path| Some((written(&path)?, path)));
        let mut found: Vec<(SystemTime, PathBuf)> = found.filter(|(time, _)| *time >= since).collect();
        found.sort();
        found.dedup();
        found.reverse();
        found
    }
}

/// Whether a folder has a name of those in which checkpoints are kept safe: `before-start-2`, `before-train-1-start-2`.
pub(crate) fn is_kept_folder(name: &OsStr) -> bool {
    let name = name.to_string_lossy();
    name.strip_prefix(BEFORE).is_some_and(|rest| rest.starts_with("start-") || rest.contains("-start-"))
}

/// Where checkpoints of files have their step.
const STEP_KEYS: [&str; 5] = ["iter_num", "global_step", "step", "iteration", "iter"];

/// The step of a checkpoint: what it says itself, or its name.
fn step_of(path: &Path) -> Option<u64> {
    let said = match path.is_dir() {
        true => {
            read_text(&path.join(TRAINER_STATE), LARGEST_STATE).ok().and_then(|state| number(&state, "global_step"))
        }
        false => lowtide_tensorfile::open(path).ok().and_then(|contents| {
            STEP_KEYS.iter().find_map(|key| match contents.tree.child(key)? {
                Tree::Int(step) => u64::try_from(*step).ok(),
                _ => None,
            })
        }),
    };
    said.or_else(|| {
        let name = path.file_stem()?.to_str()?;
        let at = ["step=", "step_", "checkpoint-"].iter().find_map(|word| Some(name.find(word)? + word.len()))?;
        name[at..].split(|it: char| !it.is_ascii_digit()).next()?.parse().ok()
    })
}

/// The number of a key of the outermost level, in JSON as Python writes it with an indent of two.
fn number(state: &str, key: &str) -> Option<u64> {
    let (_, rest) = state.split_once(&format!("\n  \"{key}\": "))?;
    rest.split(|it: char| !it.is_ascii_digit()).next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};
    use std::time::Duration;

    use lowtide_tensorfile::{PtValue, write_pt};

    use super::*;

    /// A zip archive without files in it.
    const ZIP: &[u8] = b"PK\x03\x04 a file PK\x05\x06\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0";

    fn kind(pattern: &Path, last_file: Option<&'static str>) -> CheckpointKind {
        let patterns = vec![pattern.display().to_string()];
        CheckpointKind { patterns, last_file, form: Form::Torch, start_folders: Vec::new() }
    }

    fn newest(kind: &CheckpointKind, since: SystemTime, refused: &[Checkpoint]) -> CheckpointSearch {
        kind.newest(since, refused, &StartFolders::default())
    }

    #[test]
    fn the_newest_that_this_run_wrote_is_taken() {
        let folder = tempfile::tempdir().unwrap();
        let kind = kind(&folder.path().join("*.pt"), None);
        let begun = SystemTime::now();
        let written = |name: &str, bytes: &[u8], seconds: i64| {
            let path = folder.path().join(name);
            fs::write(&path, bytes).unwrap();
            let offset = Duration::from_secs(seconds.unsigned_abs());
            let file = File::options().append(true).open(path).unwrap();
            file.set_modified(if seconds < 0 { begun - offset } else { begun + offset }).unwrap();
        };
        assert_eq!(newest(&kind, begun, &[]), CheckpointSearch::default());
        written("old.pt", ZIP, -10);
        assert_eq!(newest(&kind, begun, &[]), CheckpointSearch::default());
        written("a.pt", ZIP, 20);
        written("b.pt", ZIP, 10);
        written("half.pt", &ZIP[..12], 30);
        let path = |name| folder.path().join(name);
        let checkpoint =
            |name, seconds| Checkpoint { path: path(name), step: None, written: begun + Duration::from_secs(seconds) };
        let damaged = || vec![path("half.pt")];
        let found = |checkpoint| CheckpointSearch { found: Some(checkpoint), damaged: damaged(), ..Default::default() };
        assert_eq!(newest(&kind, begun, &[]), found(checkpoint("a.pt", 20)));
        let search = CheckpointSearch { refused: vec![path("a.pt")], ..found(checkpoint("b.pt", 10)) };
        assert_eq!(newest(&kind, begun, &[checkpoint("a.pt", 20)]), search);
        // Written anew, it is another one.
        assert_eq!(newest(&kind, begun, &[checkpoint("a.pt", 15)]), found(checkpoint("a.pt", 20)));
        let all = ["half.pt", "a.pt", "b.pt", "old.pt"].map(path);
        assert_eq!(kind.by_age(SystemTime::UNIX_EPOCH), all);
    }

    #[test]
    fn a_checkpoint_says_its_step() {
        let folder = tempfile::tempdir().unwrap();
        let named = |name: &str| folder.path().join(name);
        let dict = |key: &'static str| PtValue::Dict(vec![(PtValue::Str(key.into()), PtValue::Int(250))]);
        write_pt(&named("ckpt.pt"), &dict("iter_num")).unwrap();
        write_pt(&named("epoch=3-step=400.ckpt"), &dict("state")).unwrap();
        write_pt(&named("none.pt"), &dict("state")).unwrap();
        for name in ["checkpoint-7", "checkpoint-8", "step_9", "epoch_3"] {
            fs::create_dir(named(name)).unwrap();
        }
        fs::write(named("checkpoint-7").join(TRAINER_STATE), "{\n  \"epoch\": NaN,\n  \"global_step\": 70\n}").unwrap();
        let steps =
            ["ckpt.pt", "epoch=3-step=400.ckpt", "none.pt", "checkpoint-7", "checkpoint-8", "step_9", "epoch_3"];
        let steps = steps.map(|name| step_of(&named(name)));
        assert_eq!(steps, [Some(250), Some(400), None, Some(70), Some(8), Some(9), None]);
        // The Trainer writes its state last.
        let folders = named("checkpoint-*");
        fs::write(named("checkpoint-8").join("optimizer.pt"), ZIP).unwrap();
        let found = |last_file| newest(&kind(&folders, last_file), SystemTime::UNIX_EPOCH, &[]).found.map(|it| it.path);
        assert_eq!(found(None), Some(named("checkpoint-8")));
        assert_eq!(found(Some(TRAINER_STATE)), Some(named("checkpoint-7")));
    }
    #[test]
    fn a_folder_that_is_written_over_in_its_place_is_this_runs_when_all_of_it_is() {
        let top = tempfile::tempdir().unwrap();
        let step = top.path().join("step_500");
        fs::create_dir(&step).unwrap();
        let begun = SystemTime::now() - Duration::from_secs(100);
        let write = |name: &str, age: u64| {
            fs::write(step.join(name), ZIP).unwrap();
            let file = File::options().append(true).open(step.join(name)).unwrap();
            file.set_modified(SystemTime::now() - Duration::from_secs(age)).unwrap();
        };
        let is_found = |last_file| newest(&kind(&top.path().join("step_*"), last_file), begun, &[]).found.is_some();
        for (name, age) in [("model.pt", 900), ("optimizer.pt", 900), ("args.json", 900), ("random_states_0.pkl", 900)]
        {
            write(name, age);
        }
        File::open(&step).unwrap().set_modified(SystemTime::now() - Duration::from_secs(900)).unwrap();
        let last = Some("random_states_0.pkl");
        assert_eq!([is_found(None), is_found(last)], [false, false]);
        // Memory ran out between the two.
        write("model.pt", 50);
        assert_eq!([is_found(None), is_found(last)], [false, false]);
        write("optimizer.pt", 49);
        write("random_states_0.pkl", 48);
        assert_eq!([is_found(None), is_found(last)], [true, true]);
        // Of more processes than this run has.
        write("random_states_1.pkl", 900);
        assert_eq!([is_found(None), is_found(last)], [false, true]);
    }
}
