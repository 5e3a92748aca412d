//! The folder that shards are packed into.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use super::Error;
use super::notes::{Done, PACKED, PACKING};
use crate::DataError;
use crate::data_set::SAVED_INDEX;
use crate::durable;
use crate::shard::Reader;

const ENDING: &str = ".shard";
const PARTIAL: &str = ".partial";
/// With more digits, names would not be in the order of their numbers.
pub(super) const MOST_SHARDS: usize = 100_000;

/// What there is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Found {
    /// Nothing, or an empty folder.
    Nothing,
    /// A folder that was begun.
    Packing,
    /// A folder that was finished.
    Packed,
}

/// Looks at a folder, which may not be there.
pub(super) fn look_at(folder: &Path) -> Result<Found, Error> {
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Found::Nothing),
        entries => entries.map_err(Error::io(folder, "list"))?,
    };
    let is_there = |name: &str| folder.join(name).try_exists().map_err(Error::io(folder, "look into"));
    if is_there(PACKING)? {
        return Ok(Found::Packing);
    }
    if is_there(PACKED)? {
        return Ok(Found::Packed);
    }
    let names = entries.map(|entry| entry.map(|entry| entry.file_name().to_string_lossy().into_owned()));
    let names = names.collect::<Result<Vec<_>, _>>().map_err(Error::io(folder, "list"))?;
    // The first by name, so that the same folder gets the same words.
    match names.into_iter().min() {
        None => Ok(Found::Nothing),
        Some(name) => Err(Error::NotOurs { folder: folder.to_owned(), name }),
    }
}

/// Whether a folder is being packed, or packing it was interrupted.
#[must_use]
pub fn is_unfinished(folder: &Path) -> bool {
    folder.join(PACKING).exists()
}

/// An error where a folder is not packed to its end: whoever reads it would miss samples.
pub(crate) fn check_finished(folder: &Path) -> Result<(), DataError> {
    if is_unfinished(folder) { Err(DataError::Unfinished { folder: folder.to_owned() }) } else { Ok(()) }
}

/// The file of a shard.
pub(super) fn shard_path(folder: &Path, number: usize) -> PathBuf {
    folder.join(format!("{number:05}{ENDING}"))
}

/// How many of these shards, from the first on, are there as they were written.
pub(super) fn whole(folder: &Path, done: &[Done]) -> usize {
    let is_whole = |number: usize, done: &Done| {
        Reader::open(shard_path(folder, number)).is_ok_and(|shard| {
            (shard.len(), shard.file_bytes(), shard.fingerprint()) == (done.records, done.bytes, done.fingerprint)
        })
    };
    done.iter().enumerate().take_while(|(number, done)| is_whole(*number, done)).count()
}

/// Deletes the shards from `first` on, and what is left of unfinished ones. One that cannot be of a run that had
/// written down `known` shards is an error, and nothing is deleted.
pub(super) fn delete_from(folder: &Path, first: usize, known: usize) -> Result<(), Error> {
    let mut ours = Vec::new();
    for entry in fs::read_dir(folder).map_err(Error::io(folder, "list"))? {
        let path = entry.map_err(Error::io(folder, "list"))?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let Some(stem) = name.strip_suffix(PARTIAL).unwrap_or(&name).strip_suffix(ENDING) else { continue };
        match stem.parse().ok().filter(|number: &usize| format!("{number:05}") == stem) {
            Some(number) if number < first => {}
            // The last may have been finished just before it could be written down.
            Some(number) if number <= known => ours.push(path),
            _ if name.ends_with(PARTIAL) => {}
            _ => return Err(Error::Foreign { file: path }),
        }
    }
    ours.iter().try_for_each(|path| delete(path))
}

/// Deletes what processes left that were killed while they saved the index.
pub(super) fn delete_unfinished_indexes(folder: &Path) -> Result<(), Error> {
    for entry in fs::read_dir(folder).map_err(Error::io(folder, "list"))? {
        let path = entry.map_err(Error::io(folder, "list"))?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if name.starts_with(&format!(".{SAVED_INDEX}.")) && name.ends_with(PARTIAL) {
            delete(&path)?;
        }
    }
    Ok(())
}

/// Deletes a file, which need not be there.
pub(super) fn delete(path: &Path) -> Result<(), Error> {
    match fs::remove_file(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        deleted => deleted.map_err(Error::io(path, "delete")),
    }
}

/// Makes the folder, and those above it.
pub(super) fn make(folder: &Path) -> Result<(), Error> {
    fs::create_dir_all(folder).map_err(Error::io(folder, "make"))
}

/// Deletes what a run left that wrote no shard; a folder that is not empty stays.
pub(super) fn give_up(folder: &Path) {
    let _ = fs::remove_file(durable::partial_of(&folder.join(PACKED)));
    let _ = fs::remove_dir(folder);
}
