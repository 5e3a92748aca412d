//! What is written down about a folder: how it was begun and how far it came.
//!
//! While a folder is packed there is [`PACKING`] in it: one line of JSON that says how it was begun, and one for each
//! shard that is whole. It is locked by the process that packs. In the end all of it goes into [`PACKED`], and the file
//! is deleted. So a folder with [`PACKING`] in it is not a data set yet.

use std::collections::HashSet;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{BufRead, BufReader, ErrorKind, Seek, SeekFrom, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use lowtide_core::Bytes;
use lowtide_disk::PartialFile;
use serde::{Deserialize, Serialize};

use super::error::Difference;
use super::sources::{Source, SourceStamp};
use super::{Error, Options};
use crate::set::PACKING;
use crate::shard::Compression;

/// The name of the file that says how a folder was packed.
pub const PACKED: &str = "pack.json";

const VERSION: u32 = 1;

/// What a folder was begun with.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Inputs {
    version: u32,
    shard_bytes: Bytes,
    zstd_level: Option<i32>,
    scores: Option<SourceStamp>,
    sources: Vec<SourceStamp>,
}

/// A shard that is whole.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ShardNote {
    pub(super) records: u64,
    pub(super) bytes: Bytes,
    pub(super) fingerprint: u32,
    /// Its first sample.
    pub(super) from: Position,
    /// The first sample that is not in it.
    pub(super) to: Position,
    /// Sources that were left out since the shard before.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) skipped: Vec<SkipNote>,
}

/// A place in all sources.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
pub(super) struct Position {
    pub(super) source: u64,
    pub(super) sample: u64,
}

/// A source that was left out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct SkipNote {
    pub(super) source: u64,
    pub(super) reason: String,
}

/// What [`PACKED`] holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Notes {
    #[serde(flatten)]
    pub(super) inputs: Inputs,
    pub(super) shards: Vec<ShardNote>,
    /// Sources behind the last shard that were left out.
    pub(super) skipped: Vec<SkipNote>,
}

impl Inputs {
    pub(super) fn new(sources: &[Source], scores: Option<&Source>, options: &Options) -> Self {
        Self {
            version: VERSION,
            shard_bytes: options.shard_bytes,
            zstd_level: match options.compression {
                Compression::None => None,
                Compression::Zstd { level } => Some(level),
            },
            scores: scores.map(|source| source.stamp.clone()),
            sources: sources.iter().map(|source| source.stamp.clone()).collect(),
        }
    }

    /// The first thing in which what is `asked` for differs, where `packed` sources are in the shards.
    ///
    /// The sources behind these may have been written to since: a damaged one can be put right.
    pub(super) fn difference(&self, asked: &Self, packed: usize) -> Option<Difference> {
        let option = |name, was: String, is: String| (was != is).then_some(Difference::Option(name, was, is));
        let compression = |level: Option<i32>| level.map_or("none".to_owned(), |level| format!("level {level}"));
        let scores = |stamp: &Option<SourceStamp>| stamp.as_ref().map_or("none".to_owned(), |it| it.path.clone());
        option("version", self.version.to_string(), asked.version.to_string())
            .or_else(|| option("--shard-size", self.shard_bytes.to_string(), asked.shard_bytes.to_string()))
            .or_else(|| option("--compress", compression(self.zstd_level), compression(asked.zstd_level)))
            .or_else(|| option("--scores", scores(&self.scores), scores(&asked.scores)))
            .or_else(|| different_files(self.scores.as_slice(), asked.scores.as_slice(), 1))
            .or_else(|| different_files(&self.sources, &asked.sources, packed))
    }
}

fn different_files(was: &[SourceStamp], is: &[SourceStamp], packed: usize) -> Option<Difference> {
    let paths = |stamps: &[SourceStamp]| stamps.iter().map(|stamp| stamp.path.clone()).collect::<HashSet<_>>();
    let (known, named) = (paths(was), paths(is));
    if let Some(added) = is.iter().find(|stamp| !known.contains(&stamp.path)) {
        return Some(Difference::Added(added.path.clone()));
    }
    if let Some(removed) = was.iter().find(|stamp| !named.contains(&stamp.path)) {
        return Some(Difference::Removed(removed.path.clone()));
    }
    if was.iter().zip(is).any(|(was, is)| was.path != is.path) {
        return Some(Difference::Order);
    }
    let mut pairs = was.iter().zip(is).take(packed);
    let (was, is) = pairs.find(|(was, is)| was != is)?;
    Some(Difference::Changed(was.path.clone(), was.bytes, is.bytes))
}

