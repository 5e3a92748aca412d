//! The folder that shards are packed into.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use lowtide_disk::leftover_of;

use super::Error;
use super::notes::{PACKED, ShardNote};
use crate::index::INDEX_NAME;
use crate::set::PACKING;
use crate::shard::Reader;

const ENDING: &str = ".shard";
/// With more digits, names would not be in the order of their numbers.
pub(super) const MOST_SHARDS: usize = 100_000;

/// How far a folder is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FolderState {
    /// Nothing, or an empty folder.
    Nothing,
    /// A folder that was begun.
    Packing,
    /// A folder that was finished.
    Packed,
}

/// Looks at a folder, which may not be there.
pub(super) fn look_at(folder: &Path) -> Result<FolderState, Error> {
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(FolderState::Nothing),
        entries => entries.map_err(Error::io(folder, "list"))?,
    };
    let is_there = |name: &str| folder.join(name).try_exists().map_err(Error::io(folder, "look into"));
    if is_there(PACKING)? {
        return Ok(FolderState::Packing);
    }
    if is_there(PACKED)? {
        return Ok(FolderState::Packed);
    }
    let names = entries.map(|entry| entry.map(|entry| entry.file_name().to_string_lossy().into_owned()));
    let names = names.collect::<Result<Vec<_>, _>>().map_err(Error::io(folder, "list"))?;
    // The first by name, so that the same folder gets the same words.
    match names.into_iter().min() {
        None => Ok(FolderState::Nothing),
        Some(name) => Err(Error::NotOurs { folder: folder.to_owned(), name }),
    }
}

/// The file of a shard.
pub(super) fn shard_path(folder: &Path, number: usize) -> PathBuf {
    folder.join(format!("{number:05}{ENDING}"))
}

/// How many of these shards, from the first on, are there as they were written.
pub(super) fn whole(folder: &Path, done: &[ShardNote]) -> usize {
    let is_whole = |number: usize, done: &ShardNote| {
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
        let leftover = leftover_of(&name);
        let Some(stem) = leftover.unwrap_or(&name).strip_suffix(ENDING) else { continue };
        match stem.parse().ok().filter(|number: &usize| format!("{number:05}") == stem) {
            Some(number) if number < first => {}
            // The last may have been finished just before it could be written down.
            Some(number) if number <= known => ours.push(path),
            _ if leftover.is_some() => {}
            _ => return Err(Error::Foreign { file: path }),
        }
    }
    ours.iter().try_for_each(|path| delete(path))
}

/// Deletes what processes left that were killed while they wrote something beside the shards.
pub(super) fn delete_leftovers(folder: &Path) -> Result<(), Error> {
    for entry in fs::read_dir(folder).map_err(Error::io(folder, "list"))? {
        let path = entry.map_err(Error::io(folder, "list"))?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if leftover_of(&name).is_some_and(|of| [INDEX_NAME, PACKING, PACKED].contains(&of)) {
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
    let _ = delete_leftovers(folder);
    let _ = fs::remove_dir(folder);
}
