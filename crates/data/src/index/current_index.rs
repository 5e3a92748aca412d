//! Opening the index of a folder, looking at those files that it does not know.
//!
//! A data set is known before it is read: 16 bytes a sample (memory, hash of the id) and about 60 a file, saved in its
//! folder as `.lowtide-index`. Files whose size or time changed are looked at again, the others not even opened. The
//! ids of a file that is opened are compared with it, for the split between training and evaluation follows from them.
//! Formats without a checksum of their own (`.npy`, safetensors, plain pickles, old `.pt`) are read once to have one in
//! the index, and are compared with it whenever they are opened; what was damaged before the first run, or where no
//! index is kept, nobody can tell.

use std::collections::HashMap;
use std::fmt;
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use super::{Builder, FileFacts, Index, IndexError, SetKind};
use crate::DataError;
use crate::feed::OnDamage;
use crate::file_stamp::FileStamp;
use crate::set::{OpenOptions, SaveIndex};

/// Threads that look at files, at the most.
const MOST_THREADS: usize = 8;
/// Files for which another thread is worth its start.
const FILES_A_THREAD: usize = 64;

/// An index that fits the files of its folder.
#[derive(Debug)]
pub(crate) struct CurrentIndex {
    pub(crate) index: Index,
    /// Why it was made anew; `None` where the saved one was used.
    pub(crate) rebuilt: Option<RebuildReason>,
    /// Files that cannot be read, where these are to be skipped.
    pub(crate) left_out: Vec<DataError>,
}

/// Why an index was made anew.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RebuildReason {
    /// There was none.
    Missing,
    /// The saved one could not be used.
    Unusable {
        /// What was wrong with it.
        reason: &'static str,
    },
    /// A file was added or changed since.
    Changed {
        /// The file.
        name: String,
    },
    /// A file was removed since.
    Removed {
        /// The file.
        name: String,
    },
}

impl fmt::Display for RebuildReason {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing => write!(formatter, "there was no index"),
            Self::Unusable { reason } => write!(formatter, "the saved index is not usable: {reason}"),
            Self::Changed { name } => write!(formatter, "{name} was added or changed since the index was made"),
            Self::Removed { name } => write!(formatter, "{name} was removed since the index was made"),
        }
    }
}

/// Opens the index of the files `names` in `folder`: takes from the one saved at `saved` what still fits, looks at the
/// other files, and saves what is new.
///
/// An index that cannot be saved, in a folder that may only be read for instance, is good all the same.
pub(crate) fn open_or_build(
    folder: &Path,
    (kind, names): (SetKind, &[String]),
    saved: Option<&Path>,
    options: OpenOptions,
) -> Result<CurrentIndex, DataError> {
    let save_index = if saved.is_some() { options.save_index } else { SaveIndex::Never };
    let options = OpenOptions { save_index, ..options };
    let (known, mut rebuilt) = match saved.map(|path| Index::load(path, kind)) {
        Some(Ok(index)) => (Some(index), None),
        None | Some(Err(IndexError::Missing)) => (None, Some(RebuildReason::Missing)),
        Some(Err(IndexError::Unusable(reason))) => (None, Some(RebuildReason::Unusable { reason })),
    };
    let mut fates = fates(folder, names, known.as_ref());
    let unknown: Vec<usize> = (0..names.len()).filter(|at| fates[*at].is_none()).collect();
    let mut left_out = Vec::new();
    let looked = look_at_all(folder, kind, names, &unknown, options);
    for (at, looked) in unknown.into_iter().zip(looked) {
        match (looked, options.on_damage) {
            (Ok(facts), _) => {
                rebuilt.get_or_insert_with(|| RebuildReason::Changed { name: names[at].clone() });
                fates[at] = Some(Fate::New(facts));
            }
            (Err(error), OnDamage::Skip) => left_out.push(error),
            (Err(error), OnDamage::Stop) => return Err(error),
        }
    }
    if let Some(index) = known {
        let kept = fates.iter().flatten().filter_map(|fate| match fate {
            Fate::Known(file) => Some(*file),
            Fate::New(_) => None,
        });
        let gone = first_gone(&index, kept);
        if let Some(name) = gone.filter(|_| rebuilt.is_none()) {
            rebuilt = Some(RebuildReason::Removed { name });
        }
        if rebuilt.is_none() {
            return Ok(CurrentIndex { index, rebuilt, left_out });
        }
        return Ok(finish(build(names, fates, Some(&index)), kind, (saved, options.save_index), rebuilt, left_out));
    }
    Ok(finish(build(names, fates, None), kind, (saved, options.save_index), rebuilt, left_out))
}

