//! Packing from beginning to end.
//!
//! Packing is a pure function of sources and options, so that going on after a kill is the same as not having been
//! stopped. A shard is named when it is whole, then written down in `.packing`, which is locked by the process that
//! packs and is there until `pack.json` takes its place; a folder with `.packing` in it is refused by whoever reads
//! data. A source whose samples are not in a shard yet may be put right meanwhile.

use std::collections::HashSet;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use lowtide_core::Bytes;
use lowtide_tensorfile::{DecodeLimit, Dtype};

use super::folder::{self, FolderState, MOST_SHARDS, shard_path};
use super::notes::{Inputs, Journal, Notes, PACKED, Position, ShardNote, SkipNote};
use super::sources::{self, Source, SourceSamples};
use super::{Difference, Error, OnMissing, Options, ScoreGaps};
use crate::DataError;
use crate::batch::BatchFile;
use crate::feed::OnDamage;
use crate::samples::{Field, FieldValue, Sample, Scores, tensors_of};
use crate::set::{DataSet, OpenOptions};
use crate::shard::{Reader, Tensor, Writer};

/// The field that a score becomes.
const SCORES: &str = "scores";

/// What to do about a folder that was begun.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Start {
    /// Go on with it.
    #[default]
    GoOn,
    /// Delete its shards and begin anew.
    Over,
}

/// What is being done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// Ids are looked up in the table of scores.
    Matching,
    /// Shards are written.
    Packing,
    /// Shards are compared with their sources.
    Verifying,
}

/// How far it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// What is being done.
    pub stage: Stage,
    /// Bytes of the sources that are done with.
    pub done: Bytes,
    /// Bytes of all sources.
    pub all: Bytes,
}

/// Is shown how far it is, after every sample, and says whether to go on.
pub type Observer<'w> = dyn FnMut(Progress) -> ControlFlow<()> + 'w;

/// A folder that is packed, or is to be.
#[derive(Debug)]
pub struct Job {
    pub(super) folder: PathBuf,
    pub(super) sources: Vec<Source>,
    /// Where each source begins among the bytes of all, and behind them the sum.
    starts: Vec<u64>,
    pub(super) scores: Option<(PathBuf, Scores)>,
    pub(super) options: Options,
    inputs: Inputs,
    pub(super) done: Vec<ShardNote>,
    /// Sources behind the last shard that are left out.
    pub(super) skipped: Vec<SkipNote>,
    /// Where the folder was begun and is not finished.
    journal: Option<Journal>,
    finished: bool,
    found_shards: usize,
}

/// A shard that is being written.
struct OpenShard {
    writer: Writer,
    path: PathBuf,
    from: Position,
}

impl Job {
    /// Looks at the sources and the folder; nothing is written, unless an earlier run's shards are to be deleted or are
    /// not whole.
    ///
    /// # Errors
    ///
    /// Where a source is not there, or the folder holds something else, was begun with something else, or is in use.
    pub fn begin(inputs: &[PathBuf], folder: &Path, options: Options, start: Start) -> Result<Self, Error> {
        let sources = sources::find(inputs)?;
        let table = options.scores.as_deref().map(Source::of).transpose()?;
        let scores = options.scores.clone().map(|path| Scores::read(&path).map(|scores| (path, scores))).transpose()?;
        let inputs = Inputs::new(&sources, table.as_ref(), &options);
        let mut starts = vec![0];
        starts.extend(sources.iter().scan(0_u64, |sum, source| {
            *sum = sum.saturating_add(source.stamp.bytes.get());
            Some(*sum)
        }));
        let folder = folder.to_owned();
        let mut job = Self {
            folder,
            sources,
            starts,
            scores,
            options,
            inputs,
            done: Vec::new(),
            skipped: Vec::new(),
            journal: None,
            finished: false,
            found_shards: 0,
        };
        job.take_up(start)?;
        job.found_shards = job.done.len();
        Ok(job)
    }

