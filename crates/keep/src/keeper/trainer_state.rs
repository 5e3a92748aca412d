//! Checkpoints of Hugging Face's Trainer with the micro-batch of the next start.
//!
//! Many versions of transformers (4.36 to 5.1) take the micro-batch of a checkpoint (`train_batch_size` in `trainer_state.json`) and not
//! the one that they are told, but the accumulation that they are told: the effective batch would grow, and memory run out
//! again.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use lowtide_disk::{DiskError, read_text, write_folder};

use crate::KeepError;
use crate::command::checkpoint::{LARGEST_STATE, TRAINER_STATE};

const KEY: &str = "\n  \"train_batch_size\": ";

/// A folder that stands for a checkpoint and has another micro-batch in it: links to all its files, but for one. `None` where
/// the checkpoint says nothing of a micro-batch, or the same.
pub(crate) fn with_batch(checkpoint: &Path, folder: &Path, micro: [u64; 2]) -> Result<Option<PathBuf>, KeepError> {
    let Ok(state) = read_text(&checkpoint.join(TRAINER_STATE), LARGEST_STATE) else { return Ok(None) };
    let Some(state) = changed(&state, micro) else { return Ok(None) };
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

/// The state with a number for another micro-batch; it is that of all cards of a process together. The text is Python's,
/// whose `NaN` is no JSON.
fn changed(state: &str, [before, now]: [u64; 2]) -> Option<String> {
    let at = state.find(KEY)? + KEY.len();
    let digits = state[at..].bytes().take_while(u8::is_ascii_digit).count();
    let number: u64 = state[at..at + digits].parse().ok()?;
    let product = number.checked_mul(now)?;
    let other = if before > 0 && product.is_multiple_of(before) { product / before } else { now };
    (other != number).then(|| format!("{}{other}{}", &state[..at], &state[at + digits..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_batch_is_another() {
        let folder = tempfile::tempdir().unwrap();
        let checkpoint = folder.path().join("checkpoint-5");
        fs::create_dir_all(checkpoint.join("global_step5")).unwrap();
        fs::write(checkpoint.join("model.safetensors"), "weights").unwrap();
        let state =
            "{\n  \"best_metric\": NaN,\n  \"global_step\": 5,\n  \"train_batch_size\": 16,\n  \"trial_name\": null\n}";
        fs::write(checkpoint.join(TRAINER_STATE), state).unwrap();
        let stand_in = with_batch(&checkpoint, &folder.path().join("resume-2"), [8, 4]).unwrap().unwrap();
        assert_eq!(stand_in, folder.path().join("resume-2/checkpoint-5"));
        assert_eq!(fs::read_to_string(stand_in.join("model.safetensors")).unwrap(), "weights");
        assert!(stand_in.join("global_step5").is_dir());
        assert_eq!(fs::read_to_string(stand_in.join(TRAINER_STATE)).unwrap(), state.replace("16", "8"));
        assert_eq!(fs::read_to_string(checkpoint.join(TRAINER_STATE)).unwrap(), state);
        assert_eq!(with_batch(&checkpoint, &folder.path().join("resume-3"), [16, 16]).unwrap(), None);
        // Some versions write none.
        fs::write(checkpoint.join(TRAINER_STATE), state.replace("16", "null")).unwrap();
        assert_eq!(with_batch(&checkpoint, &folder.path().join("resume-3"), [8, 4]).unwrap(), None);
        assert_eq!(with_batch(folder.path(), &folder.path().join("resume-4"), [8, 4]).unwrap(), None);
    }
}
