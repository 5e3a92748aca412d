//! Files that are there as a whole or not at all.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::{DataError, Place, durable};

const BUFFER: usize = 1 << 20;

/// Writes a file under another name in the same folder, syncs it, renames it and syncs the folder.
///
/// A kill leaves the old file or the new one, and maybe a hidden one that ends in `.partial`.
pub(crate) fn write_whole(
    path: &Path,
    write: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>,
) -> Result<(), DataError> {
    let failed = |source| DataError::Io { file: path.to_owned(), place: Place::Whole, source };
    let partial = partial_name(path).ok_or_else(|| failed(io::Error::other("not the name of a file")))?;
    write_synced(&partial, write).and_then(|()| durable::name(&partial, path)).map_err(|error| {
        // Best effort: the error that led here is what the caller hears.
        let _ = fs::remove_file(&partial);
        failed(error)
    })
}

fn write_synced(path: &Path, write: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>) -> io::Result<()> {
    let mut out = BufWriter::with_capacity(BUFFER, File::create(path)?);
    write(&mut out)?;
    out.flush()?;
    out.get_ref().sync_all()
}

/// A name that nobody else writes to at the same time, in this process or another.
fn partial_name(path: &Path) -> Option<PathBuf> {
    static WRITTEN: AtomicU64 = AtomicU64::new(0);
    let mut name = OsString::from(".");
    name.push(path.file_name()?);
    name.push(format!(".{}-{}.partial", process::id(), WRITTEN.fetch_add(1, Ordering::Relaxed)));
    Some(path.with_file_name(name))
}