    /// Whether the folder is packed.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.finished
    }

    /// Whole shards that an earlier run had left.
    #[must_use]
    pub fn found_shards(&self) -> u64 {
        self.found_shards as u64
    }

    /// Packs what is not packed yet.
    ///
    /// # Errors
    ///
    /// [`Error::Stopped`] where `watch` says so; and where a source cannot be read or the disk refuses. Shards that are
    /// whole stay, and [`Job::begin`] goes on with them.
    pub fn run(&mut self, watch: &mut Observer<'_>) -> Result<(), Error> {
        self.match_scores(watch)?;
        if self.is_finished() { Ok(()) } else { self.pack_to_end(watch) }
    }

    fn pack_to_end(&mut self, watch: &mut Observer<'_>) -> Result<(), Error> {
        let mut journal = match self.journal.take() {
            Some(journal) => journal,
            None => self.begin_folder()?,
        };
        let packed = self.pack(&mut journal, watch);
        if packed.is_ok() && self.done.is_empty() {
            journal.delete()?;
            folder::give_up(&self.folder);
            return Err(Error::NoSamples);
        }
        packed?;
        folder::delete_leftovers(&self.folder)?;
        // Makes the index and saves it.
        // As much as the samples of these shards took when they were read: a limit for them has nothing to add.
        let options = OpenOptions { decode_limit: DecodeLimit::new(Bytes::MAX), ..OpenOptions::default() };
        DataSet::open_unchecked(&self.folder, options)?;
        let packed = Notes { inputs: self.inputs.clone(), shards: self.done.clone(), skipped: self.skipped.clone() };
        packed.save(&self.folder)?;
        journal.delete()?;
        self.finished = true;
        Ok(())
    }

    /// Makes the folder, and writes down how it is begun.
    fn begin_folder(&self) -> Result<Journal, Error> {
        folder::make(&self.folder)?;
        let mut journal = Journal::open(&self.folder)?;
        // Since the folder was looked at, another process may have begun it, or even finished it.
        if journal.read()?.is_some() {
            return Err(Error::Busy { folder: self.folder.clone() });
        }
        if self.folder.join(PACKED).exists() {
            journal.delete()?;
            return Err(Error::Busy { folder: self.folder.clone() });
        }
        journal.begin(&self.inputs, &[])?;
        Ok(journal)
    }

    fn take_up(&mut self, start: Start) -> Result<(), Error> {
        let found = folder::look_at(&self.folder)?;
        if found == FolderState::Nothing {
            return Ok(());
        }
        if start == Start::Over {
            return self.start_over();
        }
        let packed = Notes::load(&self.folder)?;
        if found == FolderState::Packed
            && let Some(packed) = packed
        {
            return self.take_up_packed(packed);
        }
        let mut journal = Journal::open(&self.folder)?;
        match journal.read()? {
            Some((inputs, done)) => {
                self.check_inputs(&inputs, &done, &[])?;
                let whole = folder::whole(&self.folder, &done);
                folder::delete_from(&self.folder, whole, done.len())?;
                if inputs == self.inputs {
                    journal.go_on_behind(whole)?;
                } else {
                    journal.begin(&self.inputs, &done[..whole])?;
                }
                self.done = done;
                self.done.truncate(whole);
                self.journal = Some(journal);
                Ok(())
            }
            // Stopped before anything was written down, or while a finished folder was being mended.
            None => match packed {
                Some(packed) => self.mend(packed, journal),
                None => {
                    folder::delete_from(&self.folder, 0, 0)?;
                    journal.begin(&self.inputs, &[])?;
                    self.journal = Some(journal);
                    Ok(())
                }
            },
        }
    }

    fn take_up_packed(&mut self, packed: Notes) -> Result<(), Error> {
        self.check_inputs(&packed.inputs, &packed.shards, &packed.skipped)?;
        if folder::whole(&self.folder, &packed.shards) == packed.shards.len() {
            self.done = packed.shards;
            self.skipped = packed.skipped;
            self.finished = true;
            return Ok(());
        }
        let mut journal = Journal::open(&self.folder)?;
        match journal.read()? {
            // Another process was faster to mend it, and was stopped again.
            Some(_) => Err(Error::Busy { folder: self.folder.clone() }),
            None => self.mend(packed, journal),
        }
    }

    /// A finished folder of which something is missing is one that was interrupted there.
    fn mend(&mut self, packed: Notes, mut journal: Journal) -> Result<(), Error> {
        self.check_inputs(&packed.inputs, &packed.shards, &packed.skipped)?;
        let whole = folder::whole(&self.folder, &packed.shards);
        journal.begin(&self.inputs, &packed.shards[..whole])?;
        folder::delete_from(&self.folder, whole, packed.shards.len())?;
        folder::delete(&self.folder.join(PACKED))?;
        self.done = packed.shards;
        self.done.truncate(whole);
        self.journal = Some(journal);
        Ok(())
    }

    fn start_over(&mut self) -> Result<(), Error> {
        let mut journal = Journal::open(&self.folder)?;
        let known = match (journal.read(), Notes::load(&self.folder)) {
            (Ok(Some((_, done))), _) => done.len(),
            (_, Ok(Some(packed))) => packed.shards.len(),
            _ => usize::MAX,
        };
        folder::delete_from(&self.folder, 0, known)?;
        folder::delete(&self.folder.join(PACKED))?;
        journal.begin(&self.inputs, &[])?;
        self.journal = Some(journal);
        Ok(())
    }

    fn check_inputs(&self, inputs: &Inputs, done: &[ShardNote], skipped: &[SkipNote]) -> Result<(), Error> {
        // One that is packed in part counts.
        let packed = done.last().map_or(0, |done| done.to.source + u64::from(done.to.sample > 0));
        let is_one_missing = !skipped.is_empty() || done.iter().any(|done| !done.skipped.is_empty());
        let difference = inputs.difference(&self.inputs, packed as usize).or_else(|| {
            let is_off = is_one_missing && self.options.on_damage == OnDamage::Stop;
            is_off.then(|| Difference::Option("--skip-damaged", "on".to_owned(), "off".to_owned()))
        });
        match difference {
            None => Ok(()),
            Some(difference) => Err(Error::Differs { folder: self.folder.clone(), difference }),
        }
    }

    fn pack(&mut self, journal: &mut Journal, watch: &mut Observer<'_>) -> Result<(), Error> {
        let mut at = self.done.last().map_or(Position::default(), |done| done.to);
        let mut growing: Option<OpenShard> = None;
        while (at.source as usize) < self.sources.len() {
            let number = at.source;
            if let Some(samples) = self.open(at)? {
                let count = samples.count;
                for sample in samples {
                    let (index, sample) = sample?;
                    let sample = self.with_score(sample, number, index)?;
                    let shard = match &mut growing {
                        Some(shard) => shard,
                        none => none.insert(self.next_shard(at)?),
                    };
                    shard.append(&sample, &self.sources[number as usize].path)?;
                    at = behind(number, index, count);
                    if shard.writer.bytes() >= self.options.shard_bytes {
                        self.finish(growing.take(), at, journal)?;
                    }
                    self.show(watch, Stage::Packing, at, count)?;
                }
                self.sources[number as usize].check()?;
            }
            at = Position { source: number + 1, sample: 0 };
        }
        self.finish(growing, at, journal)
    }

    /// The samples of a source from a place on, or `None` where it is left out.
    fn open(&mut self, at: Position) -> Result<Option<SourceSamples>, Error> {
        let source = &self.sources[at.source as usize];
        match SourceSamples::open(source, at.sample, self.options.decode_limit) {
            // Of a source that was begun, samples are in the shards: it cannot be left out any more.
            Err(Error::Source(error)) if self.options.on_damage == OnDamage::Skip && at.sample == 0 => {
                let reason = reason(&error, &source.path);
                self.skipped.push(SkipNote { source: at.source, reason });
                Ok(None)
            }
            samples => samples.map(Some),
        }
    }

    fn next_shard(&self, from: Position) -> Result<OpenShard, Error> {
        if self.done.len() >= MOST_SHARDS {
            return Err(Error::TooMany { folder: self.folder.clone(), most: MOST_SHARDS });
        }
        let path = shard_path(&self.folder, self.done.len());
        Ok(OpenShard { writer: Writer::create(&path, self.options.compression)?, path, from })
    }

    fn finish(&mut self, shard: Option<OpenShard>, to: Position, journal: &mut Journal) -> Result<(), Error> {
        let Some(OpenShard { writer, path, from }) = shard else { return Ok(()) };
        let finished = writer.finish()?;
        let done = ShardNote {
            records: finished.records,
            bytes: finished.bytes,
            fingerprint: Reader::open(path)?.fingerprint(),
            from,
            to,
            skipped: std::mem::take(&mut self.skipped),
        };
        journal.add(&done)?;
        self.done.push(done);
        Ok(())
    }

    /// Gives a sample its score.
    pub(super) fn with_score(&self, mut sample: Sample, source: u64, index: u64) -> Result<Sample, Error> {
        let Some((_, scores)) = &self.scores else { return Ok(sample) };
        if sample.get(SCORES).is_some() {
            return Err(Error::OwnScore { file: self.sources[source as usize].path.clone(), sample: index });
        }
        if let Some(score) = sample.id().and_then(|id| scores.get(&id)) {
            let bytes = score.to_ne_bytes().to_vec();
            let value = FieldValue::Array { dtype: Dtype::Float64, shape: Vec::new(), bytes };
            sample.fields.push(Field { name: Arc::from(SCORES), value });
        }
        Ok(sample)
    }

    /// Refuses samples without a score and scores without a sample, before anything is written.
    fn match_scores(&self, watch: &mut Observer<'_>) -> Result<(), Error> {
        let Some((file, scores)) = self.scores.as_ref().filter(|_| self.options.missing == OnMissing::Refuse) else {
            return Ok(());
        };
        let mut gaps = ScoreGaps::default();
        let mut used = HashSet::new();
        for (number, source) in self.sources.iter().enumerate() {
            let ids = match ids_of(source, self.options.decode_limit) {
                Err(_) if self.options.on_damage == OnDamage::Skip => continue,
                ids => ids?,
            };
            for id in ids {
                gaps.see(id, scores, &mut used);
            }
            self.show(watch, Stage::Matching, Position { source: number as u64 + 1, sample: 0 }, 1)?;
        }
        gaps.see_unused(scores, |id| used.contains(id));
        if gaps.is_empty() {
            return Ok(());
        }
        Err(Error::Unmatched { file: file.clone(), gaps: Box::new(gaps) })
    }

    /// Tells how far it is: up to `at`, a place in a source of so many samples.
    pub(super) fn show(&self, watch: &mut Observer<'_>, stage: Stage, at: Position, count: u64) -> Result<(), Error> {
        let source = (at.source as usize).min(self.sources.len());
        let (start, all) = (self.starts[source], self.starts[self.sources.len()]);
        let size = self.starts.get(source + 1).map_or(0, |end| end - start);
        let part = u128::from(size) * u128::from(at.sample) / u128::from(count.max(1));
        match watch(Progress { stage, done: Bytes(start + part as u64), all: Bytes(all) }) {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(()) => Err(Error::Stopped {
                folder: self.folder.clone(),
                shards: self.done.len() as u64,
                samples: self.done.iter().map(|done| done.records).sum(),
            }),
        }
    }
}

