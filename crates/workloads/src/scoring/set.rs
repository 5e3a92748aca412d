//! A data set of items: where they are, and which of them are trained on.

use std::cell::Cell;
use std::collections::HashSet;
use std::sync::Arc;

use lowtide_core::Bytes;
use lowtide_data::feed::{OnDamage, Store};
use lowtide_data::index::RebuildReason;
use lowtide_data::order::{Layout, SampleId};
use lowtide_data::shard::hash_of_id;
use lowtide_data::{BufferedSample, DataError, DataSet, Folder, OpenOptions, SaveIndex, Scores, Subset};
use lowtide_generators::Random;
use lowtide_generators::traces::Item;
use lowtide_tensorfile::DecodeLimit;

use super::decode::decode;
use super::item_shards::ItemShards;
use super::settings::DataSettings;

/// Share of the items that are evaluated on.
const EVALUATION_SHARE: f64 = 0.2;

/// A store whose samples are items.
pub(crate) trait ItemStore: Store {
    /// The item that a sample is.
    fn item(&self, sample: &Self::Sample, at: SampleId) -> Result<Arc<Item>, String>;

    /// Tells an item from all others, whatever file it is in.
    fn key(&self, at: SampleId) -> u64;

    /// Whether it can be used: it has a score.
    fn is_scored(&self, _at: SampleId) -> bool {
        true
    }

    /// Memory that it may come to take besides samples.
    fn held(&self) -> Bytes {
        Bytes::ZERO
    }

    /// Files that were left out because they cannot be read.
    fn files_left_out(&self) -> u64 {
        0
    }

    /// What was not as it should be when the files were opened, and is now.
    fn repair(&self) -> Option<String> {
        None
    }
}

/// Items in two parts. An item's part follows from its id alone: files that are read in another order, or more of them,
/// move none.
pub(crate) struct Parts<S: Store> {
    pub(crate) store: Arc<S>,
    pub(crate) train: Arc<Subset<S>>,
    pub(crate) eval: Arc<Subset<S>>,
    /// Items that have no score.
    pub(crate) unscored: u64,
}

impl<S: ItemStore> Parts<S> {
    /// Splits all items; no more than `most` of them are evaluated on.
    pub(crate) fn of(store: S, most: u64) -> Parts<S> {
        let store = Arc::new(store);
        let (evaluated, unscored) = (Cell::new(0), Cell::new(0));
        let train = Subset::new(Arc::clone(&store), |at| {
            let is_scored = store.is_scored(at);
            unscored.set(unscored.get() + u64::from(!is_scored));
            is_scored && !is_for_evaluation(store.key(at))
        });
        let eval = Subset::new(Arc::clone(&store), |at| {
            let is_chosen = evaluated.get() < most && store.is_scored(at) && is_for_evaluation(store.key(at));
            evaluated.set(evaluated.get() + u64::from(is_chosen));
            is_chosen
        });
        Parts { store, train: Arc::new(train), eval: Arc::new(eval), unscored: unscored.get() }
    }

    /// Items in both parts: to train on, to evaluate on.
    pub(crate) fn counts(&self) -> [u64; 2] {
        [self.train.layout().samples(), self.eval.layout().samples()]
    }

    /// The first item to train on, and the largest.
    pub(crate) fn examples(&self, on_damage: OnDamage) -> Result<[Arc<Item>; 2], String> {
        let layout = self.train.layout();
        let all = || (0..layout.samples()).map(|number| layout.sample(number));
        let largest = all().max_by_key(|sample| (self.train.sample_bytes(*sample), std::cmp::Reverse(*sample)));
        let read = |at: SampleId| {
            let samples = self.train.read_samples(at.shard, &[at.index]).map_err(|error| error.to_string())?;
            self.store.item(&samples[0], self.train.sample_of(at))
        };
        let first = match (read(layout.sample(0)), on_damage) {
            (Err(_), OnDamage::Skip) => all().find_map(|at| read(at).ok()).ok_or("no sample can be read")?,
            (first, _) => first?,
        };
        let largest = match (read(largest.ok_or("there are no items to train on")?), on_damage) {
            (Err(_), OnDamage::Skip) => Arc::clone(&first),
            (largest, _) => largest?,
        };
        Ok([first, largest])
    }

    /// A number that is another where files or samples are: the order of training is one of these.
    pub(crate) fn fingerprint(&self) -> String {
        let layout = self.store.layout();
        let keys = (0..layout.samples()).map(|number| self.store.key(layout.sample(number)));
        let counts = (0..layout.shards()).map(|shard| layout.samples_of(shard));
        let mixed = counts.chain(keys).fold(0, |mixed, next| Random::new(mixed ^ next, 1).bits());
        format!("{mixed:016x}")
    }
}

fn is_for_evaluation(key: u64) -> bool {
    Random::new(key, 0).unit() < EVALUATION_SHARE
}

impl ItemStore for ItemShards {
    fn item(&self, sample: &Arc<Item>, _at: SampleId) -> Result<Arc<Item>, String> {
        Ok(Arc::clone(sample))
    }

    fn key(&self, at: SampleId) -> u64 {
        self.id_hash(at)
    }
}

/// Items in files.
pub(crate) struct Files {
    set: DataSet,
    left_out: Vec<DataError>,
    rebuilt: Option<RebuildReason>,
    scores: Option<Scores>,
    /// Hashes of the ids that have a score.
    scored: HashSet<u64>,
}

