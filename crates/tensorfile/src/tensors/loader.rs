//! Reading tensors and whole storages into memory.

use std::sync::Arc;

use lowtide_core::Bytes;

use super::inflater::Inflater;
use super::values::{byte_offset, check_whole_bytes, each_row, gather, last_dimension};
use super::{Source, Storage, Tensor};
use crate::error::TensorFileError;

/// How much is read at once for values that do not stand one after another.
const LARGEST_SPAN: u64 = 1 << 20;

/// Reads tensors, and keeps the storage it read last, so that one which several tensors share is read once.
///
/// Storages up to `keep` are read whole, which also verifies their checksum; of larger ones, only what is asked for.
#[derive(Debug)]
pub struct Loader {
    keep: Bytes,
    last: Option<(Arc<Storage>, Vec<u8>)>,
    pub(super) inflater: Inflater,
}

impl Loader {
    /// A loader that keeps a storage of up to so many bytes.
    #[must_use]
    pub fn new(keep: Bytes) -> Self {
        Self { keep, last: None, inflater: Inflater::default() }
    }

    /// The values of a tensor in rows, one after another, in the byte order of this machine.
    ///
    /// A view may repeat the same bytes without end, so look at [`Tensor::bytes`] first.
    ///
    /// # Errors
    ///
    /// Where there is no memory for them, and as for [`Loader::read_into`].
    pub fn read(&mut self, tensor: &Tensor) -> Result<Vec<u8>, TensorFileError> {
        let mut bytes = tensor.storage.zeros(tensor.bytes())?;
        self.read_into(tensor, &mut bytes)?;
        Ok(bytes)
    }

    /// Fills `buffer` with the values of a tensor in rows, one after another, in the byte order of this machine.
    ///
    /// # Errors
    ///
    /// Where the buffer has not the size of [`Tensor::bytes`], or the file cannot be read, was cut short or is damaged.
    pub fn read_into(&mut self, tensor: &Tensor, buffer: &mut [u8]) -> Result<(), TensorFileError> {
        if buffer.len() as u64 != tensor.bytes() {
            let problem = format!("a buffer of {} bytes is given for {}", buffer.len(), tensor.bytes());
            return Err(tensor.storage.file.malformed(tensor.storage.place.clone(), problem));
        }
        if buffer.is_empty() {
            return Ok(());
        }
        check_whole_bytes(tensor)?;
        let covers_storage = tensor.bytes() == tensor.storage.bytes();
        if tensor.is_contiguous() && (covers_storage || tensor.storage.bytes() > self.keep.get()) {
            tensor.storage.read_with(&mut self.inflater, byte_offset(tensor), buffer)?;
        } else if tensor.storage.bytes() <= self.keep.get() {
            gather(tensor, self.whole(&tensor.storage)?, buffer);
        } else {
            gather_from_file(tensor, buffer, &mut self.inflater)?;
        }
        tensor.to_this_machine(buffer);
        Ok(())
    }

    /// All bytes of a storage.
    pub(crate) fn whole(&mut self, storage: &Arc<Storage>) -> Result<&[u8], TensorFileError> {
        let is_last = self.last.as_ref().is_some_and(|(last, _)| Arc::ptr_eq(last, storage));
        if !is_last {
            // What was kept goes first, so that there are never two of them.
            self.last = None;
            let mut bytes = storage.zeros(storage.bytes())?;
            storage.read_with(&mut self.inflater, 0, &mut bytes)?;
            self.last = Some((Arc::clone(storage), bytes));
        }
        Ok(self.last.as_ref().map_or(&[], |(_, bytes)| bytes))
    }

    /// Reads all of a storage, a piece at a time, to see whether its checksum is right, where there is one.
    pub(crate) fn verify(&mut self, storage: &Storage) -> Result<(), TensorFileError> {
        storage.stream(&mut self.inflater, 0, storage.bytes(), |_| Ok(()))
    }

    /// Whether a storage is small enough to be kept.
    pub(crate) fn keeps(&self, storage: &Storage) -> bool {
        storage.bytes() <= self.keep.get()
    }
}

/// Copies the values of a view out of a storage that is too large to hold, by spans of up to 1 MiB.
fn gather_from_file(tensor: &Tensor, buffer: &mut [u8], inflater: &mut Inflater) -> Result<(), TensorFileError> {
    let size = tensor.dtype.size();
    let (row, stride) = last_dimension(tensor);
    let mut rows = buffer.chunks_exact_mut((row * size) as usize);
    let at_once = (LARGEST_SPAN / size / stride.max(1)).max(1);
    let mut held = Vec::new();
    each_row(tensor, |offset| {
        let Some(target) = rows.next() else { return Ok(()) };
        if stride == 1 {
            return tensor.storage.read_with(inflater, offset * size, target);
        }
        for (index, piece) in target.chunks_mut((at_once * size) as usize).enumerate() {
            let count = piece.len() as u64 / size;
            let first = offset + index as u64 * at_once * stride;
            held.resize((((count - 1) * stride + 1) * size) as usize, 0);
            tensor.storage.read_with(inflater, first * size, &mut held)?;
            for (position, value) in piece.chunks_exact_mut(size as usize).enumerate() {
                let from = position * (stride * size) as usize;
                value.copy_from_slice(&held[from..from + size as usize]);
            }
        }
        Ok(())
    })
}

/// Reads storages of a file; cheapest in the order of [`Storage::position`].
///
/// Those that are packed together come out of one stream, which would else be inflated from its start for each of them.
#[derive(Debug, Default)]
pub struct StorageReader {
    inflater: Inflater,
}

impl StorageReader {
    /// All bytes of a storage; its checksum is verified where it has one.
    ///
    /// # Errors
    ///
    /// Where there is no memory for them, or the file cannot be read, was cut short or is damaged.
    pub fn read(&mut self, storage: &Storage) -> Result<Vec<u8>, TensorFileError> {
        if matches!(storage.source, Source::Nowhere) {
            // It claims any length; asking for nothing gives the error.
            storage.read_at(0, &mut [])?;
        }
        let mut bytes = storage.zeros(storage.length)?;
        self.read_into(storage, &mut bytes)?;
        Ok(bytes)
    }

    /// The same into a buffer of the storage's length.
    ///
    /// # Errors
    ///
    /// As for [`StorageReader::read`].
    pub fn read_into(&mut self, storage: &Storage, bytes: &mut [u8]) -> Result<(), TensorFileError> {
        storage.read_with(&mut self.inflater, 0, bytes)
    }
}
