//! Comparing shards with their sources.

use std::collections::HashSet;
use std::path::Path;

use super::folder::shard_path;
use super::job::{Stage, tensors};
use super::notes::Position;
use super::sources::SourceSamples;
use super::{Error, Job, Observer};
use crate::shard::{Reader, ShardWalk, Tensor};

impl Job {
    /// Reads all shards and all sources again and compares them, sample by sample and byte by byte; gives the number
    /// of samples.
    ///
    /// # Errors
    ///
    /// [`Error::Mismatch`] and [`Error::Count`] where they differ; [`Error::Stopped`] where `watch` says so; and where
    /// something cannot be read.
    pub fn verify(&self, watch: &mut Observer<'_>) -> Result<u64, Error> {
        let mut records = Records { job: self, number: 0, shard: None };
        let skipped: HashSet<u64> = self.all_skipped().map(|skipped| skipped.source).collect();
        let mut there = 0;
        for (number, source) in (0..).zip(&self.sources).filter(|(number, _)| !skipped.contains(number)) {
            let samples = SourceSamples::open(source, 0, self.options.decode_limit)?;
            let count = samples.count;
            for sample in samples {
                let (index, sample) = sample?;
                let sample = self.with_score(sample, number, index)?;
                there += 1;
                records.compare(&tensors(&sample, &source.path)?, &source.path, index)?;
                self.show(watch, Stage::Verifying, Position { source: number, sample: index + 1 }, count)?;
            }
        }
        let packed = self.done.iter().map(|done| done.records).sum();
        if packed != there {
            return Err(Error::Count { folder: self.folder.clone(), packed, there });
        }
        Ok(there)
    }
}

/// The records of all shards, one after the other.
struct Records<'j> {
    job: &'j Job,
    /// The number of the next shard.
    number: usize,
    shard: Option<ShardWalk>,
}

impl Records<'_> {
    /// Compares the next record, if there is one, with a sample.
    fn compare(&mut self, sample: &[Tensor<'_>], file: &Path, index: u64) -> Result<(), Error> {
        loop {
            if let Some(shard) = &mut self.shard {
                let path = shard.reader().path().to_owned();
                if let Some((record, packed)) = shard.next()? {
                    let Some(problem) = difference(packed.tensors(), sample) else { return Ok(()) };
                    return Err(Error::Mismatch { shard: path, record, file: file.to_owned(), sample: index, problem });
                }
            }
            if self.number >= self.job.done.len() {
                return Ok(());
            }
            let shard = Reader::open(shard_path(&self.job.folder, self.number))?;
            let records = 0..shard.len();
            self.shard = Some(ShardWalk::new(shard, records));
            self.number += 1;
        }
    }
}

fn difference(packed: &[Tensor<'_>], sample: &[Tensor<'_>]) -> Option<String> {
    let names = |tensors: &[Tensor<'_>]| tensors.iter().map(|it| it.name.to_owned()).collect::<Vec<_>>();
    if names(packed) != names(sample) {
        return Some("they have other fields".to_owned());
    }
    let (one, other) = packed.iter().zip(sample).find(|(one, other)| one != other)?;
    let what =
        if (one.kind, &one.shape) == (other.kind, &other.shape) { "other values" } else { "another shape or type" };
    Some(format!("`{:.80}` has {what}", one.name.escape_debug().to_string()))
}
