//! The sum of a tensor's values, by which two readers can be compared.

use super::number::{Decode, Number, decoder};
use super::values::{byte_offset, each_row, last_dimension};
use super::{ByteOrder, Dtype, Flags, Loader, Quantizer, Source, Tensor};
use crate::error::TensorFileError;

/// Views that show each value of their storage more often than this are not summed: they could go on without end.
const MOST_REPEATS: u64 = 64;

/// The sum of all values; `None` for complex numbers, for types without a number of their own, and where there are no
/// values at all to read.
///
/// Integers are added exactly, floats with compensation; the result is rounded once.
pub(crate) fn sum(loader: &mut Loader, tensor: &Tensor) -> Result<Option<f64>, TensorFileError> {
    let Some(decode) = decoder(tensor.dtype) else { return Ok(None) };
    if matches!(tensor.storage.source, Source::Nowhere) || tensor.quantizer == Some(Quantizer::PerChannel) {
        return Ok(None);
    }
    let (view, repeats) = without_repeats(tensor);
    let view = in_storage_order(view);
    if !loader.keeps(&view.storage) && view.storage.is_packed() && overlaps(&view) {
        // Each row would begin before the end of the last one, and all that is before it would be inflated again.
        return Ok(None);
    }
    let room = tensor.storage.bytes() / tensor.dtype.size();
    if view.elements() > room.saturating_mul(MOST_REPEATS).saturating_add(1 << 20) {
        return Ok(None);
    }
    let mut total = Total::default();
    add(loader, &view, decode, &mut total)?;
    let sign = if tensor.flags.negative { -1.0 } else { 1.0 };
    let sum = sign * repeats as f64 * total.get();
    let elements = tensor.elements() as f64;
    Ok(Some(match tensor.quantizer {
        Some(Quantizer::PerTensor { scale, zero_point }) => scale * (sum - elements * zero_point as f64),
        _ => sum,
    }))
}

/// The sum of little-endian values, one after another; `None` for complex numbers and types without a number of their
/// own.
pub(crate) fn sum_of(dtype: Dtype, bytes: &[u8]) -> Option<f64> {
    let decode = decoder(dtype)?;
    let mut total = Total::default();
    bytes.chunks_exact(dtype.size() as usize).for_each(|value| total.add(decode(value, ByteOrder::Little)));
    Some(total.get())
}

fn add(loader: &mut Loader, view: &Tensor, decode: Decode, total: &mut Total) -> Result<(), TensorFileError> {
    let size = view.dtype.size() as usize;
    let order = view.storage.order;
    if view.is_contiguous() && (view.bytes() == view.storage.bytes() || !loader.keeps(&view.storage)) {
        return view.storage.stream(&mut loader.inflater, byte_offset(view), view.bytes(), |piece| {
            piece.chunks_exact(size).for_each(|value| total.add(decode(value, order)));
            Ok(())
        });
    }
    if !loader.keeps(&view.storage) {
        return each_row(view, |offset| add_row(loader, view, offset, decode, total));
    }
    let storage = loader.whole(&view.storage)?;
    let (row, stride) = last_dimension(view);
    each_row(view, |offset| {
        for position in 0..row {
            let start = (offset + position * stride) as usize * size;
            total.add(decode(&storage[start..start + size], order));
        }
        Ok(())
    })
}

/// Adds a row of a storage that is too large to hold, some values at a time.
fn add_row(
    loader: &mut Loader,
    view: &Tensor,
    offset: u64,
    decode: Decode,
    total: &mut Total,
) -> Result<(), TensorFileError> {
    const AT_ONCE: u64 = 1 << 16;
    let here = if cfg!(target_endian = "big") { ByteOrder::Big } else { ByteOrder::Little };
    let (row, stride) = last_dimension(view);
    let mut bytes = Vec::new();
    for first in (0..row).step_by(AT_ONCE as usize) {
        let shape = vec![AT_ONCE.min(row - first)];
        let part = Tensor { shape, stride: vec![stride], offset: offset + first * stride, ..view.clone() };
        bytes.resize(part.bytes() as usize, 0);
        loader.read_into(&Tensor { flags: Flags::default(), ..part }, &mut bytes)?;
        bytes.chunks_exact(view.dtype.size() as usize).for_each(|value| total.add(decode(value, here)));
    }
    Ok(())
}

/// The same values, the farthest apart outermost, so that they are read in the order of the file: those of an array in
/// columns stand one after another then.
fn in_storage_order(view: Tensor) -> Tensor {
    let mut dimensions: Vec<(u64, u64)> = view.stride.iter().copied().zip(view.shape.iter().copied()).collect();
    dimensions.sort_by_key(|(stride, _)| std::cmp::Reverse(*stride));
    let (stride, shape) = dimensions.into_iter().unzip();
    Tensor { shape, stride, ..view }
}

/// Whether a view that is in the order of its storage goes back in it all the same.
fn overlaps(view: &Tensor) -> bool {
    let mut reach = 1;
    view.shape.iter().zip(&view.stride).rev().any(|(size, stride)| {
        let goes_back = *size > 1 && *stride < reach;
        reach = reach.max(size.saturating_sub(1).saturating_mul(*stride).saturating_add(reach));
        goes_back
    })
}

/// The same view without dimensions along which nothing changes, and how often those repeat it.
fn without_repeats(tensor: &Tensor) -> (Tensor, u64) {
    if tensor.elements() == 0 {
        return (tensor.clone(), 1);
    }
    let mut view = Tensor { shape: Vec::new(), stride: Vec::new(), ..tensor.clone() };
    let mut repeats = 1;
    for (size, stride) in tensor.shape.iter().zip(&tensor.stride) {
        if *stride == 0 {
            repeats *= size;
        } else {
            view.shape.push(*size);
            view.stride.push(*stride);
        }
    }
    (view, repeats)
}

/// Adds integers exactly and floats by Neumaier's method, whose error does not grow with their number.
#[derive(Default)]
struct Total {
    integers: i128,
    plain: f64,
    compensated: f64,
    rest: f64,
}

impl Total {
    fn add(&mut self, number: Number) {
        let value = match number {
            Number::Integer(value) => {
                self.integers += value;
                return;
            }
            Number::Float(value) => value,
        };
        self.plain += value;
        let sum = self.compensated + value;
        self.rest += if self.compensated.abs() >= value.abs() {
            (self.compensated - sum) + value
        } else {
            (value - sum) + self.compensated
        };
        self.compensated = sum;
    }

    fn get(&self) -> f64 {
        let floats = self.compensated + self.rest;
        // Infinities leave no number in the compensation.
        self.integers as f64 + if floats.is_finite() { floats } else { self.plain }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floats_are_added_with_compensation() {
        let mut total = Total::default();
        for value in [1e100, 1.0, -1e100] {
            total.add(Number::Float(value));
        }
        assert_eq!(total.get(), 1.0);
        total.add(Number::Float(f64::INFINITY));
        assert_eq!(total.get(), f64::INFINITY);
    }
}
