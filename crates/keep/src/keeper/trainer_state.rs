//! Checkpoints of Hugging Face's Trainer without the micro-batch that they were written with.
//!
//! Versions 4.36 to 5.1 of transformers take the micro-batch of a checkpoint (`train_batch_size` in `trainer_state.json`) and not the one
//! that they are told, but the accumulation that they are told: the effective batch would grow, and memory run out again.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use lowtide_disk::{DiskError, read_text, write_folder};

use crate::KeepError;
use crate::command::checkpoint::{LARGEST_STATE, TRAINER_STATE};

const KEY: &str = "\n  \"train_batch_size\": ";

/// A folder that stands for a checkpoint and has no micro-batch in it: links to all its files, but for one. `None` where
/// the checkpoint has none either.
pub(crate) fn without_batch(checkpoint: &Path, folder: &Path) -> Result<Option<PathBuf>, KeepError> {
    let Ok(state) = read_text(&checkpoint.join(TRAINER_STATE), LARGEST_STATE) else { return Ok(None) };
    let Some(state) = forgetful(&state) else { return Ok(None) };
    let (Ok(original), Some(name)) = (checkpoint.canonicalize(), checkpoint.file_name()) else { return Ok(None) };
    fs::create_dir_all(folder).map_err(KeepError::file(folder))?;
    let stand_in = folder.join(name);
    write_folder(&stand_in, |folder| {
        for entry in fs::read_dir(&original).map_err(DiskError::at(&original))?.flatten() {
            if entry.file_name() != TRAINER_STATE {
                symlink(entry.path(), folder.join(entry.file_name())).map_err(DiskError::at(folder))?;
            }
        }
        let path = folder.join(TRAINER_STATE);
        fs::write(&path, state).map_err(DiskError::at(&path))
    })?;
    Ok(Some(stand_in))
}

/// The state without the number; the text is Python's, whose `NaN` is no JSON.
fn forgetful(state: &str) -> Option<String> {
    let at = state.find(KEY)? + KEY.len();
    let digits = state[at..].bytes().take_while(u8::is_ascii_digit).count();
    (digits > 0).then(|| format!("{}null{}", &state[..at], &state[at + digits..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_batch_is_left_out() {
        let folder = tempfile::tempdir().unwrap();
        let checkpoint = folder.path().join("checkpoint-5");
        fs::create_dir_all(checkpoint.join("global_step5")).unwrap();
        fs::write(checkpoint.join("model.safetensors"), "weights").unwrap();
        let state =
            "{\n  \"best_metric\": NaN,\n  \"global_step\": 5,\n  \"train_batch_size\": 16,\n  \"trial_name\": null\n}";
        fs::write(checkpoint.join(TRAINER_STATE), state).unwrap();
        let stand_in = without_batch(&checkpoint, &folder.path().join("resume-2")).unwrap().unwrap();
        assert_eq!(stand_in, folder.path().join("resume-2/checkpoint-5"));
        assert_eq!(fs::read_to_string(stand_in.join("model.safetensors")).unwrap(), "weights");
        assert!(stand_in.join("global_step5").is_dir());
        assert_eq!(fs::read_to_string(stand_in.join(TRAINER_STATE)).unwrap(), state.replace("16", "null"));
        assert_eq!(fs::read_to_string(checkpoint.join(TRAINER_STATE)).unwrap(), state);
        // Newer versions write none.
        fs::write(checkpoint.join(TRAINER_STATE), state.replace("16", "null")).unwrap();
        assert_eq!(without_batch(&checkpoint, &folder.path().join("resume-3")).unwrap(), None);
        assert_eq!(without_batch(folder.path(), &folder.path().join("resume-4")).unwrap(), None);
    }
}
