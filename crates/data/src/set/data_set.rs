//! A data set on a disk: a folder of shards or of batch files.

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use lowtide_core::Bytes;
use lowtide_tensorfile::pages::MOST_SPARE;

use super::batch_samples::{self, HELD_FILE};
use super::open_batch::OpenBatch;
use super::open_files::{Limits, OpenFiles};
use super::options::{OpenOptions, Selection};
use super::{check_finished, shard_samples};
use crate::DataError;
use crate::feed::Store;
use crate::file_stamp::FileStamp;
use crate::index::{CurrentIndex, INDEX_NAME, Index, RebuildReason, SetKind, open_or_build};
use crate::order::{Layout, SampleId};
use crate::samples::BufferedSample;
use crate::shard::{Reader, hash_of_id};

/// Batch files that are kept open: finding their samples is what takes long.
const BATCHES: Limits = Limits { bytes: 16 << 20, files: 16 };
/// Shards that are kept open.
const SHARDS: Limits = Limits { bytes: 8 << 20, files: 256 };
/// Bytes of the parts of a shard, about: large enough for any disk, and small beside a cache.
const PART: u64 = 4 << 20;
/// What an open shard takes, about: for each record, and besides.
const OPEN_RECORD: u64 = 56;
const OPEN_SHARD: u64 = 1 << 10;

/// A data set, and what was found on opening it.
#[derive(Debug)]
pub struct OpenedSet {
    /// The samples that can be read.
    pub set: DataSet,
    /// Why each file that was left out cannot be read, with [`OnDamage::Skip`](crate::feed::OnDamage::Skip).
    pub left_out: Vec<DataError>,
    /// Why the index was made anew; `None` where the saved one was used.
    pub rebuilt: Option<RebuildReason>,
}

/// Files of samples, all of one kind: shards, or batch files as [`BatchFile`](crate::BatchFile) reads them.
///
/// Known of each sample are what it takes in memory and the hash of its id, of each file its size and time of change; a
/// file that is no longer the one that was looked at is an error, never other data. Files whose samples are read one by
/// one or part by part stay open, a few of them.
#[derive(Debug)]
pub struct DataSet {
    folder: PathBuf,
    kind: SetKind,
    index: Index,
    options: OpenOptions,
    /// The numbers of all samples with an id, by its hash.
    by_hash: OnceLock<Vec<u64>>,
    batches: OpenFiles<OpenBatch>,
    shards: OpenFiles<Reader>,
}

impl DataSet {
    /// Opens the data files of a folder, in the order of their names; no value is read.
    ///
    /// What is found out is saved in the folder as `.lowtide-index`, where it may be written to. Files that have
    /// changed since are looked at again.
    ///
    /// # Errors
    ///
    /// Where the folder cannot be read, holds no samples or files of both kinds, or a file cannot be read and that is
    /// not to be skipped.
    pub fn open(folder: &Path, options: OpenOptions) -> Result<OpenedSet, DataError> {
        check_finished(folder)?;
        Self::open_unchecked(folder, options)
    }

    /// Opens a folder that may be one that is being packed.
    pub(crate) fn open_unchecked(folder: &Path, options: OpenOptions) -> Result<OpenedSet, DataError> {
        let (kind, names) = SetKind::of_folder(folder)?;
        let saved = folder.join(INDEX_NAME);
        let opened = open_or_build(folder, (kind, &names), Some(&saved), options)?;
        Self::of(folder, folder, kind, opened, options)
    }

    /// Opens these files, in this order; nothing is saved.
    ///
    /// # Errors
    ///
    /// As for [`DataSet::open`].
    pub fn of_files(paths: &[PathBuf], options: OpenOptions) -> Result<OpenedSet, DataError> {
        let (kind, names) = SetKind::of_files(paths)?;
        let nowhere = Path::new("");
        let opened = open_or_build(nowhere, (kind, &names), None, options)?;
        Self::of(paths.first().map_or(Path::new("no files"), |path| path), nowhere, kind, opened, options)
    }

    /// `named` is what an error is about.
    fn of(
        named: &Path,
        folder: &Path,
        kind: SetKind,
        opened: CurrentIndex,
        options: OpenOptions,
    ) -> Result<OpenedSet, DataError> {
        let CurrentIndex { index, rebuilt, left_out } = opened;
        if index.samples() == 0 {
            let problem = match left_out.first() {
                None => "there are no samples in it".to_owned(),
                Some(error) => format!("there are no samples in it that can be read: {error}"),
            };
            return Err(DataError::malformed(named, problem));
        }
        let set = Self {
            folder: folder.to_owned(),
            kind,
            index,
            options,
            by_hash: OnceLock::new(),
            batches: OpenFiles::new(BATCHES, OpenBatch::bytes),
            shards: OpenFiles::new(SHARDS, Reader::bytes),
        };
        Ok(OpenedSet { set, left_out, rebuilt })
    }

    /// What is known of its files and samples.
    #[must_use]
    pub fn index(&self) -> &Index {
        &self.index
    }

    /// The file of a shard.
    ///
    /// # Panics
    ///
    /// Where there is no such shard.
    #[must_use]
    pub fn path(&self, shard: u32) -> PathBuf {
        self.folder.join(self.index.name_of(shard))
    }

    /// What all samples take in memory together: what loading everything at once needs.
    #[must_use]
    pub fn bytes(&self) -> Bytes {
        let files = 0..self.index.files();
        files.fold(Bytes::ZERO, |sum, file| sum.saturating_add(self.index.cost_of(file).memory))
    }

