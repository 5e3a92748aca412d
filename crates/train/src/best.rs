//! Which checkpoint evaluated best: `checkpoints/best`, a small file that names its step.

use std::fs;
use std::path::Path;

use lowtide_core::{SCHEMA, Step};
use serde::{Deserialize, Serialize};

use crate::checkpoint::{at, path_of, sync, write_synced};
use crate::error::Result;

const BEST: &str = "best";
const PARTIAL: &str = ".best.partial";

#[derive(Serialize, Deserialize)]
struct Best {
    schema: u32,
    step: Step,
    eval_loss: f64,
}

/// The step of the best checkpoint, where one was evaluated and is still there.
pub(crate) fn step(folder: &Path) -> Option<Step> {
    read(folder).map(|best| best.step)
}

/// Takes note of a checkpoint that is there and was evaluated. A loss that is no finite number is never the best.
pub(crate) fn note(folder: &Path, step: Step, eval_loss: f64) -> Result<()> {
    let is_better = eval_loss.is_finite() && read(folder).is_none_or(|best| eval_loss < best.eval_loss);
    if !is_better {
        return Ok(());
    }
    let text = serde_json::to_string(&Best { schema: SCHEMA, step, eval_loss }).expect("plain numbers") + "\n";
    let (path, partial) = (folder.join(BEST), folder.join(PARTIAL));
    let written = write_synced(&partial, text.as_bytes()).and_then(|()| fs::rename(&partial, &path));
    written.map_err(|error| at(&path, error))?;
    sync(folder)
}

fn read(folder: &Path) -> Option<Best> {
    let text = fs::read_to_string(folder.join(BEST)).ok()?;
    let best: Best = serde_json::from_str(&text).ok()?;
    path_of(folder, best.step).is_dir().then_some(best)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lowest_loss_is_the_best_while_its_checkpoint_is_there() {
        let folder = tempfile::tempdir().unwrap();
        for (number, loss, best) in [(1, 3.0, 1), (2, f64::NAN, 1), (3, 2.0, 3), (4, 2.5, 3)] {
            fs::create_dir(path_of(folder.path(), Step(number))).unwrap();
            note(folder.path(), Step(number), loss).unwrap();
            assert_eq!(step(folder.path()), Some(Step(best)));
        }
        fs::remove_dir(path_of(folder.path(), Step(3))).unwrap();
        assert_eq!(step(folder.path()), None);
    }
}
