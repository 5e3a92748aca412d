//! The checkpoints of a run: a folder each, named by its step, and `best`, a small file that names the step of the one that
//! evaluated best.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use lowtide_core::{SCHEMA, Step};
use serde::{Deserialize, Serialize};

use crate::error::{Result, TrainError};

/// The folder of all checkpoints in that of a run.
pub(super) const CHECKPOINTS: &str = "checkpoints";
/// There only in a whole checkpoint.
pub(super) const STATE: &str = "state.json";
const BEST: &str = "best";
/// How a checkpoint ends that is being removed.
const OLD: &str = ".old";

/// The folder of all checkpoints.
#[derive(Clone, Debug)]
pub(crate) struct Checkpoints {
    pub(super) path: PathBuf,
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

    /// Where the checkpoint of a step is.
    pub(crate) fn of(&self, step: Step) -> PathBuf {
        self.path.join(format!("{:08}", step.get()))
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
    pub(crate) fn best(&self) -> Option<Step> {
        self.read_best().map(|best| best.step)
    }

    /// Takes note of one that is there and was evaluated. A loss that is no finite number is never the best.
    pub(crate) fn note_loss(&self, step: Step, eval_loss: f64) -> Result<()> {
        let is_better = eval_loss.is_finite() && self.read_best().is_none_or(|best| eval_loss < best.eval_loss);
        if !is_better {
            return Ok(());
        }
        let text = serde_json::to_string(&Best { schema: SCHEMA, step, eval_loss }).expect("plain numbers") + "\n";
        Ok(lowtide_disk::write(&self.path.join(BEST), text.as_bytes())?)
    }

    /// Removes all but the newest `keep` and the best.
    pub(crate) fn prune(&self, keep: u32) -> Result<()> {
        let all = self.complete();
        let surplus = all.len().saturating_sub(keep as usize);
        let best = self.best();
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

    fn read_best(&self) -> Option<Best> {
        let text = fs::read_to_string(self.path.join(BEST)).ok()?;
        let best: Best = serde_json::from_str(&text).ok()?;
        self.of(best.step).is_dir().then_some(best)
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
            assert_eq!(checkpoints.best(), Some(Step(best)));
        }
        fs::remove_dir(checkpoints.of(Step(3))).unwrap();
        assert_eq!(checkpoints.best(), None);
    }
}
