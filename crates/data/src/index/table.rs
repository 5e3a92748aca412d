//! The table of files and samples.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;

use lowtide_core::Bytes;

use crate::order::{Layout, SampleId};

/// What tells a file from another of the same name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileStamp {
    /// Its size.
    pub bytes: Bytes,
    /// When it was last changed, in nanoseconds since 1970.
    pub modified: i64,
    /// A checksum of its content, or 0 where the format has none that is cheap to read.
    pub fingerprint: u32,
}

impl FileStamp {
    /// The stamp of a file by what the system says about it.
    pub fn new(metadata: &Metadata, fingerprint: u32) -> Self {
        let modified = metadata.mtime().saturating_mul(1_000_000_000).saturating_add(metadata.mtime_nsec());
        Self { bytes: Bytes(metadata.len()), modified, fingerprint }
    }
}

/// Where a sample lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// The number of the file.
    pub file: u32,
    /// The number of the sample in the file.
    pub position: u64,
    /// Where its bytes begin in the file.
    pub offset: u64,
    /// How many bytes it takes there.
    pub bytes: Bytes,
}

/// Where each sample of a data set lies.
///
/// A shard of the [`Layout`] is a file here. Everything is kept in columns: a million files with one sample each take
/// less than 100 bytes a sample with names of up to 30 letters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Index {
    pub(super) layout: Arc<Layout>,
    pub(super) stamps: Vec<FileStamp>,
    /// All names, one behind the other.
    pub(super) names: String,
    /// Where each name ends.
    pub(super) name_ends: Vec<u64>,
    /// Offset and bytes of each sample.
    pub(super) extents: Vec<(u64, u64)>,
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

    /// The size of every file, for [`window_for`](crate::order::window_for) and [`curve`](crate::simulation::curve).
    pub fn file_bytes(&self) -> Vec<Bytes> {
        self.stamps.iter().map(|stamp| stamp.bytes).collect()
    }

    /// Where a sample lies.
    ///
    /// # Panics
    ///
    /// Where there is no such sample.
    pub fn place_of(&self, sample: SampleId) -> Place {
        let (offset, bytes) = self.extents[self.layout.number_of(sample) as usize];
        Place { file: sample.shard, position: sample.index, offset, bytes: Bytes(bytes) }
    }

    /// The memory that the index takes.
    pub fn memory(&self) -> Bytes {
        let columns = self.stamps.capacity() * size_of::<FileStamp>()
            + self.names.capacity()
            + self.name_ends.capacity() * size_of::<u64>()
            + self.extents.capacity() * size_of::<(u64, u64)>()
            + (self.layout.shards() as usize + 1) * size_of::<u64>();
        Bytes((size_of::<Self>() + columns) as u64)
    }
}

/// Makes an [`Index`] of files of any kind, in the order in which they are added.
#[derive(Debug, Default)]
pub struct Builder {
    counts: Vec<u64>,
    stamps: Vec<FileStamp>,
    names: String,
    name_ends: Vec<u64>,
    extents: Vec<(u64, u64)>,
}

impl Builder {
    /// An index without files.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a file, with offset and bytes of each of its samples.
    pub fn add(&mut self, name: &str, stamp: FileStamp, samples: impl IntoIterator<Item = (u64, Bytes)>) {
        let before = self.extents.len();
        self.extents.extend(samples.into_iter().map(|(offset, bytes)| (offset, bytes.get())));
        self.counts.push((self.extents.len() - before) as u64);
        self.stamps.push(stamp);
        self.names.push_str(name);
        self.name_ends.push(self.names.len() as u64);
    }

    /// The index of what was added.
    pub fn finish(mut self) -> Index {
        self.stamps.shrink_to_fit();
        self.names.shrink_to_fit();
        self.name_ends.shrink_to_fit();
        self.extents.shrink_to_fit();
        let layout = Arc::new(Layout::new(self.counts));
        Index { layout, stamps: self.stamps, names: self.names, name_ends: self.name_ends, extents: self.extents }
    }
}