    /// Memory that is held beside the samples, at the most, and that no budget of a feed has: files whose samples are
    /// read one by one, and pages that wait for the next sample.
    #[must_use]
    pub fn most_kept_open(&self) -> Bytes {
        match self.kind {
            SetKind::Shards if self.keeps_shards_open() => Bytes(self.open_shards() + MOST_SPARE as u64),
            SetKind::Shards => Bytes(MOST_SPARE as u64),
            SetKind::Batches => {
                let sizes = (0..self.index.files()).map(|file| self.index.cost_of(file).reading);
                sizes.fold(Bytes::ZERO, Bytes::saturating_add).min(Bytes(BATCHES.bytes))
            }
        }
    }

    /// Whether all shards can stay open. Of more, each would be opened for a sample or two and be gone when it is needed
    /// again.
    fn keeps_shards_open(&self) -> bool {
        self.index.files() as usize <= SHARDS.files && self.open_shards() <= SHARDS.bytes
    }

    fn open_shards(&self) -> u64 {
        self.index.samples() * OPEN_RECORD + u64::from(self.index.files()) * OPEN_SHARD
    }

    /// The [hash](hash_of_id) of a sample's id, where it has one.
    ///
    /// # Panics
    ///
    /// Where there is no such sample.
    #[must_use]
    pub fn id_hash(&self, sample: SampleId) -> Option<u64> {
        Some(self.index.sample(sample).id_hash).filter(|hash| *hash != 0)
    }

    /// The first sample with this id. Ids are told apart by their hashes: among a million, two are taken for one
    /// another with a chance of one in ten millions.
    ///
    /// The first call sorts the hashes, 8 bytes a sample.
    #[must_use]
    pub fn find(&self, id: &str) -> Option<SampleId> {
        let (hash, samples) = (hash_of_id(id), self.index.all());
        let hash_at = |number: &u64| samples[*number as usize].id_hash;
        let by_hash = self.by_hash.get_or_init(|| {
            let mut numbers: Vec<u64> = (0..samples.len() as u64).filter(|number| hash_at(number) != 0).collect();
            numbers.sort_by_key(hash_at);
            numbers
        });
        let number = by_hash.get(by_hash.partition_point(|number| hash_at(number) < hash))?;
        (hash_at(number) == hash).then(|| self.index.layout().sample(*number))
    }

    fn read(&self, shard: u32, selection: Selection<'_>) -> Result<Vec<BufferedSample>, DataError> {
        let (path, stamp) = (self.path(shard), self.index.stamp_of(shard));
        let check = || match FileStamp::of(&path, stamp.fingerprint)? == stamp {
            true => Ok(()),
            false => Err(DataError::changed(&path)),
        };
        let forget = || match self.kind {
            SetKind::Shards => self.shards.forget(shard),
            SetKind::Batches => self.batches.forget(shard),
        };
        check().inspect_err(|_| forget())?;
        let facts = self.index.samples_of(shard);
        let other = |sample: u64, what: &'static str| {
            let index = self.folder.join(INDEX_NAME);
            DataError::Index { file: path.clone(), index, sample, what }
        };
        let samples = match self.kind {
            SetKind::Shards => {
                let (fingerprint, pages) = (stamp.fingerprint, self.options.page_cache);
                let known = (fingerprint, self.index.layout().samples_of(shard));
                let reader = match selection {
                    Selection::Together(_) | Selection::Apart(_) if self.keeps_shards_open() => {
                        self.shards.get(shard, || shard_samples::open(&path, fingerprint, pages))?
                    }
                    _ => Arc::new(shard_samples::open_for(&path, known, selection, pages)?),
                };
                if let Some(sample) = shard_samples::other_id(&reader, facts, selection) {
                    return Err(other(sample, "id"));
                }
                shard_samples::read(&reader, selection).inspect_err(|_| forget())?
            }
            SetKind::Batches => {
                // Ids and checksums are compared where a file is opened, and not again while it stays so.
                let open = |hold| {
                    let batch = OpenBatch::open(&path, hold, self.options.decode_limit)?;
                    batch.check_fingerprint(stamp.fingerprint)?;
                    match batch.other_id(facts) {
                        Some(sample) => Err(other(sample, "id")),
                        None => Ok(batch),
                    }
                };
                let batch = match selection {
                    Selection::Apart(_) => self.batches.get(shard, || open(0))?,
                    _ => Arc::new(open(HELD_FILE)?),
                };
                batch_samples::read(&batch, facts, selection, self.options.page_cache)?
            }
        };
        // A file that was written to meanwhile may have given something of each.
        check().inspect_err(|_| forget())?;
        Ok(samples)
    }
}

impl Store for DataSet {
    type Sample = BufferedSample;

    fn layout(&self) -> &Layout {
        self.index.layout()
    }

    fn shard_bytes(&self, shard: u32) -> Bytes {
        self.index.cost_of(shard).memory
    }

    fn sample_bytes(&self, sample: SampleId) -> Bytes {
        self.index.sample(sample).memory
    }

    fn shard_cost(&self, shard: u32) -> Bytes {
        let cost = self.index.cost_of(shard);
        cost.memory.saturating_add(cost.reading)
    }

    fn parts(&self, shard: u32) -> u64 {
        match self.kind {
            SetKind::Shards => self.shard_bytes(shard).get() / PART,
            SetKind::Batches => 1,
        }
    }

    fn samples_cost(&self, shard: u32) -> Bytes {
        self.index.cost_of(shard).reading
    }

    fn read_shard(&self, shard: u32) -> Result<Vec<BufferedSample>, DataError> {
        self.read(shard, Selection::All)
    }

    fn read_together(&self, shard: u32, places: &[u64]) -> Result<Vec<BufferedSample>, DataError> {
        self.read(shard, Selection::Together(places))
    }

    fn read_samples(&self, shard: u32, places: &[u64]) -> Result<Vec<BufferedSample>, DataError> {
        self.read(shard, Selection::Apart(places))
    }
}
