//! Writing a file in one call.

use std::io::{self, BufWriter, Write};
use std::path::Path;

use crate::error::DiskError;
use crate::partial_file::PartialFile;

const BUFFER: usize = 1 << 20;

/// Writes a file as a whole.
///
/// # Errors
///
/// The system refuses.
pub fn write(path: &Path, bytes: &[u8]) -> Result<(), DiskError> {
    write_with(path, |out| out.write_all(bytes))
}

/// Writes a file as a whole, piece by piece.
///
/// # Errors
///
/// The system refuses, or `fill` does.
pub fn write_with(
    path: &Path,
    fill: impl FnOnce(&mut BufWriter<PartialFile>) -> io::Result<()>,
) -> Result<(), DiskError> {
    let mut out = BufWriter::with_capacity(BUFFER, PartialFile::create(path)?);
    fill(&mut out).map_err(DiskError::at(path))?;
    let file = out.into_inner().map_err(|error| DiskError::at(path)(error.into_error()))?;
    file.finish().map(drop)
}
