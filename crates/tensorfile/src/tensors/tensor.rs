//! Views of a storage.

use std::ops::Range;
use std::sync::Arc;

use super::{Dtype, Storage};

/// The most dimensions a tensor may have; torch itself stops at 64.
pub(crate) const MOST_DIMENSIONS: usize = 64;

/// A view of a storage: what torch calls a strided tensor.
///
/// The view lies within its storage: that was checked when it was made.
#[derive(Debug, Clone)]
pub struct Tensor {
    pub(crate) dtype: Dtype,
    pub(crate) shape: Vec<u64>,
    pub(crate) stride: Vec<u64>,
    pub(crate) offset: u64,
    pub(crate) storage: Arc<Storage>,
    pub(crate) flags: Flags,
    pub(crate) quantizer: Option<Quantizer>,
}

/// What is to be done with the values when they are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Flags {
    pub(crate) conjugate: bool,
    pub(crate) negative: bool,
}

/// How the integers of a quantized tensor stand for real numbers.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub enum Quantizer {
    /// `(value - zero_point) * scale`.
    PerTensor {
        /// The scale.
        scale: f64,
        /// The integer that stands for zero.
        zero_point: i64,
    },
    /// Another scale and zero point for each index along a dimension.
    PerChannel,
}

impl Tensor {
    /// A view, or what is wrong with it.
    pub(crate) fn new(
        storage: Arc<Storage>,
        dtype: Dtype,
        offset: u64,
        shape: Vec<u64>,
        stride: Vec<u64>,
    ) -> Result<Self, String> {
        if shape.len() > MOST_DIMENSIONS || shape.len() != stride.len() {
            return Err(format!("a tensor with {} dimensions and {} strides", shape.len(), stride.len()));
        }
        let elements = shape.iter().try_fold(1_u64, |product, size| product.checked_mul(*size));
        if elements.and_then(|elements| dtype.bytes_of(elements)).is_none() {
            return Err(format!("a tensor of shape {shape:?}, which is too large"));
        }
        let last = shape
            .iter()
            .zip(&stride)
            .try_fold(offset, |last, (size, stride)| last.checked_add(size.saturating_sub(1).checked_mul(*stride)?));
        let needed = last.and_then(|last| last.checked_add(1)).and_then(|count| dtype.bytes_of(count));
        if elements != Some(0) && needed.is_none_or(|needed| needed > storage.bytes()) {
            let room = storage.bytes();
            let view = format!("a tensor of shape {shape:?}, stride {stride:?} and offset {offset} in {dtype}");
            return Err(format!("{view} does not fit into a storage of {room} bytes"));
        }
        Ok(Self { dtype, shape, stride, offset, storage, flags: Flags::default(), quantizer: None })
    }

    /// A view of a whole storage, in rows.
    pub(crate) fn contiguous(storage: Arc<Storage>, dtype: Dtype, shape: Vec<u64>) -> Result<Self, String> {
        let stride = row_strides(&shape);
        Self::new(storage, dtype, 0, shape, stride)
    }

    /// The bytes of a storage, as values of `uint8`.
    ///
    /// # Errors
    ///
    /// What is wrong, where there are more bytes than a tensor can have.
    pub fn of_bytes(storage: Arc<Storage>) -> Result<Self, String> {
        let length = storage.bytes();
        Self::contiguous(storage, Dtype::Uint8, vec![length])
    }

    /// What stands at an index of the first dimension, where there is one and it is that long.
    #[must_use]
    #[inline]
    pub fn row(&self, index: u64) -> Option<Self> {
        let (size, shape) = self.shape.split_first()?;
        let (stride, strides) = self.stride.split_first()?;
        if index >= *size {
            return None;
        }
        let offset = if shape.contains(&0) { self.offset } else { self.offset + index * stride };
        let (shape, stride) = (shape.to_vec(), strides.to_vec());
        Some(Self { shape, stride, offset, storage: Arc::clone(&self.storage), ..*self })
    }

    /// Some neighbours along the first dimension, where there are so many.
    #[must_use]
    pub fn rows(&self, rows: Range<u64>) -> Option<Self> {
        let (size, stride) = (*self.shape.first()?, *self.stride.first()?);
        if rows.start >= rows.end || rows.end > size {
            return None;
        }
        let mut some = self.clone();
        some.shape[0] = rows.end - rows.start;
        if !some.shape.contains(&0) {
            some.offset += rows.start * stride;
        }
        Some(some)
    }

    /// The type of its values.
    #[must_use]
    #[inline]
    pub fn dtype(&self) -> Dtype {
        self.dtype
    }

    /// How many values there are along each dimension.
    #[must_use]
    #[inline]
    pub fn shape(&self) -> &[u64] {
        &self.shape
    }

    /// How far apart neighbours along each dimension are, in values.
    #[must_use]
    pub fn stride(&self) -> &[u64] {
        &self.stride
    }

    /// Where its first value stands in the storage, in values.
    #[must_use]
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// What it is a view of.
    #[must_use]
    #[inline]
    pub fn storage(&self) -> &Arc<Storage> {
        &self.storage
    }

    /// How its integers stand for real numbers, where it is quantized.
    #[must_use]
    pub fn quantizer(&self) -> Option<Quantizer> {
        self.quantizer
    }

    /// How many values it has.
    #[must_use]
    #[inline]
    pub fn elements(&self) -> u64 {
        self.shape.iter().product()
    }

    /// Bytes of its values when they stand in rows, which is what reading it gives.
    #[must_use]
    #[inline]
    pub fn bytes(&self) -> u64 {
        self.dtype.bytes_of(self.elements()).unwrap_or(u64::MAX)
    }

    /// Whether its values stand in the storage in rows, one after another.
    #[must_use]
    #[inline]
    pub fn is_contiguous(&self) -> bool {
        let mut expect = 1_u64;
        let in_rows = self.shape.iter().zip(&self.stride).rev().all(|(size, stride)| {
            let fits = *size == 1 || *stride == expect;
            expect = expect.saturating_mul(*size);
            fits
        });
        in_rows || self.elements() == 0
    }
}

/// The strides of values in rows.
pub(crate) fn row_strides(shape: &[u64]) -> Vec<u64> {
    let mut strides = vec![1_u64; shape.len()];
    for index in (1..shape.len()).rev() {
        strides[index - 1] = strides[index].saturating_mul(shape[index].max(1));
    }
    strides
}

/// The strides of values in columns.
pub(crate) fn column_strides(shape: &[u64]) -> Vec<u64> {
    let mut strides = vec![1_u64; shape.len()];
    for index in 1..shape.len() {
        strides[index] = strides[index - 1].saturating_mul(shape[index - 1].max(1));
    }
    strides
}
