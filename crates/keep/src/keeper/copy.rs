//! Copies of checkpoints, which may be as large as the disk is.
//!
//! Where the file system can, a copy shares the blocks of what it is a copy of: it is there at once, takes no room, and stays as it
//! is when the other one is written over. Else it is written piece by piece, and whoever asked for it is asked before each of
//! them. Files have the times of their originals, by which a copy is known again.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::Path;

use lowtide_disk::{DiskError, PartialFile, write_folder};

use crate::command::contents::{CheckpointFile, Contents, below};

/// How much is written before somebody is asked again.
const PIECE: u64 = 64 << 20;

/// Why there is no copy. Nothing of it is left.
#[derive(Debug)]
pub(crate) enum CopyError {
    Disk(DiskError),
    /// It would have to be written, and there is no room for it.
    NoRoom,
    /// Somebody wants an end.
    ToldToEnd,
}

impl From<DiskError> for CopyError {
    fn from(error: DiskError) -> Self {
        let is_full = matches!(
            error.source.kind(),
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge
        );
        if is_full { Self::NoRoom } else { Self::Disk(error) }
    }
}

/// Copies a checkpoint to a name that nothing has yet.
pub(crate) fn copy(
    checkpoint: &Path,
    contents: &Contents,
    target: &Path,
    may_write: &mut dyn FnMut() -> Result<(), CopyError>,
) -> Result<(), CopyError> {
    if !contents.is_all {
        let error = io::Error::new(io::ErrorKind::InvalidData, "more files, or deeper ones, than a checkpoint has");
        return Err(DiskError::at(checkpoint)(error).into());
    }
    if checkpoint.is_dir() {
        return write_folder(target, |folder| {
            contents.files.iter().try_for_each(|file| copy_into(checkpoint, file, folder, may_write))
        });
    }
    let copy = PartialFile::create(target)?;
    fill(checkpoint, copy.file(), contents.files.first(), may_write)?;
    Ok(copy.finish().map(drop)?)
}

fn copy_into(
    checkpoint: &Path,
    file: &CheckpointFile,
    folder: &Path,
    may_write: &mut dyn FnMut() -> Result<(), CopyError>,
) -> Result<(), CopyError> {
    let target = folder.join(&file.place);
    if let Some(parent) = target.parent() {
        fs::create_dir_all(parent).map_err(DiskError::at(parent))?;
    }
    let copy = File::create_new(&target).map_err(DiskError::at(&target))?;
    fill(&below(checkpoint, &file.place), &copy, Some(file), may_write)
}

fn fill(
    path: &Path,
    mut copy: &File,
    file: Option<&CheckpointFile>,
    may_write: &mut dyn FnMut() -> Result<(), CopyError>,
) -> Result<(), CopyError> {
    let original = lowtide_disk::open(path).map_err(DiskError::at(path))?;
    if rustix::fs::ioctl_ficlone(copy, &original).is_err() {
        loop {
            may_write()?;
            let piece = io::copy(&mut (&original).take(PIECE), &mut copy).map_err(DiskError::at(path))?;
            if piece < PIECE {
                break;
            }
        }
    }
    if let Some(time) = file.and_then(|file| file.written) {
        // Without it, the next run only makes a copy more.
        let _ = copy.set_modified(time);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nobody_wants_any_more_leaves_nothing() {
        let top = tempfile::tempdir().unwrap();
        let checkpoint = top.path().join("step_5");
        fs::create_dir_all(checkpoint.join("in")).unwrap();
        for name in ["a.pt", "in/b.pt"] {
            fs::write(checkpoint.join(name), name).unwrap();
        }
        let target = top.path().join("copy");
        let contents = Contents::of(&checkpoint);
        let mut asked = 0;
        let told = copy(&checkpoint, &contents, &target, &mut || {
            asked += 1;
            if asked == 2 { Err(CopyError::ToldToEnd) } else { Ok(()) }
        });
        // On a file system that shares blocks, nobody is asked.
        let is_shared = asked == 0;
        assert_eq!((told.is_ok(), target.exists()), (is_shared, is_shared));
        assert_eq!(fs::read_dir(top.path()).unwrap().count(), if is_shared { 2 } else { 1 });
    }

    #[test]
    fn a_copy_is_known_by_times_and_sizes() {
        let top = tempfile::tempdir().unwrap();
        let checkpoint = top.path().join("step_5");
        fs::create_dir_all(checkpoint.join("in")).unwrap();
        for name in ["a.pt", "in/b.pt"] {
            fs::write(checkpoint.join(name), name).unwrap();
        }
        let target = top.path().join("copy");
        let before = Contents::of(&checkpoint);
        copy(&checkpoint, &before, &target, &mut || Ok(())).unwrap();
        assert!(before.is_copied_in(&target));
        // The same size, in its place, as most trainers write.
        fs::write(checkpoint.join("in/b.pt"), "in/B.pt").unwrap();
        File::options()
            .append(true)
            .open(checkpoint.join("in/b.pt"))
            .unwrap()
            .set_modified(std::time::UNIX_EPOCH)
            .unwrap();
        assert!(!Contents::of(&checkpoint).is_copied_in(&target) && before.is_copied_in(&target));
        assert_eq!(fs::read_to_string(target.join("in/b.pt")).unwrap(), "in/b.pt");
    }
}
