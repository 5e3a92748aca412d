//! Samples in memory, many in one buffer, and the memory that they take, known before any is read.
//!
//! One buffer a read. A sample in memory is a record of a shard, whatever file it came from, in one anonymous map with
//! the others that were read with it. Samples as many small pieces would be malloc's, which neither packs them nor
//! gives them back. What is read alone, under a full shuffle, has a buffer of its own, so that it is given back alone.
//! Up to 4 MiB of pages that were given back wait for the next read: to have them cleared by the system takes about as
//! long as reading them.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use lowtide_core::Bytes;
use lowtide_tensorfile::View;
use lowtide_tensorfile::pages::Memory;

use super::ID_NAMES;
use crate::DataError;
use crate::shard::record::{self, RecordTensors};
use crate::shard::{FieldKind, Record, Tensor};

/// A sample in memory: a part of a buffer that it shares with the other samples of its shard.
///
/// It is a record of a [shard](crate::shard), whatever file it came from. A clone shares the buffer, which is given
/// back as a whole when the last sample of it goes: one that is kept while a [feed](crate::feed) goes on keeps all of
/// its shard, and no budget counts that.
#[derive(Clone)]
pub struct BufferedSample {
    buffer: Arc<Buffer>,
    place: RecordPlace,
}

/// Where a record lies in a buffer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RecordPlace {
    pub(crate) start: usize,
    pub(crate) length: usize,
    /// Where its head is among those of the buffer, start and length; without a length, it is in the record.
    pub(crate) head: (u32, u32),
}

impl RecordPlace {
    /// Of a record that begins with its head.
    pub(crate) fn whole(start: usize, length: usize) -> Self {
        Self { start, length, head: (0, 0) }
    }
}

/// Records, the heads that they do not have themselves, and the names of their tensors.
struct Buffer {
    names: Arc<[String]>,
    heads: Box<[u8]>,
    memory: Memory,
}

impl BufferedSample {
    /// The value of a field.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<View<'_>> {
        self.heads().find(|tensor| tensor.name == name).and_then(view)
    }

    /// All fields, in the order of the file.
    pub fn fields(&self) -> impl Iterator<Item = (&str, View<'_>)> {
        self.heads().filter_map(|tensor| Some((tensor.name, view(tensor)?)))
    }

    /// Its id as a text, where it has one.
    #[must_use]
    pub fn id(&self) -> Option<String> {
        let id = ID_NAMES.iter().find_map(|name| self.get(name))?;
        match &id {
            View::Text(text) => Some((*text).to_owned()),
            View::Array { .. } => match id.to_i64()?[..] {
                [number] => Some(number.to_string()),
                _ => None,
            },
        }
    }

    /// Memory that it takes: its part of the buffer and itself.
    #[must_use]
    pub fn bytes(&self) -> Bytes {
        Bytes((self.place.length + size_of::<Self>()) as u64)
    }

    /// The records that lie at these places of a buffer.
    pub(crate) fn parts(
        memory: Memory,
        heads: Box<[u8]>,
        names: Arc<[String]>,
        places: impl IntoIterator<Item = RecordPlace>,
    ) -> Vec<Self> {
        let buffer = Arc::new(Buffer { names, heads, memory });
        let packed = |place| Self { buffer: Arc::clone(&buffer), place };
        places.into_iter().map(packed).collect()
    }

    /// Whether it is a record, which `get` and `fields` take for granted; the error says what is wrong.
    pub(crate) fn check(&self) -> Result<(), &'static str> {
        Record::parse_apart(self.head(), self.record(), &self.buffer.names).map(|_| ())
    }

    fn record(&self) -> &[u8] {
        &self.buffer.memory[self.place.start..self.place.start + self.place.length]
    }

    fn head(&self) -> &[u8] {
        match self.place.head {
            (_, 0) => self.record(),
            (start, length) => &self.buffer.heads[start as usize..(start + length) as usize],
        }
    }

    fn heads(&self) -> impl Iterator<Item = Tensor<'_>> {
        RecordTensors::of(self.head(), self.record(), &self.buffer.names).map_while(Result::ok)
    }
}

impl fmt::Debug for BufferedSample {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_map().entries(self.fields()).finish()
    }
}

impl PartialEq for BufferedSample {
    fn eq(&self, other: &Self) -> bool {
        self.fields().eq(other.fields())
    }
}

/// The room that records take side by side in a buffer.
#[derive(Debug, Default)]
pub(crate) struct Room {
    bytes: u64,
    records: u64,
}

impl Room {
    /// Adds a record of so many bytes, and says where it begins.
    pub(crate) fn add(&mut self, length: u64) -> u64 {
        let start = record::align(self.bytes);
        self.bytes = start.saturating_add(length);
        self.records += 1;
        start
    }

    /// How large the buffer has to be.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Memory of buffer and samples, names left out.
    pub(crate) fn cost(&self) -> u64 {
        let samples = self.records.saturating_mul(size_of::<BufferedSample>() as u64);
        Memory::cost(self.bytes).saturating_add(samples).saturating_add(BUFFER)
    }

    /// Memory of a record that has a buffer of its own, names left out.
    pub(crate) fn alone(length: u64) -> u64 {
        Memory::cost(length).saturating_add(size_of::<BufferedSample>() as u64).saturating_add(BUFFER)
    }

    /// Memory of the names that the samples of a buffer share.
    pub(crate) fn names_cost(names: &[String]) -> u64 {
        names.iter().map(|name| (size_of::<String>() + name.len()) as u64 + MALLOC).sum()
    }
}

/// Memory of a buffer besides its bytes: itself, how often it is shared, the lists that hold it and its samples, and
/// [what a feed knows of it](FEED).
const BUFFER: u64 = (size_of::<Buffer>() + 2 * size_of::<usize>()) as u64 + 3 * MALLOC + FEED;
/// Memory that a feed takes for each thing that it keeps: who waits for it, its bytes, its places in the lookahead and in
/// the cache. With 16,000 samples of 64 KiB, all that is resident beside their pages is 420 bytes a sample.
const FEED: u64 = 192;
/// What malloc takes besides, and rounds up to.
const MALLOC: u64 = 32;

/// Memory by `take` for so many bytes of a file.
pub(crate) fn take_memory(file: &Path, bytes: u64, take: fn(usize) -> Option<Memory>) -> Result<Memory, DataError> {
    usize::try_from(bytes).ok().and_then(take).ok_or_else(|| no_memory(file, bytes))
}

pub(crate) fn no_memory(file: &Path, bytes: u64) -> DataError {
    DataError::malformed(file, format!("there is no memory for the {} of its samples", Bytes(bytes)))
}

fn view(tensor: Tensor<'_>) -> Option<View<'_>> {
    match tensor.kind {
        FieldKind::Text => std::str::from_utf8(tensor.bytes).ok().map(View::Text),
        FieldKind::Array(dtype) => Some(View::Array { dtype, shape: tensor.shape, bytes: tensor.bytes }),
    }
}
