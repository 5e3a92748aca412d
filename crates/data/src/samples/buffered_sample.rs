//! Samples in memory, many in one buffer.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use lowtide_core::Bytes;
use lowtide_tensorfile::View;
use lowtide_tensorfile::pages::Memory;

use super::{FieldNames, ID_NAMES, Sample, tensors_of};
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
pub(super) struct Buffer {
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

    /// The samples, all in one buffer. `file` is where they came from, for an error to name.
    ///
    /// # Errors
    ///
    /// Where a field has a type that a shard does not hold, or there is no memory.
    pub fn of_samples(samples: &[Sample], file: &Path) -> Result<Vec<Self>, DataError> {
        let (mut names, mut packed, mut bytes) = (FieldNames::default(), Vec::new(), Vec::new());
        let mut record = Vec::new();
        for sample in samples {
            let tensors = tensors_of(sample).map_err(|field| field.in_file(file))?;
            record::encode(&tensors, |name| names.number_of(name, 0), &mut record);
            let start = record::align(bytes.len() as u64) as usize;
            packed.push(RecordPlace::whole(start, record.len()));
            bytes.resize(start, 0);
            bytes.extend_from_slice(&record);
        }
        let mut memory = Memory::zeroed(bytes.len()).ok_or_else(|| no_memory(file, bytes.len() as u64))?;
        memory.copy_from_slice(&bytes);
        Ok(Self::parts(memory, Box::default(), names.shared(), packed))
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

pub(crate) fn no_memory(file: &Path, bytes: u64) -> DataError {
    DataError::malformed(file, format!("there is no memory for the {} of its samples", Bytes(bytes)))
}

fn view(tensor: Tensor<'_>) -> Option<View<'_>> {
    match tensor.kind {
        FieldKind::Text => std::str::from_utf8(tensor.bytes).ok().map(View::Text),
        FieldKind::Array(dtype) => Some(View::Array { dtype, shape: tensor.shape, bytes: tensor.bytes }),
    }
}
