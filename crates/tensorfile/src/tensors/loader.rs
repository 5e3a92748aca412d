//! Reading tensors and whole storages into memory.

use std::sync::Arc;

use lowtide_core::Bytes;

use super::inflater::Inflater;
use super::tensor::row_strides;
use super::values::{byte_offset, check_whole_bytes, gather};
use super::{Source, Storage, Tensor};
use crate::error::TensorFileError;

/// How much is read at once for values that do not stand one after another.
const LARGEST_SPAN: u64 = 1 << 20;
/// Values so far apart are read one by one: about what another call of the system costs.
const FAR: u64 = 16 << 10;

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

/// A dimension of a view: how many values it has, and how far apart they are in the storage and in rows.
#[derive(Clone, Copy)]
struct Dimension {
    size: u64,
    stride: u64,
    row_stride: u64,
}

/// Copies the values of a view out of a storage that is too large to hold: in the order of the storage, whatever that of
/// the view, and by spans of up to 1 MiB.
fn gather_from_file(tensor: &Tensor, buffer: &mut [u8], inflater: &mut Inflater) -> Result<(), TensorFileError> {
    let sizes = tensor.shape.iter().zip(&tensor.stride).zip(row_strides(&tensor.shape));
    let mut outer: Vec<Dimension> =
        sizes.map(|((size, stride), row_stride)| Dimension { size: *size, stride: *stride, row_stride }).collect();
    outer.sort_by_key(|dimension| std::cmp::Reverse(dimension.stride));
    let inner = outer.pop().unwrap_or(Dimension { size: 1, stride: 1, row_stride: 1 });
    let (mut index, mut from, mut to) = (vec![0_u64; outer.len()], tensor.offset, 0_u64);
    let mut held = Vec::new();
    loop {
        gather_run(tensor, inner, (from, to), (buffer, &mut held), inflater)?;
        let Some(turned) = (0..outer.len()).rev().find(|at| index[*at] + 1 < outer[*at].size) else { return Ok(()) };
        for at in turned + 1..outer.len() {
            from -= index[at] * outer[at].stride;
            to -= index[at] * outer[at].row_stride;
            index[at] = 0;
        }
        index[turned] += 1;
        from += outer[turned].stride;
        to += outer[turned].row_stride;
    }
}

/// Copies the values along one dimension.
fn gather_run(
    tensor: &Tensor,
    run: Dimension,
    (from, to): (u64, u64),
    (buffer, held): (&mut [u8], &mut Vec<u8>),
    inflater: &mut Inflater,
) -> Result<(), TensorFileError> {
    let size = tensor.dtype.size();
    if run.stride == 1 && run.row_stride == 1 {
        let target = &mut buffer[(to * size) as usize..((to + run.size) * size) as usize];
        return tensor.storage.read_with(inflater, from * size, target);
    }
    let is_far = run.stride.saturating_mul(size) >= FAR;
    let at_once = if is_far { 1 } else { (LARGEST_SPAN / size / run.stride.max(1)).max(1) };
    for first in (0..run.size).step_by(at_once as usize) {
        let count = at_once.min(run.size - first);
        held.resize((((count - 1) * run.stride + 1) * size) as usize, 0);
        tensor.storage.read_with(inflater, (from + first * run.stride) * size, held)?;
        for position in 0..count {
            let source = (position * run.stride * size) as usize;
            let target = ((to + (first + position) * run.row_stride) * size) as usize;
            buffer[target..target + size as usize].copy_from_slice(&held[source..source + size as usize]);
        }
    }
    Ok(())
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