impl Notes {
    /// What is written down in a folder that is packed; nothing where there is no such file.
    pub(super) fn load(folder: &Path) -> Result<Option<Self>, Error> {
        let path = folder.join(PACKED);
        let text = match fs::read(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            read => read.map_err(Error::io(&path, "read"))?,
        };
        let packed = serde_json::from_slice(&text);
        packed.map(Some).map_err(|error| Error::Notes { file: path, problem: error.to_string() })
    }

    pub(super) fn save(&self, folder: &Path) -> Result<(), Error> {
        let path = folder.join(PACKED);
        let mut text = serde_json::to_vec_pretty(self).expect("plain numbers and texts");
        text.push(b'\n');
        Ok(lowtide_disk::write(&path, &text)?)
    }
}

/// [`PACKING`], open and locked.
#[derive(Debug)]
pub(super) struct Journal {
    file: File,
    path: PathBuf,
    /// Where each line ends.
    ends: Vec<u64>,
}

impl Journal {
    /// Opens the file and locks it, making it where it is not there.
    pub(super) fn open(folder: &Path) -> Result<Self, Error> {
        let path = folder.join(PACKING);
        let open = || OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path);
        let file = open().map_err(Error::io(&path, "create"))?;
        let busy = || Error::Busy { folder: folder.to_owned() };
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(busy()),
            Err(TryLockError::Error(source)) => return Err(Error::io(&path, "lock")(source)),
        }
        // Between opening and locking, whoever had the lock may have finished and deleted the file.
        let ours = file.metadata().map_err(Error::io(&path, "look at"))?.ino();
        match fs::metadata(&path) {
            Ok(named) if named.ino() == ours => Ok(Self { file, path, ends: Vec::new() }),
            _ => Err(busy()),
        }
    }

    /// What was written down; nothing where not even the first line is whole. A torn line at the end does not count.
    pub(super) fn read(&mut self) -> Result<Option<(Inputs, Vec<ShardNote>)>, Error> {
        self.ends.clear();
        self.file.seek(SeekFrom::Start(0)).map_err(Error::io(&self.path, "read"))?;
        let mut reader = BufReader::new(&self.file);
        let mut inputs: Option<Inputs> = None;
        let mut shards = Vec::new();
        let mut line = Vec::new();
        let mut end = 0;
        loop {
            line.clear();
            end += reader.read_until(b'\n', &mut line).map_err(Error::io(&self.path, "read"))? as u64;
            if line.pop() != Some(b'\n') {
                return Ok(inputs.map(|inputs| (inputs, shards)));
            }
            let problem =
                |error: serde_json::Error| Error::Notes { file: self.path.clone(), problem: error.to_string() };
            match inputs {
                None => inputs = Some(serde_json::from_slice(&line).map_err(problem)?),
                Some(_) => shards.push(serde_json::from_slice(&line).map_err(problem)?),
            }
            self.ends.push(end);
        }
    }

    /// Goes on behind the first so many shards; what stands behind them is cut off.
    pub(super) fn go_on_behind(&mut self, shards: usize) -> Result<(), Error> {
        let end = self.ends.get(shards).copied().unwrap_or(0);
        let cut = |file: &mut File| {
            file.set_len(end)?;
            file.seek(SeekFrom::Start(end))?;
            file.sync_all()
        };
        cut(&mut self.file).map_err(Error::io(&self.path, "write"))
    }

    /// Writes down how a folder is begun, and the shards that are there already, in place of all else; as a whole or
    /// not at all.
    pub(super) fn begin(&mut self, inputs: &Inputs, shards: &[ShardNote]) -> Result<(), Error> {
        let mut text = line_of(inputs);
        shards.iter().for_each(|shard| text.extend(line_of(shard)));
        // Locked before it has the name under which another process would look for it.
        let mut file = PartialFile::create_locked(&self.path)?;
        file.write_all(&text).map_err(Error::io(&self.path, "write"))?;
        self.file = file.finish()?;
        Ok(())
    }

    /// Adds a shard that is whole.
    pub(super) fn add(&mut self, shard: &ShardNote) -> Result<(), Error> {
        self.write(&line_of(shard))
    }

    fn write(&mut self, text: &[u8]) -> Result<(), Error> {
        let written = self.file.write_all(text).and_then(|()| self.file.sync_data());
        written.map_err(Error::io(&self.path, "write"))
    }

    /// Deletes the file: from here on the folder is a data set.
    pub(super) fn delete(self) -> Result<(), Error> {
        fs::remove_file(&self.path).map_err(Error::io(&self.path, "delete"))?;
        let folder = self.path.parent().unwrap_or(Path::new("."));
        File::open(folder).and_then(|folder| folder.sync_all()).map_err(Error::io(folder, "sync"))
    }
}

fn line_of(value: &impl Serialize) -> Vec<u8> {
    let mut line = serde_json::to_vec(value).expect("plain numbers and texts");
    line.push(b'\n');
    line
}
