//! Reading tensors into memory.

use std::sync::Arc;

use lowtide_core::Bytes;

use crate::storage::Order;
use crate::{DataError, Dtype, Storage, Tensor};

/// How much is read at once for values that do not stand one after another.
const LARGEST_SPAN: u64 = 1 << 20;

/// Reads tensors, and keeps the storage it read last, so that one which several tensors share is read once.
///
/// Storages up to `keep` are read whole, which also verifies their checksum; of larger ones, only what is asked for.
#[derive(Debug)]
pub struct Loader {
    keep: Bytes,
    last: Option<(Arc<Storage>, Vec<u8>)>,
}

impl Loader {
    /// A loader that keeps a storage of up to so many bytes.
    #[must_use]
    pub fn new(keep: Bytes) -> Self {
        Self { keep, last: None }
    }

    /// The values of a tensor in rows, one after another, in the byte order of this machine.
    ///
    /// A view may repeat the same bytes without end, so look at [`Tensor::bytes`] first.
    ///
    /// # Errors
    ///
    /// Where there is no memory for them, and as for [`Loader::read_into`].
    pub fn read(&mut self, tensor: &Tensor) -> Result<Vec<u8>, DataError> {
        let mut bytes = zeros(&tensor.storage, tensor.bytes())?;
        self.read_into(tensor, &mut bytes)?;
        Ok(bytes)
    }

    /// Fills `buffer` with the values of a tensor in rows, one after another, in the byte order of this machine.
    ///
    /// # Errors
    ///
    /// Where the buffer has not the size of [`Tensor::bytes`], or the file cannot be read, was cut short or is damaged.
    pub fn read_into(&mut self, tensor: &Tensor, buffer: &mut [u8]) -> Result<(), DataError> {
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
            tensor.storage.read_at(byte_offset(tensor), buffer)?;
        } else if tensor.storage.bytes() <= self.keep.get() {
            gather(tensor, self.whole(&tensor.storage)?, buffer);
        } else {
            gather_from_file(tensor, buffer)?;
        }
        to_this_machine(tensor, buffer);
        Ok(())
    }

    /// All bytes of a storage.
    pub(crate) fn whole(&mut self, storage: &Arc<Storage>) -> Result<&[u8], DataError> {
        let is_last = self.last.as_ref().is_some_and(|(last, _)| Arc::ptr_eq(last, storage));
        if !is_last {
            // What was kept goes first, so that there are never two of them.
            self.last = None;
            let mut bytes = zeros(storage, storage.bytes())?;
            storage.read_at(0, &mut bytes)?;
            self.last = Some((Arc::clone(storage), bytes));
        }
        Ok(self.last.as_ref().map_or(&[], |(_, bytes)| bytes))
    }

    /// Whether a storage is small enough to be kept.
    pub(crate) fn keeps(&self, storage: &Storage) -> bool {
        storage.bytes() <= self.keep.get()
    }
}

/// Room for bytes that come from a storage.
pub(crate) fn zeros(storage: &Storage, length: u64) -> Result<Vec<u8>, DataError> {
    let mut bytes = Vec::new();
    let length = usize::try_from(length).unwrap_or(usize::MAX);
    if bytes.try_reserve_exact(length).is_err() {
        let problem = format!("there is no memory for {length} bytes");
        return Err(storage.file.malformed(storage.place.clone(), problem));
    }
    bytes.resize(length, 0);
    Ok(bytes)
}

/// The values of a tensor, as [`Loader::read`] gives them, out of all bytes of its storage.
pub(crate) fn copy_out(tensor: &Tensor, storage: &[u8]) -> Result<Vec<u8>, DataError> {
    let mut bytes = zeros(&tensor.storage, tensor.bytes())?;
    copy_into(tensor, storage, &mut bytes)?;
    Ok(bytes)
}

/// The same into a buffer of the size of [`Tensor::bytes`].
pub(crate) fn copy_into(tensor: &Tensor, storage: &[u8], buffer: &mut [u8]) -> Result<(), DataError> {
    check_whole_bytes(tensor)?;
    if buffer.is_empty() {
        return Ok(());
    }
    if tensor.is_contiguous() {
        let start = byte_offset(tensor) as usize;
        buffer.copy_from_slice(&storage[start..start + buffer.len()]);
    } else {
        gather(tensor, storage, buffer);
    }
    to_this_machine(tensor, buffer);
    Ok(())
}

fn check_whole_bytes(tensor: &Tensor) -> Result<(), DataError> {
    if tensor.dtype.per_byte() > 1 && (tensor.offset != 0 || !tensor.is_contiguous()) {
        let what = format!("a view of {} that begins or goes on within a byte", tensor.dtype);
        return Err(tensor.storage.file.unsupported(tensor.storage.place.clone(), what, None));
    }
    Ok(())
}

