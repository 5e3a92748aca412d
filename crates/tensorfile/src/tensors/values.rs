//! The values of a tensor out of the bytes of its storage.

use super::{ByteOrder, Dtype, Tensor};
use crate::error::TensorFileError;

impl Tensor {
    /// The values, as [`Loader::read`](super::Loader::read) gives them, out of all bytes of its storage.
    ///
    /// # Errors
    ///
    /// Where there is no memory for them, and as for [`Tensor::copy_into`].
    pub fn copy_out(&self, storage: &[u8]) -> Result<Vec<u8>, TensorFileError> {
        let mut bytes = self.storage.zeros(self.bytes())?;
        self.copy_into(storage, &mut bytes)?;
        Ok(bytes)
    }

    /// The same into a buffer of the size of [`Tensor::bytes`].
    ///
    /// # Errors
    ///
    /// Where values share a byte and the view begins or goes on within one.
    ///
    /// # Panics
    ///
    /// Where the bytes are fewer than those of the storage, or the buffer has another size.
    #[inline]
    pub fn copy_into(&self, storage: &[u8], buffer: &mut [u8]) -> Result<(), TensorFileError> {
        check_whole_bytes(self)?;
        if buffer.is_empty() {
            return Ok(());
        }
        if self.is_contiguous() {
            let start = byte_offset(self) as usize;
            buffer.copy_from_slice(&storage[start..start + buffer.len()]);
        } else {
            gather(self, storage, buffer);
        }
        self.to_this_machine(buffer);
        Ok(())
    }

    /// Turns values as they stand in the file into values as they are meant, in the byte order of this machine.
    #[inline]
    pub fn to_this_machine(&self, buffer: &mut [u8]) {
        let part = self.dtype.part();
        let is_foreign = (self.storage.order == ByteOrder::Big) != cfg!(target_endian = "big");
        if is_foreign && part > 1 {
            buffer.chunks_exact_mut(part).for_each(<[u8]>::reverse);
        }
        if self.flags.negative {
            negate(self.dtype, buffer, 0);
        }
        if self.flags.conjugate {
            negate(self.dtype, buffer, 1);
        }
    }
}

pub(super) fn check_whole_bytes(tensor: &Tensor) -> Result<(), TensorFileError> {
    if tensor.dtype.per_byte() > 1 && (tensor.offset != 0 || !tensor.is_contiguous()) {
        let what = format!("a view of {} that begins or goes on within a byte", tensor.dtype);
        return Err(tensor.storage.file.unsupported(tensor.storage.place.clone(), what, None));
    }
    Ok(())
}

pub(super) fn byte_offset(tensor: &Tensor) -> u64 {
    tensor.dtype.bytes_of(tensor.offset).unwrap_or(u64::MAX)
}

/// Calls `take` with the offset of each row, in values: the last dimension is left out.
pub(super) fn each_row(
    tensor: &Tensor,
    mut take: impl FnMut(u64) -> Result<(), TensorFileError>,
) -> Result<(), TensorFileError> {
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
pub(super) fn gather(tensor: &Tensor, storage: &[u8], buffer: &mut [u8]) {
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

/// Size and stride of the last dimension; one value where there is none.
pub(super) fn last_dimension(tensor: &Tensor) -> (u64, u64) {
    match (tensor.shape.last(), tensor.stride.last()) {
        (Some(size), Some(stride)) => (*size, *stride),
        _ => (1, 1),
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
