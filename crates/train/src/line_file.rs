//! A file of JSON lines that grows while others read it.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::Write;
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::error::{Result, TrainError};

/// Each line is handed to the system at once, so that someone who watches the file sees it.
#[derive(Debug)]
pub(crate) struct LineFile {
    path: PathBuf,
    file: File,
    /// Bytes in it.
    pub(crate) bytes: u64,
}

impl LineFile {
    /// Opens it at its end. A last line that a kill cut short is dropped.
    pub(crate) fn open(path: &Path) -> Result<LineFile> {
        let open = || {
            let file = OpenOptions::new().create(true).append(true).open(path)?;
            let text = fs::read(path)?;
            let whole = text.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
            if whole < text.len() {
                file.set_len(whole as u64)?;
            }
            Ok(LineFile { path: path.to_owned(), file, bytes: whole as u64 })
        };
        open().map_err(TrainError::at(path))
    }

    /// Whether another process has locked it; else it is ours until this process ends. Where a file system has no locks,
    /// nobody is kept out.
    pub(crate) fn is_anothers(&self) -> bool {
        matches!(self.file.try_lock(), Err(TryLockError::WouldBlock))
    }

    pub(crate) fn write(&mut self, line: &impl Serialize) -> Result<()> {
        let mut line = serde_json::to_vec(line).expect("plain numbers and texts");
        line.push(b'\n');
        self.file.write_all(&line).map_err(TrainError::at(&self.path))?;
        self.bytes += line.len() as u64;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_torn_line_is_dropped() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lines");
        for (before, after) in [("1\n2\n3", "1\n2\n4\n"), ("1\n", "1\n4\n"), ("1", "4\n"), ("", "4\n")] {
            fs::write(&path, before).unwrap();
            let mut file = LineFile::open(&path).unwrap();
            file.write(&4).unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), after);
            assert_eq!(file.bytes, after.len() as u64);
        }
    }
}
