//! Batch files as a store of samples: each file is a shard.
//!
//! What is known of a file between its reads is its size in samples and bytes, 8 bytes a sample; what it says about itself is
//! read again with its values. A file that is no longer the one that was looked at first is an error, never other data.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use lowtide_core::Bytes;

use crate::batch_file::BatchFile;
use crate::error::{DataError, Place};
use crate::feed::{OnDamage, Store};
use crate::folder::Folder;
use crate::order::{Layout, SampleId};
use crate::sample::Sample;

/// Files of samples, as [`BatchFile`] reads them.
#[derive(Debug)]
pub struct BatchStore {
    files: Vec<Known>,
    layout: Layout,
}

/// A file as it was when it was first looked at.
#[derive(Debug)]
struct Known {
    path: PathBuf,
    stamp: Stamp,
    bytes: Bytes,
    reading_bytes: Bytes,
    sample_bytes: Vec<Bytes>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stamp {
    length: u64,
    modified: Option<SystemTime>,
}

/// A store, and the files that were left out of it.
#[derive(Debug)]
pub struct OpenedBatches {
    /// The files that can be read.
    pub store: BatchStore,
    /// Why each of the others cannot.
    pub left_out: Vec<DataError>,
}

impl BatchStore {
    /// Looks at all data files of a folder, by name; no value is read.
    ///
    /// # Errors
    ///
    /// Where the folder cannot be read, holds no samples, or a file cannot be read and that is not to be skipped.
    pub fn open(folder: &Path, on_damage: OnDamage) -> Result<OpenedBatches, DataError> {
        let opened = BatchStore::of_files(Folder::list(folder)?.files, on_damage)?;
        if opened.store.layout.samples() == 0 {
            let problem = "there are no samples in it: no data file that can be read".to_owned();
            return Err(DataError::Malformed { file: folder.to_owned(), place: Place::Whole, problem });
        }
        Ok(opened)
    }

    /// Looks at these files, in this order.
    ///
    /// # Errors
    ///
    /// Where one cannot be read and that is not to be skipped.
    pub fn of_files(paths: Vec<PathBuf>, on_damage: OnDamage) -> Result<OpenedBatches, DataError> {
        let mut files = Vec::with_capacity(paths.len());
        let mut left_out = Vec::new();
        for path in paths {
            match (Known::look_at(path), on_damage) {
                (Ok(known), _) => files.push(known),
                (Err(error), OnDamage::Skip) => left_out.push(error),
                (Err(error), OnDamage::Stop) => return Err(error),
            }
        }
        let layout = Layout::new(files.iter().map(|file| file.sample_bytes.len() as u64));
        Ok(OpenedBatches { store: BatchStore { files, layout }, left_out })
    }

    /// The file of a shard.
    ///
    /// # Panics
    ///
    /// Where there is no such shard.
    #[must_use]
    pub fn path(&self, shard: u32) -> &Path {
        &self.files[shard as usize].path
    }

    /// What all samples take in memory together: what loading everything at once would need.
    #[must_use]
    pub fn bytes(&self) -> Bytes {
        self.files.iter().fold(Bytes::ZERO, |sum, file| sum.saturating_add(file.bytes))
    }

    fn file(&self, shard: u32) -> &Known {
        &self.files[shard as usize]
    }
}

impl Known {
    fn look_at(path: PathBuf) -> Result<Known, DataError> {
        let stamp = Stamp::of(&path)?;
        let file = BatchFile::open(&path)?;
        Ok(Known {
            stamp,
            bytes: file.bytes(),
            reading_bytes: file.reading_bytes(),
            sample_bytes: (0..file.samples()).map(|index| file.sample_bytes(index)).collect(),
            path,
        })
    }

    /// Opens the file again, if it is still the one that was looked at.
    fn again(&self) -> Result<BatchFile, DataError> {
        self.check()?;
        BatchFile::open(&self.path)
    }

    /// Also after reading: a file that was replaced meanwhile may have given something of each.
    fn check(&self) -> Result<(), DataError> {
        if Stamp::of(&self.path)? == self.stamp {
            return Ok(());
        }
        let problem = "it has changed since the run began".to_owned();
        Err(DataError::Malformed { file: self.path.clone(), place: Place::Whole, problem })
    }
}

impl Stamp {
    fn of(path: &Path) -> Result<Stamp, DataError> {
        let failed = |source| DataError::Io { file: path.to_owned(), place: Place::Whole, source };
        let metadata = fs::metadata(path).map_err(failed)?;
        Ok(Stamp { length: metadata.len(), modified: metadata.modified().ok() })
    }
}

impl Store for BatchStore {
    type Sample = Sample;

    fn layout(&self) -> &Layout {
        &self.layout
    }

    fn shard_bytes(&self, shard: u32) -> Bytes {
        self.file(shard).bytes
    }

    fn sample_bytes(&self, sample: SampleId) -> Bytes {
        self.file(sample.shard).sample_bytes[sample.index as usize]
    }

    fn shard_cost(&self, shard: u32) -> Bytes {
        self.file(shard).bytes.saturating_add(self.file(shard).reading_bytes)
    }

    fn read_shard(&self, shard: u32) -> Result<Vec<Sample>, DataError> {
        let file = self.file(shard);
        let samples = file.again()?.read_all()?;
        file.check()?;
        Ok(samples)
    }

    fn read_samples(&self, shard: u32, places: &[u64]) -> Result<Vec<Sample>, DataError> {
        let file = self.file(shard);
        let batch = file.again()?;
        let samples = places.iter().map(|place| batch.read(*place)).collect::<Result<_, _>>()?;
        file.check()?;
        Ok(samples)
    }
}
