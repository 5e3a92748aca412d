//! The table of files and samples.

use std::sync::Arc;

use lowtide_core::Bytes;

use crate::file_stamp::FileStamp;
use crate::order::{Layout, SampleId};

/// What the samples of a file take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileCost {
    /// Memory of all of them once they are read together.
    pub memory: Bytes,
    /// Memory that reading any of them takes besides, for the moment.
    pub reading: Bytes,
}

/// What is known of a sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SampleFacts {
    /// Memory that it takes once it is read by itself.
    pub memory: Bytes,
    /// The [hash](crate::shard::hash_of_id) of its id, 0 where it has none.
    pub id_hash: u64,
}

/// What is known of a file and its samples.
pub(crate) struct FileFacts {
    pub(crate) stamp: FileStamp,
    pub(crate) cost: FileCost,
    pub(crate) samples: Vec<SampleFacts>,
}

/// The files and samples of a data set.
///
/// A shard of the [`Layout`] is a file here. Everything is kept in columns: a million files with one sample each take
/// less than 100 bytes a sample with names of up to 24 letters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Index {
    pub(super) layout: Arc<Layout>,
    pub(super) stamps: Vec<FileStamp>,
    pub(super) costs: Vec<FileCost>,
    /// All names, one behind the other.
    pub(super) names: String,
    /// Where each name ends.
    pub(super) name_ends: Vec<u64>,
    pub(super) samples: Vec<SampleFacts>,
}

impl Index {
    /// Files and their numbers of samples, as an [order](crate::order) needs them.
    pub fn layout(&self) -> &Arc<Layout> {
        &self.layout
    }

    /// How many files there are.
    pub fn files(&self) -> u32 {
        self.layout.shards()
    }

    /// How many samples there are.
    pub fn samples(&self) -> u64 {
        self.layout.samples()
    }

    /// The name of a file, relative to the folder of the data set.
    ///
    /// # Panics
    ///
    /// Where there is no such file.
    pub fn name_of(&self, file: u32) -> &str {
        let file = file as usize;
        let start = if file == 0 { 0 } else { self.name_ends[file - 1] };
        &self.names[start as usize..self.name_ends[file] as usize]
    }

    /// What the file was when the index was made.
    ///
    /// # Panics
    ///
    /// Where there is no such file.
    pub fn stamp_of(&self, file: u32) -> FileStamp {
        self.stamps[file as usize]
    }

    /// What the samples of a file take.
    ///
    /// # Panics
    ///
    /// Where there is no such file.
    pub fn cost_of(&self, file: u32) -> FileCost {
        self.costs[file as usize]
    }

    /// What is known of a sample.
    ///
    /// # Panics
    ///
    /// Where there is no such sample.
    pub fn sample(&self, sample: SampleId) -> SampleFacts {
        self.samples[self.layout.number_of(sample) as usize]
    }

    /// What is known of the samples of a file.
    ///
    /// # Panics
    ///
    /// Where there is no such file.
    pub fn samples_of(&self, file: u32) -> &[SampleFacts] {
        let start = self.layout.start_of(file) as usize;
        &self.samples[start..start + self.layout.samples_of(file) as usize]
    }

    /// All samples, in the order of their numbers.
    pub(crate) fn all(&self) -> &[SampleFacts] {
        &self.samples
    }

    /// The memory that the index takes.
    pub fn memory(&self) -> Bytes {
        let columns = self.stamps.capacity() * size_of::<FileStamp>()
            + self.costs.capacity() * size_of::<FileCost>()
            + self.names.capacity()
            + self.name_ends.capacity() * size_of::<u64>()
            + self.samples.capacity() * size_of::<SampleFacts>()
            + (self.layout.shards() as usize + 1) * size_of::<u64>();
        Bytes((size_of::<Self>() + columns) as u64)
    }
}

/// Makes an [`Index`] of files, in the order in which they are added.
#[derive(Debug, Default)]
pub struct Builder {
    counts: Vec<u64>,
    stamps: Vec<FileStamp>,
    costs: Vec<FileCost>,
    names: String,
    name_ends: Vec<u64>,
    samples: Vec<SampleFacts>,
}

impl Builder {
    /// Adds a file.
    pub fn add(
        &mut self,
        name: &str,
        stamp: FileStamp,
        cost: FileCost,
        samples: impl IntoIterator<Item = SampleFacts>,
    ) {
        let before = self.samples.len();
        self.samples.extend(samples);
        self.counts.push((self.samples.len() - before) as u64);
        self.stamps.push(stamp);
        self.costs.push(cost);
        self.names.push_str(name);
        self.name_ends.push(self.names.len() as u64);
    }

    /// The index of what was added.
    pub fn finish(mut self) -> Index {
        self.stamps.shrink_to_fit();
        self.costs.shrink_to_fit();
        self.names.shrink_to_fit();
        self.name_ends.shrink_to_fit();
        self.samples.shrink_to_fit();
        let Self { counts, stamps, costs, names, name_ends, samples } = self;
        Index { layout: Arc::new(Layout::new(counts)), stamps, costs, names, name_ends, samples }
    }
}