pub(crate) fn byte_offset(tensor: &Tensor) -> u64 {
    tensor.dtype.bytes_of(tensor.offset).unwrap_or(u64::MAX)
}

/// Calls `take` with the offset of each row, in values: the last dimension is left out.
pub(crate) fn each_row(tensor: &Tensor, mut take: impl FnMut(u64) -> Result<(), DataError>) -> Result<(), DataError> {
    if tensor.elements() == 0 {
        return Ok(());
    }
    let outer = tensor.shape.len().saturating_sub(1);
    let mut index = vec![0_u64; outer];
    let mut offset = tensor.offset;
    loop {
        take(offset)?;
        let Some(turned) = (0..outer).rev().find(|dimension| index[*dimension] + 1 < tensor.shape[*dimension]) else {
            return Ok(());
        };
        for (position, stride) in index.iter_mut().zip(&tensor.stride).skip(turned + 1) {
            offset -= *position * stride;
            *position = 0;
        }
        index[turned] += 1;
        offset += tensor.stride[turned];
    }
}

/// Copies the values of a view out of its storage.
fn gather(tensor: &Tensor, storage: &[u8], buffer: &mut [u8]) {
    let size = tensor.dtype.size() as usize;
    let (row, stride) = last_dimension(tensor);
    let mut rows = buffer.chunks_exact_mut(row as usize * size);
    let copied = each_row(tensor, |offset| {
        let Some(target) = rows.next() else { return Ok(()) };
        let start = offset as usize * size;
        if stride == 1 {
            target.copy_from_slice(&storage[start..start + target.len()]);
            return Ok(());
        }
        for (position, value) in target.chunks_exact_mut(size).enumerate() {
            let from = start + position * stride as usize * size;
            value.copy_from_slice(&storage[from..from + size]);
        }
        Ok(())
    });
    debug_assert!(copied.is_ok(), "copying within memory does not fail");
}

/// The same from a storage that is too large to hold, by spans of up to 1 MiB.
fn gather_from_file(tensor: &Tensor, buffer: &mut [u8]) -> Result<(), DataError> {
    let size = tensor.dtype.size();
    let (row, stride) = last_dimension(tensor);
    let mut rows = buffer.chunks_exact_mut((row * size) as usize);
    let at_once = (LARGEST_SPAN / size / stride.max(1)).max(1);
    let mut held = Vec::new();
    each_row(tensor, |offset| {
        let Some(target) = rows.next() else { return Ok(()) };
        if stride == 1 {
            return tensor.storage.read_at(offset * size, target);
        }
        for (index, piece) in target.chunks_mut((at_once * size) as usize).enumerate() {
            let count = piece.len() as u64 / size;
            let first = offset + index as u64 * at_once * stride;
            held.resize((((count - 1) * stride + 1) * size) as usize, 0);
            tensor.storage.read_at(first * size, &mut held)?;
            for (position, value) in piece.chunks_exact_mut(size as usize).enumerate() {
                let from = position * (stride * size) as usize;
                value.copy_from_slice(&held[from..from + size as usize]);
            }
        }
        Ok(())
    })
}

/// Size and stride of the last dimension; one value where there is none.
pub(crate) fn last_dimension(tensor: &Tensor) -> (u64, u64) {
    match (tensor.shape.last(), tensor.stride.last()) {
        (Some(size), Some(stride)) => (*size, *stride),
        _ => (1, 1),
    }
}

/// Turns bytes as they stand in the file into values as they are meant.
pub(crate) fn to_this_machine(tensor: &Tensor, buffer: &mut [u8]) {
    let part = tensor.dtype.part();
    let is_foreign = (tensor.storage.order == Order::Big) != cfg!(target_endian = "big");
    if is_foreign && part > 1 {
        buffer.chunks_exact_mut(part).for_each(<[u8]>::reverse);
    }
    if tensor.flags.negative {
        negate(tensor.dtype, buffer, 0);
    }
    if tensor.flags.conjugate {
        negate(tensor.dtype, buffer, 1);
    }
}

/// Turns the sign of every part, or of every second one.
fn negate(dtype: Dtype, buffer: &mut [u8], imaginary_only: usize) {
    let part = dtype.part();
    let sign = if cfg!(target_endian = "big") { 0 } else { part - 1 };
    let skip = imaginary_only * usize::from(dtype.is_complex());
    for number in buffer.chunks_exact_mut(part).skip(skip).step_by(1 + skip) {
        number[sign] ^= 0x80;
    }
}
