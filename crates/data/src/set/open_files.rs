//! Files that stay open while samples are read out of them one by one.
//!
//! Finding out where the samples of a file lie takes longer than reading one, so what was found is kept for the files
//! that were used last.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use crate::DataError;

/// The files that were used last, the newest at the end, and what is known of each.
#[derive(Debug)]
pub(crate) struct OpenFiles<T> {
    /// At the most.
    limits: Limits,
    /// What it takes to know a file.
    bytes_of: fn(&T) -> u64,
    files: Mutex<VecDeque<OpenFile<T>>>,
}

/// What is kept of all files together.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    pub(crate) bytes: u64,
    pub(crate) files: usize,
}

#[derive(Debug)]
struct OpenFile<T> {
    shard: u32,
    bytes: u64,
    contents: Arc<T>,
}

impl<T> OpenFiles<T> {
    /// Keeps nothing yet.
    pub(crate) fn new(limits: Limits, bytes_of: fn(&T) -> u64) -> Self {
        Self { limits, bytes_of, files: Mutex::default() }
    }

    /// What is known of a file, found out by `find` where it was not kept. It is not looked at again: the caller makes sure
    /// that the file has not changed.
    pub(crate) fn get(&self, shard: u32, find: impl FnOnce() -> Result<T, DataError>) -> Result<Arc<T>, DataError> {
        if let Some(contents) = self.take_up(shard) {
            return Ok(contents);
        }
        // Not under the lock: others read on meanwhile, and at worst two find out the same.
        let contents = Arc::new(find()?);
        let bytes = (self.bytes_of)(&contents);
        let mut files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        files.retain(|file| file.shard != shard);
        files.push_back(OpenFile { shard, bytes, contents: Arc::clone(&contents) });
        while files.len() > self.limits.files || files.iter().map(|file| file.bytes).sum::<u64>() > self.limits.bytes {
            files.pop_front();
        }
        Ok(contents)
    }

    /// Forgets a file, which has changed.
    pub(crate) fn forget(&self, shard: u32) {
        self.files.lock().unwrap_or_else(PoisonError::into_inner).retain(|file| file.shard != shard);
    }

    fn take_up(&self, shard: u32) -> Option<Arc<T>> {
        let mut files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        let at = files.iter().position(|file| file.shard == shard)?;
        let newest = files.remove(at)?;
        let contents = Arc::clone(&newest.contents);
        files.push_back(newest);
        Some(contents)
    }
}
