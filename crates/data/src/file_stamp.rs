//! What a file was when it was looked at.

use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use lowtide_core::Bytes;

use crate::DataError;

/// What tells a file from another of the same name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileStamp {
    /// Its size.
    pub bytes: Bytes,
    /// When it was last changed, in nanoseconds since 1970.
    pub modified: i64,
    /// A checksum of its content, or 0 where the format has its own and it is verified with the values.
    pub fingerprint: u32,
}

impl FileStamp {
    /// The stamp of a file by what the system says about it.
    pub fn new(metadata: &Metadata, fingerprint: u32) -> Self {
        let modified = metadata.mtime().saturating_mul(1_000_000_000).saturating_add(metadata.mtime_nsec());
        Self { bytes: Bytes(metadata.len()), modified, fingerprint }
    }

    /// The same with another checksum.
    pub(crate) fn with(self, fingerprint: u32) -> Self {
        Self { fingerprint, ..self }
    }

    /// The stamp of a file, where the system gives it.
    pub(crate) fn of(path: &Path, fingerprint: u32) -> Result<Self, DataError> {
        Ok(Self::new(&fs::metadata(path).map_err(DataError::io(path))?, fingerprint))
    }
}
