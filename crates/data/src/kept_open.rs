//! Files that stay open while samples are read out of them one by one.
//!
//! Finding out where the samples of a file lie takes longer than reading one, so what was found is kept for the files
//! that were used last.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use crate::error::DataError;

/// The files that were used last, the newest at the end, and what is known of each.
#[derive(Debug)]
pub(crate) struct KeptOpen<T> {
    /// At the most.
    limits: Limits,
    files: Mutex<VecDeque<Kept<T>>>,
}

/// What is kept of all files together.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    pub(crate) bytes: u64,
    pub(crate) files: usize,
}

#[derive(Debug)]
struct Kept<T> {
    shard: u32,
    bytes: u64,
    found: Arc<T>,
}

impl<T> KeptOpen<T> {
    /// Keeps nothing yet.
    pub(crate) fn new(limits: Limits) -> Self {
        Self { limits, files: Mutex::default() }
    }

    /// What is known of a file, found out by `find` where it was not kept, with the bytes that it takes. It is not looked
    /// at again: the caller makes sure that the file has not changed.
    pub(crate) fn get(
        &self,
        shard: u32,
        find: impl FnOnce() -> Result<(T, u64), DataError>,
    ) -> Result<Arc<T>, DataError> {
        if let Some(found) = self.take_up(shard) {
            return Ok(found);
        }
        // Not under the lock: others read on meanwhile, and at worst two find out the same.
        let (found, bytes) = find()?;
        let found = Arc::new(found);
        let mut files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        files.retain(|kept| kept.shard != shard);
        files.push_back(Kept { shard, bytes, found: Arc::clone(&found) });
        while files.len() > self.limits.files || files.iter().map(|kept| kept.bytes).sum::<u64>() > self.limits.bytes {
            files.pop_front();
        }
        Ok(found)
    }

    /// Forgets a file, which has changed.
    pub(crate) fn forget(&self, shard: u32) {
        self.files.lock().unwrap_or_else(PoisonError::into_inner).retain(|kept| kept.shard != shard);
    }

    fn take_up(&self, shard: u32) -> Option<Arc<T>> {
        let mut files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        let at = files.iter().position(|kept| kept.shard == shard)?;
        let newest = files.remove(at)?;
        let found = Arc::clone(&newest.found);
        files.push_back(newest);
        Some(found)
    }
}
