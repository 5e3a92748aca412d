//! Checkpoints that a start from step 0 would write over, brought to safety first.
//!
//! `torch.save` and its kin write into the file that is there, so a hard link would be written over with it. The copy stands
//! in a folder of its own, where no pattern of checkpoints finds it, on the same file system, where many need no room
//! for it.
//!
//! Where there is no room it is moved. Of scripts that nothing is known of, the newest file that the run wrote and that
//! looks like a checkpoint is brought to safety (`keep/command/strays.rs`).

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use lowtide_disk::{DiskError, PartialFile, move_to, write_folder};

use crate::KeepError;

/// Where a checkpoint is safe.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refuge {
    /// There is a copy.
    Copy(PathBuf),
    /// It was moved, for there is no room for a copy.
    Moved(PathBuf),
    /// An earlier run made a copy of it.
    Earlier(PathBuf),
}

/// What the names of folders for copies begin with.
const BEFORE: &str = "before-";
/// Deeper than any checkpoint.
const DEEPEST: usize = 8;

/// Brings a checkpoint to safety before a start of a run.
pub(crate) fn refuge(checkpoint: &Path, run: &str, start: usize) -> Result<Refuge, KeepError> {
    let nameless = || KeepError::file(checkpoint)(io::ErrorKind::InvalidInput.into());
    let name = checkpoint.file_name().ok_or_else(nameless)?;
    let parent = checkpoint.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let earlier = fs::read_dir(parent).into_iter().flatten().flatten();
    let earlier = earlier.filter(|entry| entry.file_name().as_encoded_bytes().starts_with(BEFORE.as_bytes()));
    if let Some(copy) = earlier.map(|entry| entry.path().join(name)).find(|copy| is_copy(checkpoint, copy)) {
        return Ok(Refuge::Earlier(copy));
    }
    let folders = (1_u32..).map(|number| match number {
        1 => format!("{BEFORE}{run}-start-{start}"),
        number => format!("{BEFORE}{run}-start-{start}-{number}"),
    });
    let mut folders = folders.map(|folder| parent.join(folder));
    let folder = folders.find(|folder| fs::symlink_metadata(folder).is_err()).ok_or_else(nameless)?;
    fs::create_dir(&folder).map_err(KeepError::file(&folder))?;
    let target = folder.join(name);
    let copied = match checkpoint.is_dir() {
        true => write_folder(&target, |folder| copy_folder(checkpoint, folder, DEEPEST)),
        false => copy_file(checkpoint, &target),
    };
    let times = || fs::metadata(checkpoint)?.modified().and_then(|time| File::open(&target)?.set_modified(time));
    match copied {
        Ok(()) => {
            // Without it, the next run only makes a copy more.
            let _ = times();
            Ok(Refuge::Copy(target))
        }
        Err(error) if is_full(&error) => {
            move_to(checkpoint, &target)?;
            Ok(Refuge::Moved(target))
        }
        Err(error) => {
            let _ = fs::remove_dir(&folder);
            Err(error.into())
        }
    }
}

fn is_full(error: &DiskError) -> bool {
    matches!(
        error.source.kind(),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge
    )
}

fn copy_file(from: &Path, to: &Path) -> Result<(), DiskError> {
    let copy = PartialFile::create(to)?;
    // From file to file the system copies by itself, and shares the blocks where the file system can.
    let copied = File::open(from).and_then(|mut from| io::copy(&mut from, &mut copy.file()));
    copied.map_err(DiskError::at(to))?;
    copy.finish().map(drop)
}

fn copy_folder(from: &Path, to: &Path, depth: usize) -> Result<(), DiskError> {
    let too_deep = || DiskError::at(from)(io::Error::other("folders within each other, deeper than any checkpoint"));
    for entry in fs::read_dir(from).map_err(DiskError::at(from))? {
        let entry = entry.map_err(DiskError::at(from))?;
        let (path, target) = (entry.path(), to.join(entry.file_name()));
        let metadata = fs::metadata(&path).map_err(DiskError::at(&path))?;
        if metadata.is_dir() {
            fs::create_dir(&target).map_err(DiskError::at(&target))?;
            copy_folder(&path, &target, depth.checked_sub(1).ok_or_else(too_deep)?)?;
        } else if metadata.is_file() {
            fs::copy(&path, &target).map_err(DiskError::at(&target))?;
        }
    }
    Ok(())
}

/// Whether one is a copy of the other, by its time and its size.
fn is_copy(checkpoint: &Path, copy: &Path) -> bool {
    let time = |path: &Path| fs::metadata(path).and_then(|metadata| metadata.modified()).ok();
    time(copy).is_some() && time(copy) == time(checkpoint) && size(copy, DEEPEST) == size(checkpoint, DEEPEST)
}

fn size(path: &Path, depth: usize) -> u64 {
    let Ok(metadata) = fs::metadata(path) else { return 0 };
    if !metadata.is_dir() || depth == 0 {
        return metadata.len();
    }
    fs::read_dir(path).into_iter().flatten().flatten().map(|entry| size(&entry.path(), depth - 1)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_outlives_what_is_written_over() {
        let folder = tempfile::tempdir().unwrap();
        let checkpoint = folder.path().join("ckpt.pt");
        fs::write(&checkpoint, "first").unwrap();
        let copy = folder.path().join("before-train-1-start-1/ckpt.pt");
        assert_eq!(refuge(&checkpoint, "train-1", 1).unwrap(), Refuge::Copy(copy.clone()));
        assert_eq!(refuge(&checkpoint, "train-2", 1).unwrap(), Refuge::Earlier(copy.clone()));
        // In its place, as torch.save does.
        fs::write(&checkpoint, "again").unwrap();
        assert_eq!(fs::read_to_string(&copy).unwrap(), "first");
        File::options().append(true).open(&checkpoint).unwrap().set_modified(std::time::UNIX_EPOCH).unwrap();
        let next = folder.path().join("before-train-1-start-1-2/ckpt.pt");
        assert_eq!(refuge(&checkpoint, "train-1", 1).unwrap(), Refuge::Copy(next));
    }

    #[test]
    fn a_folder_is_copied_whole() {
        let folder = tempfile::tempdir().unwrap();
        let checkpoint = folder.path().join("checkpoint-5");
        fs::create_dir_all(checkpoint.join("global_step5")).unwrap();
        fs::write(checkpoint.join("model.safetensors"), "weights").unwrap();
        fs::write(checkpoint.join("global_step5/optimizer.pt"), "moments").unwrap();
        let copy = folder.path().join("before-t-start-3/checkpoint-5");
        assert_eq!(refuge(&checkpoint, "t", 3).unwrap(), Refuge::Copy(copy.clone()));
        assert_eq!(fs::read_to_string(copy.join("global_step5/optimizer.pt")).unwrap(), "moments");
        assert_eq!(refuge(&checkpoint, "t", 3).unwrap(), Refuge::Earlier(copy));
    }
}
