//! The checkpoints of a run: a folder each, named by its step, and `best`, a small file that names the step of the one that
//! evaluated best.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use lowtide_core::{Seal, Step, sealed};
use serde::{Deserialize, Serialize};

use crate::error::{Result, TrainError};

/// The folder of all checkpoints in that of a run.
pub(super) const CHECKPOINTS: &str = "checkpoints";
/// There only in a whole checkpoint.
pub(super) const STATE: &str = "state.json";
const BEST: &str = "best";
/// The version of [`Best`]: since 2 it has a seal.
const SCHEMA: u32 = 2;
/// More bytes than it ever has.
const MOST_BEST: u64 = 1 << 16;
/// How a checkpoint ends that is being removed.
const OLD: &str = ".old";
/// How one ends whose steps are made again. It is kept: nobody else knows whether it is wanted any more.
const ASIDE: &str = "aside";

/// The folder of all checkpoints.
#[derive(Clone, Debug)]
pub(crate) struct Checkpoints {
    pub(crate) path: PathBuf,
}

#[derive(Serialize, Deserialize)]
struct Best {
    schema: u32,
    step: Step,
    eval_loss: f64,
}

impl Checkpoints {
    /// Those of the run in a folder.
    pub(crate) fn in_run(folder: &Path) -> Checkpoints {
        Checkpoints { path: folder.join(CHECKPOINTS) }
    }

    /// Makes the folder, where it is not there.
    pub(crate) fn make(&self) -> Result<()> {
        match fs::create_dir(&self.path) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(TrainError::at(&self.path)(error)),
            _ => Ok(()),
        }
    }

    /// Where the checkpoint of a step is.
    pub(crate) fn of(&self, step: Step) -> PathBuf {
        self.path.join(format!("{:08}", step.get()))
    }

    /// Where that is, as seen from the folder of the run.
    pub(crate) fn name_of(step: Step) -> String {
        format!("{CHECKPOINTS}/{:08}", step.get())
    }

    /// Every complete checkpoint, oldest first.
    pub(crate) fn complete(&self) -> Vec<(Step, PathBuf)> {
        let entries = fs::read_dir(&self.path).into_iter().flatten().flatten();
        let mut found: Vec<(Step, PathBuf)> = entries
            .filter_map(|entry| {
                let step = Step(entry.file_name().to_str()?.parse().ok()?);
                entry.path().join(STATE).is_file().then(|| (step, entry.path()))
            })
            .collect();
        found.sort();
        found
    }

    /// The newest, by its step.
    pub(crate) fn newest(&self) -> Option<(Step, PathBuf)> {
        self.complete().pop()
    }

    /// The step of the best one, where one was evaluated and is still there.
    pub(crate) fn best(&self) -> Result<Option<Step>> {
        Ok(self.read_best()?.map(|best| best.step))
    }

    /// Takes note of one that is there and was evaluated. A loss that is no finite number is never the best. What stands
    /// there and cannot be read is replaced.
    pub(crate) fn note_loss(&self, step: Step, eval_loss: f64) -> Result<()> {
        let before = self.read_best().unwrap_or_default();
        let is_better = eval_loss.is_finite() && before.is_none_or(|best| eval_loss < best.eval_loss);
        if !is_better {
            return Ok(());
        }
        let text = sealed(serde_json::to_string(&Best { schema: SCHEMA, step, eval_loss }).expect("plain numbers"));
        Ok(lowtide_disk::write(&self.path.join(BEST), text.as_bytes())?)
    }

    /// Puts those after a step under another name; what a person should know of that, in words.
    pub(super) fn set_aside_after(&self, step: Step) -> Result<Option<String>> {
        let newer: Vec<PathBuf> =
            self.complete().into_iter().filter(|(other, _)| *other > step).map(|(_, path)| path).collect();
        for path in &newer {
            let names = (1..).map(|number| match number {
                1 => path.with_extension(ASIDE),
                number => path.with_extension(format!("{ASIDE}-{number}")),
            });
            let free = names.into_iter().find(|name| !name.exists()).expect("there are enough numbers");
            fs::rename(path, &free).map_err(TrainError::at(path))?;
        }
        if self.read_best().is_ok_and(|best| best.is_none()) && !newer.is_empty() {
            remove(&self.path.join(BEST))?;
        }
        let words = || {
            format!(
                "checkpoints after step {step} were renamed to {CHECKPOINTS}/STEP.{ASIDE}, since their steps are made \
                 again: delete them when they are not wanted"
            )
        };
        Ok((!newer.is_empty()).then(words))
    }

    /// Removes all but the newest `keep` and the best.
    pub(crate) fn prune(&self, keep: u32) -> Result<()> {
        let all = self.complete();
        let surplus = all.len().saturating_sub(keep as usize);
        // Where it is not known which is the best, none is removed that may be it.
        let Ok(best) = self.best() else { return Ok(()) };
        for (_, path) in all[..surplus].iter().filter(|(step, _)| Some(*step) != best) {
            // Renamed first, so that a kill in between leaves no half checkpoint under a good name.
            let name = path.file_name().and_then(|name| name.to_str()).expect("complete() gives plain names");
            let old = self.path.join(format!(".{name}{OLD}"));
            remove(&old)?;
            fs::rename(path, &old).map_err(TrainError::at(path))?;
            remove(&old)?;
        }
        Ok(())
    }

    /// Removes what a kill left half-written or half-removed.
    pub(super) fn sweep(&self) -> Result<()> {
        for entry in fs::read_dir(&self.path).map_err(TrainError::at(&self.path))?.flatten() {
            let name = entry.file_name();
            let name = name.to_string_lossy();
            let is_old = name.starts_with('.') && name.ends_with(OLD);
            if is_old || lowtide_disk::leftover_of(&name).is_some() {
                remove(&entry.path())?;
            }
        }
        Ok(())
    }

    fn read_best(&self) -> Result<Option<Best>> {
        let path = self.path.join(BEST);
        let text = match lowtide_disk::read_text(&path, MOST_BEST) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            text => text.map_err(TrainError::at(&path))?,
        };
        let damaged = |problem: &str| TrainError::Checkpoint { path: path.clone(), problem: problem.to_owned() };
        let seal = Seal::of(text.as_bytes());
        let best: Best = serde_json::from_str(&text).map_err(|error| damaged(&format!("it is damaged: {error}")))?;
        match (best.schema, seal) {
            (SCHEMA, Seal::Whole) | (1, Seal::Missing) => {}
            _ => return Err(damaged("it is damaged: its checksum is wrong")),
        }
        Ok(self.of(best.step).is_dir().then_some(best))
    }
}

fn remove(path: &Path) -> Result<()> {
    let removed = if path.is_file() { fs::remove_file(path) } else { fs::remove_dir_all(path) };
    match removed {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(TrainError::at(path)(error)),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lowest_loss_is_the_best_while_its_checkpoint_is_there() {
        let folder = tempfile::tempdir().unwrap();
        let checkpoints = Checkpoints { path: folder.path().to_owned() };
        for (number, loss, best) in [(1, 3.0, 1), (2, f64::NAN, 1), (3, 2.0, 3), (4, 2.5, 3)] {
            fs::create_dir(checkpoints.of(Step(number))).unwrap();
            checkpoints.note_loss(Step(number), loss).unwrap();
            assert_eq!(checkpoints.best().unwrap(), Some(Step(best)));
        }
        fs::remove_dir(checkpoints.of(Step(3))).unwrap();
        assert_eq!(checkpoints.best().unwrap(), None);
    }
}