/// What becomes of a file in the new index.
enum Fate {
    /// It is as the saved index has it, under this number.
    Known(u32),
    /// It was looked at just now.
    New(FileFacts),
}

/// Those files that are as the index has them.
fn fates(folder: &Path, names: &[String], known: Option<&Index>) -> Vec<Option<Fate>> {
    let Some(index) = known else { return names.iter().map(|_| None).collect() };
    let files: HashMap<&str, u32> = (0..index.files()).map(|file| (index.name_of(file), file)).collect();
    let same = |name: &String| {
        let file = *files.get(name.as_str())?;
        let metadata = fs::metadata(folder.join(name)).ok()?;
        let stamp = index.stamp_of(file);
        (FileStamp::new(&metadata, stamp.fingerprint) == stamp).then_some(Fate::Known(file))
    };
    names.iter().map(same).collect()
}

/// The first file of the index that is not among those kept.
fn first_gone(index: &Index, kept: impl Iterator<Item = u32>) -> Option<String> {
    let mut is_there = vec![false; index.files() as usize];
    kept.for_each(|file| is_there[file as usize] = true);
    let gone = is_there.iter().position(|there| !there)?;
    Some(index.name_of(gone as u32).to_owned())
}

/// Looks at these of the files, with some threads; after an error at which to stop, the rest may be missing.
fn look_at_all(
    folder: &Path,
    kind: SetKind,
    names: &[String],
    wanted: &[usize],
    options: OpenOptions,
) -> Vec<Result<FileFacts, DataError>> {
    let cores = thread::available_parallelism().map_or(1, usize::from).min(MOST_THREADS);
    let threads = cores.min(wanted.len() / FILES_A_THREAD).max(1);
    let (next, is_over) = (AtomicUsize::new(0), AtomicBool::new(false));
    let look = || {
        let mut looked = Vec::new();
        while !is_over.load(Ordering::Relaxed) {
            let place = next.fetch_add(1, Ordering::Relaxed);
            let Some(at) = wanted.get(place) else { break };
            let found = kind.look_at(&folder.join(&names[*at]), options);
            if found.is_err() && options.on_damage == OnDamage::Stop {
                is_over.store(true, Ordering::Relaxed);
            }
            looked.push((place, found));
        }
        looked
    };
    let mut all: Vec<_> = thread::scope(|scope| {
        let helpers: Vec<_> = (1..threads).map(|_| scope.spawn(look)).collect();
        let mut all = look();
        for helper in helpers {
            all.extend(helper.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        }
        all
    });
    all.sort_by_key(|(place, _)| *place);
    // Files are taken in order, so those before the first error were all looked at.
    all.into_iter().map(|(_, looked)| looked).collect()
}

fn build(names: &[String], fates: Vec<Option<Fate>>, known: Option<&Index>) -> Index {
    let mut builder = Builder::default();
    for (name, fate) in names.iter().zip(fates) {
        match (fate, known) {
            (Some(Fate::New(facts)), _) => builder.add(name, facts.stamp, facts.cost, facts.samples),
            (Some(Fate::Known(file)), Some(index)) => {
                let samples = index.samples_of(file).iter().copied();
                builder.add(name, index.stamp_of(file), index.cost_of(file), samples);
            }
            _ => {}
        }
    }
    builder.finish()
}

fn finish(
    index: Index,
    kind: SetKind,
    (saved, save): (Option<&Path>, SaveIndex),
    rebuilt: Option<RebuildReason>,
    left_out: Vec<DataError>,
) -> CurrentIndex {
    let is_wanted = match save {
        SaveIndex::Always => true,
        SaveIndex::WhereNone => rebuilt == Some(RebuildReason::Missing),
        SaveIndex::Never => false,
    };
    if let Some(path) = saved.filter(|_| is_wanted) {
        // Without it the next run looks at the files again, which costs time and nothing else.
        let _ = index.save(path, kind);
    }
    CurrentIndex { index, rebuilt, left_out }
}
