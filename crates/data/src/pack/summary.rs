//! What a packed folder holds.

use std::collections::HashSet;
use std::path::PathBuf;

use lowtide_core::Bytes;
use lowtide_tensorfile::Dtype;

use super::folder::shard_path;
use super::notes::SkipNote;
use super::{Error, Job, ScoreGaps};
use crate::samples::ID_NAMES;
use crate::shard::{FieldKind, Reader, Scratch, hash_of_id};

/// Ids that are named.
const EXAMPLES: usize = 5;

/// What a packed folder holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Summary {
    /// Samples.
    pub samples: u64,
    /// Shards.
    pub shards: u64,
    /// Bytes of all shards.
    pub bytes: Bytes,
    /// Bytes of all samples before they were compressed.
    pub unpacked_bytes: Bytes,
    /// Sources that were packed.
    pub sources: u64,
    /// Their bytes.
    pub source_bytes: Bytes,
    /// Sources that were left out.
    pub left_out: Vec<OmittedSource>,
    /// Samples with an id.
    pub ids: u64,
    /// Ids that come more than once.
    pub duplicates: DuplicateIds,
    /// Scores in the table, and what did not find each other; `None` without a table.
    pub scores: Option<(u64, ScoreGaps)>,
}

/// A source that was left out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OmittedSource {
    /// The file.
    pub file: PathBuf,
    /// What is wrong with it.
    pub reason: String,
}

/// Ids that come more than once.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DuplicateIds {
    /// Samples whose id came before.
    pub samples: u64,
    /// Some of these ids.
    pub ids: Vec<String>,
}

impl Job {
    /// Adds up what was packed. Ids are told apart by hashes of 64 bits, of which 8 bytes a sample are held.
    ///
    /// # Errors
    ///
    /// Where a shard cannot be read.
    pub fn summary(&self) -> Result<Summary, Error> {
        let mut unpacked = Bytes::ZERO;
        let mut hashes = Vec::new();
        self.each_record(&mut |shard, record| {
            unpacked = unpacked.saturating_add(shard.unpacked_bytes_of(record)?);
            hashes.extend(shard.id_hash_of(record)?);
            Ok(())
        })?;
        let ids = hashes.len() as u64;
        hashes.sort_unstable();
        let again: HashSet<u64> = hashes.windows(2).filter(|pair| pair[0] == pair[1]).map(|pair| pair[0]).collect();
        let twice = hashes.windows(2).filter(|pair| pair[0] == pair[1]).count() as u64;
        let duplicates = DuplicateIds { samples: twice, ids: self.ids_with(again, EXAMPLES)? };
        let samples = self.done.iter().map(|done| done.records).sum::<u64>();
        let left_out: Vec<OmittedSource> = self
            .all_skipped()
            .map(|skipped| OmittedSource {
                file: self.sources[skipped.source as usize].path.clone(),
                reason: skipped.reason.clone(),
            })
            .collect();
        let skipped: HashSet<u64> = self.all_skipped().map(|skipped| skipped.source).collect();
        let sum = |sizes: &mut dyn Iterator<Item = Bytes>| sizes.fold(Bytes::ZERO, Bytes::saturating_add);
        Ok(Summary {
            samples,
            shards: self.done.len() as u64,
            bytes: sum(&mut self.done.iter().map(|done| done.bytes)),
            unpacked_bytes: unpacked,
            sources: self.sources.len() as u64 - left_out.len() as u64,
            source_bytes: sum(&mut (0..)
                .zip(&self.sources)
                .filter(|(at, _)| !skipped.contains(at))
                .map(|(_, it)| it.stamp.bytes)),
            left_out,
            ids,
            duplicates,
            scores: self.unmatched(samples - ids, &hashes)?,
        })
    }

    /// All sources that were left out.
    pub(super) fn all_skipped(&self) -> impl Iterator<Item = &SkipNote> {
        self.done.iter().flat_map(|done| &done.skipped).chain(&self.skipped)
    }

    /// What of samples and scores did not find each other, by the sorted hashes of the samples' ids.
    fn unmatched(&self, without_id: u64, hashes: &[u64]) -> Result<Option<(u64, ScoreGaps)>, Error> {
        let Some((_, scores)) = &self.scores else { return Ok(None) };
        let scored: HashSet<u64> = scores.ids().map(hash_of_id).collect();
        let unscored = hashes.iter().filter(|hash| !scored.contains(hash));
        let mut gaps = ScoreGaps { without_id, without_score: unscored.clone().count() as u64, ..ScoreGaps::default() };
        gaps.unscored_ids = self.ids_with(unscored.copied().collect(), super::error::EXAMPLES)?;
        gaps.see_unused(scores, |id| hashes.binary_search(&hash_of_id(id)).is_ok());
        Ok(Some((scores.len() as u64, gaps)))
    }

    /// The first ids with one of these hashes, each once.
    fn ids_with(&self, mut hashes: HashSet<u64>, most: usize) -> Result<Vec<String>, Error> {
        let mut ids = Vec::new();
        if hashes.is_empty() {
            return Ok(ids);
        }
        let mut scratch = Scratch::default();
        self.each_record(&mut |shard, record| {
            let wanted = ids.len() < most && shard.id_hash_of(record)?.is_some_and(|hash| hashes.remove(&hash));
            if wanted {
                ids.extend(id_in(shard, record, &mut scratch)?);
            }
            Ok(())
        })?;
        Ok(ids)
    }

    fn each_record(&self, take: &mut dyn FnMut(&Reader, u64) -> Result<(), Error>) -> Result<(), Error> {
        for number in 0..self.done.len() {
            let shard = Reader::open(shard_path(&self.folder, number))?;
            (0..shard.len()).try_for_each(|record| take(&shard, record))?;
        }
        Ok(())
    }
}

/// The id of a record, as its sample gives it.
fn id_in(shard: &Reader, record: u64, scratch: &mut Scratch) -> Result<Option<String>, Error> {
    let mut buffer = vec![0; shard.bytes_of(record..record + 1)?.get() as usize];
    let run = shard.read(record..record + 1, &mut buffer)?;
    let tensors = run.record(record, scratch)?;
    let id = ID_NAMES.iter().find_map(|name| tensors.get(name));
    Ok(id.and_then(|tensor| match tensor.kind {
        FieldKind::Text => Some(String::from_utf8_lossy(tensor.bytes).trim().to_owned()),
        FieldKind::Array(Dtype::Int64) => Some(i64::from_le_bytes(tensor.bytes.try_into().ok()?).to_string()),
        _ => None,
    }))
}
