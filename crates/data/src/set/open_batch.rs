//! A batch file that is open, and whether it is the one that is known.

use std::collections::HashSet;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use lowtide_tensorfile::{DecodeLimit, Place, Storage, TensorFile, TensorFileError};

use crate::DataError;
use crate::batch::BatchFile;
use crate::index::SampleFacts;
use crate::shard::hash_of_id;

/// What the index keeps of a file whose format has no checksum: all of it has to be read for that, once.
pub(super) fn batch_fingerprint(data: &TensorFile, file: &BatchFile) -> Result<u32, DataError> {
    // 0 stands for none.
    if file.format().has_checksum() { Ok(0) } else { Ok(data.checksum()?.max(1)) }
}

/// A batch file that is open, and where its samples lie.
#[derive(Debug)]
pub(crate) struct OpenBatch {
    pub(super) data: Arc<TensorFile>,
    pub(super) file: BatchFile,
    /// Where the storages begin whose checksums were found right; what is read in part has no other check.
    verified: Mutex<HashSet<u64>>,
}

impl OpenBatch {
    /// Makes sure, once, that a storage of which a part is read is undamaged.
    pub(super) fn verify(&self, storage: &Storage) -> Result<(), DataError> {
        let verified = || self.verified.lock().unwrap_or_else(PoisonError::into_inner);
        if verified().contains(&storage.position()) {
            return Ok(());
        }
        storage.verify_in_file()?;
        verified().insert(storage.position());
        Ok(())
    }

    /// The first of its samples whose id is not the one that is known, where they are as many.
    pub(crate) fn other_id(&self, known: &[SampleFacts]) -> Option<u64> {
        let ids = self.file.ids();
        let hash_at = |at: usize| ids.as_ref().and_then(|ids| ids.get(at)).map_or(0, |id| hash_of_id(id));
        let is_as_many = known.len() as u64 == self.file.samples();
        known
            .iter()
            .enumerate()
            .filter(|_| is_as_many)
            .find(|(at, known)| known.id_hash != hash_at(*at))
            .map(|(at, _)| at as u64)
    }

    /// Opens a file, to read much of it where it may `hold` up to [`HELD_FILE`](super::batch_samples::HELD_FILE), and nothing where a little of it is read
    /// now and then.
    pub(crate) fn open(path: &Path, hold: u64, limit: DecodeLimit) -> Result<Self, DataError> {
        let data = TensorFile::open(path, hold, limit)?;
        let file = BatchFile::find(&data)?;
        Ok(Self { data, file, verified: Mutex::default() })
    }

    /// An error where its bytes are not those that the index was made of, as far as that noted a checksum.
    pub(crate) fn check_fingerprint(&self, expect: u32) -> Result<(), DataError> {
        if expect == 0 {
            return Ok(());
        }
        let found = batch_fingerprint(&self.data, &self.file)?;
        if found == expect {
            return Ok(());
        }
        let (file, place) = (self.data.path().to_owned(), Place::Whole);
        Err(TensorFileError::Checksum { file, place, expect, found }.into())
    }

    /// Memory that it takes, about.
    pub(crate) fn bytes(&self) -> u64 {
        // Two thirds of it are needed only to find out.
        self.file.tree_bytes() / 3
    }
}
