//! The files that are packed, and the samples of each, one after the other.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::vec::IntoIter;

use lowtide_core::Bytes;
use lowtide_tensorfile::{DecodeLimit, Format, Loader, Sums, rows};
use serde::{Deserialize, Serialize};

use super::Error;
use crate::DataError;
use crate::batch::BatchFile;
use crate::file_stamp::FileStamp;
use crate::samples::{Sample, UnsupportedField};
use crate::set::Folder;

/// A file whose samples take more is read in parts.
const WHOLE: Bytes = Bytes::from_mib(64);
/// Some samples of it are read together up to so many bytes: of an array in columns, or one that is compressed, every
/// read passes over all of it.
const TOGETHER: Bytes = Bytes::from_mib(24);

/// A file that is packed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Source {
    /// As the user names it.
    pub(super) path: PathBuf,
    pub(super) stamp: SourceStamp,
}

/// What tells a file from another, and from what it was before.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct SourceStamp {
    /// Its path without links and dots.
    pub(super) path: String,
    pub(super) bytes: Bytes,
    /// In nanoseconds since 1970.
    pub(super) modified: i64,
}

impl Source {
    pub(super) fn of(path: &Path) -> Result<Self, DataError> {
        let failed = DataError::io(path);
        let real = path.canonicalize().map_err(&failed)?;
        let stamp = FileStamp::new(&fs::metadata(&real).map_err(&failed)?, 0);
        let stamp =
            SourceStamp { path: real.to_string_lossy().into_owned(), bytes: stamp.bytes, modified: stamp.modified };
        Ok(Self { path: path.to_owned(), stamp })
    }

    /// An error where the file is not what it was any more.
    pub(super) fn check(&self) -> Result<(), Error> {
        if Source::of(&self.path)?.stamp == self.stamp {
            return Ok(());
        }
        Err(Error::Changed { file: self.path.clone() })
    }
}

/// All files, in the order in which they are named; those of a folder by name.
pub(super) fn find(inputs: &[PathBuf]) -> Result<Vec<Source>, Error> {
    let mut sources = Vec::new();
    for input in inputs {
        if !input.is_dir() {
            sources.push(Source::of(input)?);
            continue;
        }
        let files = Folder::list(input)?.files;
        if files.is_empty() {
            return Err(Error::NoFiles { folder: input.clone() });
        }
        for file in files {
            sources.push(Source::of(&file)?);
        }
    }
    let mut seen = HashSet::new();
    match sources.iter().find(|source| !seen.insert(&source.stamp.path)) {
        Some(source) => Err(Error::Twice { file: source.path.clone() }),
        None => Ok(sources),
    }
}

/// The samples of a source, which is known to be whole.
pub(super) struct SourceSamples {
    /// How many there are in the source.
    pub(super) count: u64,
    next: u64,
    rest: Rest,
}

enum Rest {
    Read(IntoIter<Sample>),
    InFile(Box<SourceParts>),
}

impl SourceSamples {
    /// Opens a source and goes to its sample `from`. Every checksum of the file is verified before the first sample
    /// comes, so that a damaged file is left out as a whole or not at all.
    pub(super) fn open(source: &Source, from: u64, limit: DecodeLimit) -> Result<Self, Error> {
        source.check()?;
        let file = BatchFile::open_within(&source.path, limit)?;
        check_types(&file)?;
        let count = file.samples();
        if is_read_whole(&file) {
            let mut samples = file.read_all()?.into_iter();
            source.check()?;
            if from > 0 {
                samples.nth(from as usize - 1);
            }
            return Ok(Self { count, next: from, rest: Rest::Read(samples) });
        }
        rows(file.tree(), Sums::Compute).map_err(DataError::from)?;
        source.check()?;
        Ok(Self { count, next: from, rest: Rest::InFile(Box::new(SourceParts::new(file))) })
    }
}

impl Iterator for SourceSamples {
    type Item = Result<(u64, Sample), DataError>;

    fn next(&mut self) -> Option<Self::Item> {
        let index = self.next;
        let sample = match &mut self.rest {
            Rest::Read(samples) => Ok(samples.next()?),
            Rest::InFile(_) if index >= self.count => return None,
            Rest::InFile(parts) => parts.next(index),
        };
        self.next += 1;
        Some(sample.map(|sample| (index, sample)))
    }
}

/// A file that is read in parts, some samples at a time.
struct SourceParts {
    file: BatchFile,
    loader: Loader,
    read: IntoIter<Sample>,
}

impl SourceParts {
    fn new(file: BatchFile) -> Self {
        Self { file, loader: Loader::new(Bytes::ZERO), read: Vec::new().into_iter() }
    }

    fn next(&mut self, index: u64) -> Result<Sample, DataError> {
        if let Some(sample) = self.read.next() {
            return Ok(sample);
        }
        // What was read before goes first.
        self.read = Vec::new().into_iter();
        let (mut end, mut bytes) = (index, Bytes::ZERO);
        while end < self.file.samples() && (end == index || bytes <= TOGETHER) {
            bytes = bytes.saturating_add(self.file.sample_bytes(end));
            end += 1;
        }
        self.read = self.file.read_some(index..end, &mut self.loader)?.into_iter();
        let nothing = || DataError::malformed(self.file.path(), format!("sample {index} is not there"));
        self.read.next().ok_or_else(nothing)
    }
}

/// Whether all samples are read at once. In a gzipped pickle the parts of a sample lie anywhere, and there is no other way
/// that does not begin at its start for each.
fn is_read_whole(file: &BatchFile) -> bool {
    file.bytes().saturating_add(file.reading_bytes()) <= WHOLE || file.format() == Format::PickleGzip
}

/// An error where a field has a type that a shard does not hold.
fn check_types(file: &BatchFile) -> Result<(), DataError> {
    for field in file.fields() {
        if let Some(kind) = field.kinds.iter().copied().find(|kind| kind.number().is_none()) {
            return Err(UnsupportedField { field: Arc::clone(&field.name), kind }.in_file(file.path()));
        }
    }
    Ok(())
}
