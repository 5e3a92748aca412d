//! The samples of one source, one after the other.

use std::sync::Arc;
use std::vec::IntoIter;

use lowtide_core::Bytes;
use lowtide_tensorfile::{Format, Sums, rows};

use super::Error;
use super::sources::Source;
use crate::DataError;
use crate::batch::BatchFile;
use crate::samples::{Sample, UnsupportedField};

/// A file whose samples take more is read sample by sample.
const WHOLE: Bytes = Bytes::from_mib(64);

/// The samples of a source, which is known to be whole.
pub(super) struct SourceSamples {
    /// How many there are in the source.
    pub(super) count: u64,
    next: u64,
    rest: Rest,
}

enum Rest {
    Read(IntoIter<Sample>),
    InFile(Box<BatchFile>),
}

impl SourceSamples {
    /// Opens a source and goes to its sample `from`. Every checksum of the file is verified before the first sample
    /// comes, so that a damaged file is left out as a whole or not at all.
    pub(super) fn open(source: &Source, from: u64) -> Result<Self, Error> {
        source.check()?;
        let file = BatchFile::open(&source.path)?;
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
        Ok(Self { count, next: from, rest: Rest::InFile(Box::new(file)) })
    }
}

impl Iterator for SourceSamples {
    type Item = Result<(u64, Sample), DataError>;

    fn next(&mut self) -> Option<Self::Item> {
        let index = self.next;
        let sample = match &mut self.rest {
            Rest::Read(samples) => Ok(samples.next()?),
            Rest::InFile(_) if index >= self.count => return None,
            Rest::InFile(file) => file.read(index),
        };
        self.next += 1;
        Some(sample.map(|sample| (index, sample)))
    }
}

/// Whether all samples are read at once. In a compressed file there is no other way that does not begin at its start
/// for each.
fn is_read_whole(file: &BatchFile) -> bool {
    file.bytes().saturating_add(file.reading_bytes()) <= WHOLE
        || matches!(file.format(), Format::Npz | Format::PickleGzip)
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
