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
}

/// Where checkpoints are, and what is known of them.
#[derive(Debug, Clone)]
pub(crate) struct CheckpointKind {
    /// Patterns of file names.
    pub(crate) patterns: Vec<String>,
    /// The file that is written last, where they are folders.
    pub(crate) last_file: Option<&'static str>,
    pub(crate) form: Form,
}

impl CheckpointKind {
    /// The newest file or folder that was written since a moment, is whole and was not refused. An older one is another
    /// run's, and memory may have run out while the newest was being written.
    pub(crate) fn newest(&self, since: SystemTime, refused: &[PathBuf]) -> CheckpointSearch {
        let mut search = CheckpointSearch::default();
        for path in self.by_age(since) {
            if refused.contains(&path) {
                search.refused.push(path);
            } else if !self.is_whole(&path) {
                search.damaged.push(path);
            } else {
                let step = step_of(&path);
                return CheckpointSearch { found: Some(Checkpoint { path, step }), ..search };
            }
        }
        search
    }

    /// Whether a checkpoint is whole. A folder has the file that is written last, where that is known.
    pub(crate) fn is_whole(&self, path: &Path) -> bool {
        is_whole(path, self.form) && self.last_file.is_none_or(|file| !path.is_dir() || path.join(file).exists())
    }

    /// All that was written since a moment, the newest first; not what is kept safe of earlier starts.
    pub(crate) fn by_age(&self, since: SystemTime) -> Vec<PathBuf> {
        let written = |path: &PathBuf| path.metadata().and_then(|metadata| metadata.modified()).ok();
        let is_kept = |path: &PathBuf| {
            let folder = path.parent().and_then(Path::file_name).and_then(OsStr::to_str).unwrap_or_default();
            folder.starts_with(BEFORE) && folder.contains("-start-")
        };
        let found = self.patterns.iter().filter_map(|pattern| glob::glob(pattern).ok()).flatten().flatten();
        let found = found.filter(|path| !is_kept(path)).filter_map(|path| Some((written(&path)?, path)));
        let mut found: Vec<(SystemTime, PathBuf)> = found.filter(|(time, _)| *time >= since).collect();
        found.sort();
        found.dedup();
        found.into_iter().rev().map(|(_, path)| path).collect()
    }
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
        CheckpointKind { patterns: vec![pattern.display().to_string()], last_file, form: Form::Torch }
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
        assert_eq!(kind.newest(begun, &[]), CheckpointSearch::default());
        written("old.pt", ZIP, -10);
        assert_eq!(kind.newest(begun, &[]), CheckpointSearch::default());
        written("a.pt", ZIP, 20);
        written("b.pt", ZIP, 10);
        written("half.pt", &ZIP[..12], 30);
        let path = |name| folder.path().join(name);
        let found = |name| Some(Checkpoint { path: path(name), step: None });
        let damaged = || vec![path("half.pt")];
        let search = CheckpointSearch { found: found("a.pt"), damaged: damaged(), refused: Vec::new() };
        assert_eq!(kind.newest(begun, &[]), search);
        let search = CheckpointSearch { found: found("b.pt"), damaged: damaged(), refused: vec![path("a.pt")] };
        assert_eq!(kind.newest(begun, &[path("a.pt")]), search);
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
        let found = |last_file| kind(&folders, last_file).newest(SystemTime::UNIX_EPOCH, &[]).found.map(|it| it.path);
        assert_eq!(found(None), Some(named("checkpoint-8")));
        assert_eq!(found(Some(TRAINER_STATE)), Some(named("checkpoint-7")));
    }
}