impl OpenShard {
    fn append(&mut self, sample: &Sample, source: &Path) -> Result<(), Error> {
        self.writer.append(&tensors(sample, source)?, sample.id().as_deref())?;
        Ok(())
    }
}

fn behind(source: u64, sample: u64, count: u64) -> Position {
    match sample + 1 {
        next if next >= count => Position { source: source + 1, sample: 0 },
        next => Position { source, sample: next },
    }
}

/// The ids of the samples of a source; tensors are read only where the ids are in one.
fn ids_of(source: &Source, limit: DecodeLimit) -> Result<Vec<Option<String>>, DataError> {
    let file = BatchFile::open_within(&source.path, limit)?;
    if let Some(ids) = file.ids() {
        return Ok(ids.into_iter().map(|id| Some(id.trim().to_owned())).collect());
    }
    (0..file.samples()).map(|index| Ok(file.read(index)?.id())).collect()
}

/// A sample as a record; an error names its file.
pub(super) fn tensors<'s>(sample: &'s Sample, file: &Path) -> Result<Vec<Tensor<'s>>, DataError> {
    tensors_of(sample).map_err(|field| field.in_file(file))
}

/// What is wrong with a file, without its path.
fn reason(error: &DataError, path: &Path) -> String {
    let text = error.to_string();
    text.strip_prefix(&format!("{}: ", path.display())).unwrap_or(&text).to_owned()
}