impl Files {
    /// Looks at the files, none of which may decode to more than the limit; no value is read. The error comes with the
    /// setting that it is about.
    pub(crate) fn open(
        settings: &DataSettings,
        decode_limit: DecodeLimit,
        save_index: SaveIndex,
    ) -> Result<Files, (&'static str, String)> {
        let on_damage = settings.on_damage;
        let options = OpenOptions { on_damage, decode_limit, save_index, ..OpenOptions::default() };
        let opened = match (&settings.folder, &settings.pattern) {
            (Some(folder), _) if !folder.is_dir() => {
                return Err(("data.folder", format!("there is no folder {}", folder.display())));
            }
            (Some(folder), _) => DataSet::open(folder, options).map_err(about("data.folder"))?,
            (None, pattern) => {
                let files = Folder::matching(pattern.as_deref().unwrap_or_default());
                let opened = files.and_then(|files| DataSet::of_files(&files, options));
                opened.map_err(about("data.pattern"))?
            }
        };
        let scores = settings.scores.as_deref().map(Scores::read).transpose().map_err(about("data.scores"))?;
        let scored = scores.iter().flat_map(Scores::ids).map(hash_of_id).collect();
        Ok(Files { set: opened.set, left_out: opened.left_out, rebuilt: opened.rebuilt, scores, scored })
    }
}

fn about(key: &'static str) -> impl Fn(DataError) -> (&'static str, String) {
    move |error| (key, error.to_string())
}

impl Store for Files {
    type Sample = BufferedSample;

    fn layout(&self) -> &Layout {
        self.set.layout()
    }

    fn shard_bytes(&self, shard: u32) -> Bytes {
        self.set.shard_bytes(shard)
    }

    fn sample_bytes(&self, sample: SampleId) -> Bytes {
        self.set.sample_bytes(sample)
    }

    fn shard_cost(&self, shard: u32) -> Bytes {
        self.set.shard_cost(shard)
    }

    fn samples_cost(&self, shard: u32) -> Bytes {
        self.set.samples_cost(shard)
    }

    fn read_shard(&self, shard: u32) -> Result<Vec<BufferedSample>, DataError> {
        self.set.read_shard(shard)
    }

    fn read_together(&self, shard: u32, places: &[u64]) -> Result<Vec<BufferedSample>, DataError> {
        self.set.read_together(shard, places)
    }

    fn read_samples(&self, shard: u32, places: &[u64]) -> Result<Vec<BufferedSample>, DataError> {
        self.set.read_samples(shard, places)
    }
}

impl ItemStore for Files {
    fn item(&self, sample: &BufferedSample, at: SampleId) -> Result<Arc<Item>, String> {
        decode(sample, at, &self.set.path(at.shard), self.scores.as_ref())
    }

    fn key(&self, at: SampleId) -> u64 {
        self.set.id_hash(at).unwrap_or_else(|| {
            let path = self.set.path(at.shard);
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            hash_of_id(&format!("{name}:{}", at.index))
        })
    }

    fn is_scored(&self, at: SampleId) -> bool {
        self.scores.is_none() || self.set.id_hash(at).is_some_and(|hash| self.scored.contains(&hash))
    }

    fn held(&self) -> Bytes {
        self.set.most_kept_open()
    }

    fn files_left_out(&self) -> u64 {
        self.left_out.len() as u64
    }

    fn repair(&self) -> Option<String> {
        let reason = self.rebuilt.as_ref().filter(|reason| **reason != RebuildReason::Missing)?;
        Some(format!("{reason}; .lowtide-index was made anew"))
    }
}

/// Items of files that were all read at the start.
pub(crate) struct InMemory {
    files: Files,
    shards: Vec<Option<Vec<BufferedSample>>>,
}

impl InMemory {
    /// Reads everything. What cannot be read and is to be left out is tried again when it is needed, and counted there.
    pub(crate) fn load(files: Files, on_damage: OnDamage) -> Result<InMemory, DataError> {
        let read = |shard| match (files.read_shard(shard), on_damage) {
            (Ok(samples), _) => Ok(Some(samples)),
            (Err(_), OnDamage::Skip) => Ok(None),
            (Err(error), OnDamage::Stop) => Err(error),
        };
        let shards = (0..files.layout().shards()).map(read).collect::<Result<_, _>>()?;
        Ok(InMemory { files, shards })
    }
}

impl Store for InMemory {
    type Sample = BufferedSample;

    fn layout(&self) -> &Layout {
        self.files.layout()
    }

    fn shard_bytes(&self, shard: u32) -> Bytes {
        self.files.shard_bytes(shard)
    }

    fn sample_bytes(&self, sample: SampleId) -> Bytes {
        self.files.sample_bytes(sample)
    }

    fn read_shard(&self, shard: u32) -> Result<Vec<BufferedSample>, DataError> {
        self.shards[shard as usize].clone().map_or_else(|| self.files.read_shard(shard), Ok)
    }

    fn read_samples(&self, shard: u32, places: &[u64]) -> Result<Vec<BufferedSample>, DataError> {
        match &self.shards[shard as usize] {
            Some(samples) => Ok(places.iter().map(|place| samples[*place as usize].clone()).collect()),
            None => self.files.read_samples(shard, places),
        }
    }
}

impl ItemStore for InMemory {
    fn item(&self, sample: &BufferedSample, at: SampleId) -> Result<Arc<Item>, String> {
        self.files.item(sample, at)
    }

    fn key(&self, at: SampleId) -> u64 {
        self.files.key(at)
    }

    fn is_scored(&self, at: SampleId) -> bool {
        self.files.is_scored(at)
    }

    fn files_left_out(&self) -> u64 {
        self.files.files_left_out()
    }

    fn repair(&self) -> Option<String> {
        self.files.repair()
    }
}
