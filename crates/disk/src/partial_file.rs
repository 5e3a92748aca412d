//! A file that grows under a temporary name.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use crate::error::DiskError;
use crate::temporary_name::TemporaryName;

/// A file that is not whole yet; dropped without [`PartialFile::finish`], it is removed.
#[derive(Debug)]
pub struct PartialFile {
    // The first field, so that the name goes before the lock.
    name: TemporaryName,
    file: File,
}

impl PartialFile {
    /// Begins a file that others may write too, each under a temporary name of its own; the last one to finish counts.
    ///
    /// # Errors
    ///
    /// The system refuses.
    pub fn create(path: &Path) -> Result<PartialFile, DiskError> {
        let create = || {
            let name = TemporaryName::unique(path)?;
            let file = File::options().write(true).create_new(true).open(name.as_path())?;
            Ok(PartialFile { name, file })
        };
        create().map_err(DiskError::at(path))
    }

    /// Begins a file that nobody else may write meanwhile; the lock lasts as long as the file is open, under its own name
    /// too. What a killed writer left is begun anew.
    ///
    /// # Errors
    ///
    /// The kind of the source is [`io::ErrorKind::WouldBlock`] where somebody else writes it; or the system refuses.
    pub fn create_locked(path: &Path) -> Result<PartialFile, DiskError> {
        lock(path).map_err(DiskError::at(path))
    }

    /// The open file, for its owner, mode and attributes.
    #[must_use]
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Gives the file its own name, in place of one that has it, once it is certainly on the disk; the file stays open.
    ///
    /// # Errors
    ///
    /// The system refuses.
    pub fn finish(self) -> Result<File, DiskError> {
        let PartialFile { name, file } = self;
        let path = name.target().to_owned();
        file.sync_all().and_then(|()| name.replace()).map_err(DiskError::at(&path))?;
        Ok(file)
    }
}

impl Write for PartialFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

fn lock(path: &Path) -> io::Result<PartialFile> {
    let name = TemporaryName::shared(path)?;
    // Not truncated before the lock is held: it may be somebody else's.
    let opened = OpenOptions::new().write(true).create(true).truncate(false).open(name.as_path());
    let locked = opened.and_then(|file| match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(io::ErrorKind::WouldBlock.into()),
        Err(TryLockError::Error(error)) => Err(error),
    });
    let file = match locked {
        Ok(file) => file,
        Err(error) => {
            name.forget();
            return Err(error);
        }
    };
    // Between opening and locking, whoever had the lock may have given the file its own name.
    let ours = file.metadata()?.ino();
    if !fs::metadata(name.as_path()).is_ok_and(|there| there.ino() == ours) {
        name.forget();
        return Err(io::ErrorKind::WouldBlock.into());
    }
    file.set_len(0)?;
    Ok(PartialFile { name, file })
}
