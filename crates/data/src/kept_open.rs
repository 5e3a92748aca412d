//! Batch files that stay open while samples are read out of them one by one.
//!
//! Finding out where the samples of a batch file lie takes longer than reading one, so what was found is kept for the files
//! that were used last.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use lowtide_core::Bytes;

use crate::batch_reads::Found;
use crate::error::DataError;

/// What is kept of all files together, at the most.
const MOST: u64 = 16 << 20;
/// File handles at the most.
const MOST_FILES: usize = 16;

/// The files that were used last, the newest at the end, and what is known of each.
#[derive(Debug, Default)]
pub(crate) struct KeptOpen {
    files: Mutex<VecDeque<(u32, Arc<Found>)>>,
}

impl KeptOpen {
    /// What it may come to take, for files of which the largest take this by themselves.
    pub(crate) fn most(sizes: impl Iterator<Item = Bytes>) -> Bytes {
        sizes.fold(Bytes::ZERO, Bytes::saturating_add).min(Bytes(MOST))
    }

    /// What is known of a file, found out by `find` where it was not kept. It is not looked at again: the caller makes sure
    /// that the file has not changed.
    pub(crate) fn get(
        &self,
        shard: u32,
        find: impl FnOnce() -> Result<Found, DataError>,
    ) -> Result<Arc<Found>, DataError> {
        if let Some(found) = self.take_up(shard) {
            return Ok(found);
        }
        // Not under the lock: others read on meanwhile, and at worst two find out the same.
        let found = Arc::new(find()?);
        let mut files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        files.retain(|(other, _)| *other != shard);
        files.push_back((shard, Arc::clone(&found)));
        while files.len() > MOST_FILES || files.iter().map(|(_, found)| found.bytes()).sum::<u64>() > MOST {
            files.pop_front();
        }
        Ok(found)
    }

    /// Forgets a file, which has changed.
    pub(crate) fn forget(&self, shard: u32) {
        self.files.lock().unwrap_or_else(PoisonError::into_inner).retain(|(other, _)| *other != shard);
    }

    fn take_up(&self, shard: u32) -> Option<Arc<Found>> {
        let mut files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        let at = files.iter().position(|(other, _)| *other == shard)?;
        let newest = files.remove(at)?;
        let found = Arc::clone(&newest.1);
        files.push_back(newest);
        Some(found)
    }
}
