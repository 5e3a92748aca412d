//! Reading past the page cache.
//!
//! What is read that way goes from the disk to where it stays: no copy, no pages to let go of, and no byte more than was
//! asked for.
//!
//! It takes less than half the processor time of a copy. Where a file system refuses, and for batch files, what was
//! read is let go from the page cache, which would hold it a second time, outside of every limit. The shard file is
//! described in docs/shard-format.md.

use std::fs::File;
use std::io;
use std::path::Path;

/// A file that is read past the page cache.
#[derive(Debug)]
pub(crate) struct DirectFile {
    #[cfg(target_os = "linux")]
    file: File,
    /// Some file systems open a file so and then refuse to read it.
    #[cfg(target_os = "linux")]
    is_refused: std::sync::atomic::AtomicBool,
}

#[cfg(target_os = "linux")]
impl DirectFile {
    /// Opens a file a second time; `None` where its file system refuses, or another has taken its name.
    pub(crate) fn open(path: &Path, file: &File) -> Option<Self> {
        use std::os::unix::fs::{MetadataExt, OpenOptionsExt};

        let flags = i32::try_from(rustix::fs::OFlags::DIRECT.bits()).ok()?;
        let direct = std::fs::OpenOptions::new().read(true).custom_flags(flags).open(path).ok()?;
        let (one, other) = (file.metadata().ok()?, direct.metadata().ok()?);
        let is_same = (one.dev(), one.ino()) == (other.dev(), other.ino());
        is_same.then(|| Self { file: direct, is_refused: false.into() })
    }

    /// Fills `pages` from `offset` on, both whole pages, and says how many bytes there were: fewer only at the end of the
    /// file. `None` where the file system refuses.
    pub(crate) fn read(&self, pages: &mut [u8], offset: u64) -> io::Result<Option<usize>> {
        use std::os::unix::fs::FileExt;
        use std::sync::atomic::Ordering;

        if self.is_refused.load(Ordering::Relaxed) {
            return Ok(None);
        }
        let mut length = 0;
        while length < pages.len() {
            match self.file.read_at(&mut pages[length..], offset + length as u64) {
                Ok(0) => break,
                Ok(read) => length += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::InvalidInput && length == 0 => {
                    self.is_refused.store(true, Ordering::Relaxed);
                    return Ok(None);
                }
                // What is left behind a part of a page cannot be asked for.
                Err(error) if error.kind() == io::ErrorKind::InvalidInput => break,
                Err(error) => return Err(error),
            }
        }
        Ok(Some(length))
    }
}

#[cfg(not(target_os = "linux"))]
impl DirectFile {
    pub(crate) fn open(_path: &Path, _file: &File) -> Option<Self> {
        None
    }

    pub(crate) fn read(&self, _pages: &mut [u8], _offset: u64) -> io::Result<Option<usize>> {
        Ok(None)
    }
}
