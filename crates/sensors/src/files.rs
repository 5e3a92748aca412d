//! The small text files of `/proc` and `/sys`, below a root that tests choose.

use std::borrow::Cow;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::PathBuf;

use crate::{Cause, Missing};

/// More than any file that is read here; what lies beyond is not looked at.
const LONGEST: u64 = 1 << 20;

/// Reads files below a root into one buffer, so that a sample allocates little.
#[derive(Debug)]
pub(crate) struct Files {
    root: PathBuf,
    buffer: Vec<u8>,
}

impl Files {
    pub(crate) fn new(root: PathBuf) -> Self {
        Self { root, buffer: Vec::with_capacity(8192) }
    }

    /// The text of a file; `place` is its path without the leading slash.
    pub(crate) fn read(&mut self, place: &str) -> Result<Cow<'_, str>, Missing> {
        self.buffer.clear();
        File::open(self.root.join(place))
            .and_then(|file| file.take(LONGEST).read_to_end(&mut self.buffer))
            .map_err(|error| missing(place, &error))?;
        Ok(String::from_utf8_lossy(&self.buffer))
    }

    /// The number that is all of a file; `None` for the word `max`.
    pub(crate) fn limit(&mut self, place: &str) -> Result<Option<u64>, Missing> {
        let text = self.read(place)?;
        match text.trim() {
            "max" => Ok(None),
            number => number.parse().map(Some).map_err(|_| Missing::malformed(place, "no number")),
        }
    }

    /// Where a link points to.
    pub(crate) fn link(&self, place: &str) -> Option<String> {
        fs::read_link(self.root.join(place)).ok()?.into_os_string().into_string().ok()
    }

    /// The entries of a folder whose names are numbers, in order.
    pub(crate) fn numbers(&self, place: &str) -> Result<Vec<u32>, Missing> {
        let entries = fs::read_dir(self.root.join(place)).map_err(|error| missing(place, &error))?;
        let mut numbers: Vec<u32> =
            entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
        numbers.sort_unstable();
        Ok(numbers)
    }
}

/// The bytes of a line like `MemTotal:  24682740 kB`, after its name.
pub(crate) fn kilobytes(value: &str) -> Option<u64> {
    let number: u64 = value.trim().strip_suffix("kB")?.trim_end().parse().ok()?;
    number.checked_mul(1024)
}

fn missing(place: &str, error: &io::Error) -> Missing {
    // A process that ends between opening and reading one of its files: ESRCH.
    const NO_SUCH_PROCESS: i32 = 3;
    match error.kind() {
        io::ErrorKind::NotFound => Missing::new(Cause::Absent, format!("/{place} is not there")),
        io::ErrorKind::PermissionDenied => {
            Missing::new(Cause::Denied, format!("/{place} may not be read by this user"))
        }
        _ if error.raw_os_error() == Some(NO_SUCH_PROCESS) => {
            Missing::new(Cause::Ended, format!("/{place}: the process has ended"))
        }
        // `/proc/pressure` is there on kernels started with `psi=0`, and then cannot be read: EOPNOTSUPP.
        _ => Missing::new(Cause::Failed, format!("/{place}: {error}")),
    }
}
