//! The name that a file or folder has until it is whole.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process;
use std::sync::atomic::{AtomicU64, Ordering};

const ENDING: &str = ".partial";

/// A name beside `path`, for what is to become `path`. What has it is removed when this is dropped.
#[derive(Debug)]
pub(crate) struct TemporaryName {
    temporary: PathBuf,
    path: PathBuf,
    /// The folder of both. Opened first, so that one that cannot be synced is found before anything is written.
    folder: File,
    is_given_up: bool,
}

impl TemporaryName {
    /// A name that nobody else has, in this process or another: `.NAME.PROCESS-NUMBER.partial`.
    pub(crate) fn unique(path: &Path) -> io::Result<TemporaryName> {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        TemporaryName::new(path, &format!(".{}-{}", process::id(), NUMBER.fetch_add(1, Ordering::Relaxed)))
    }

    /// The name that all writers of `path` share: `.NAME.partial`.
    pub(crate) fn shared(path: &Path) -> io::Result<TemporaryName> {
        TemporaryName::new(path, "")
    }

    fn new(path: &Path, middle: &str) -> io::Result<TemporaryName> {
        let mut name = OsString::from(".");
        name.push(path.file_name().ok_or_else(|| io::Error::other("not the name of a file"))?);
        name.push(middle);
        name.push(ENDING);
        let folder = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let folder = File::open(folder)?;
        Ok(TemporaryName { temporary: path.with_file_name(name), path: path.to_owned(), folder, is_given_up: false })
    }

    /// The temporary name.
    pub(crate) fn as_path(&self) -> &Path {
        &self.temporary
    }

    /// The name it is to have.
    pub(crate) fn target(&self) -> &Path {
        &self.path
    }

    /// Gives up the temporary name for the real one, in place of what has it. What has it must be synced.
    pub(crate) fn replace(mut self) -> io::Result<()> {
        fs::rename(&self.temporary, &self.path)?;
        self.is_given_up = true;
        // Without this a crash may undo the rename.
        self.folder.sync_all()
    }

    /// Leaves what has the name alone: it is somebody else's.
    pub(crate) fn forget(mut self) {
        self.is_given_up = true;
    }
}

impl Drop for TemporaryName {
    fn drop(&mut self) {
        if self.is_given_up {
            return;
        }
        // Best effort: the error that led here is what the caller hears, and what is left is never read.
        if self.temporary.is_dir() {
            let _ = fs::remove_dir_all(&self.temporary);
        } else {
            let _ = fs::remove_file(&self.temporary);
        }
    }
}

/// What a file would have been called whose writer was killed, by its temporary name.
///
/// `None` where the name is no temporary one.
#[must_use]
pub fn leftover_of(name: &str) -> Option<&str> {
    let inner = name.strip_prefix('.')?.strip_suffix(ENDING)?;
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let is_middle = |text: &str| text.split_once('-').is_some_and(|(first, last)| is_number(first) && is_number(last));
    match inner.rsplit_once('.') {
        Some((file, middle)) if is_middle(middle) => Some(file),
        _ => Some(inner),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_temporary_name_says_what_it_was_for() {
        let folder = tempfile::tempdir().unwrap();
        for file in ["config.yaml", "00007.shard", ".lowtide-index", "00000012", "a.1-2-3"] {
            let path = folder.path().join(file);
            for name in [TemporaryName::unique(&path).unwrap(), TemporaryName::shared(&path).unwrap()] {
                let name = name.as_path().file_name().unwrap().to_str().unwrap();
                assert_eq!(leftover_of(name), Some(file), "{name}");
            }
        }
        for name in ["config.yaml", ".config.yaml", "config.yaml.partial", ".partial"] {
            assert_eq!(leftover_of(name), None, "{name}");
        }
    }
}
