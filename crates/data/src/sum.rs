//! The sum of a tensor's values, by which two readers can be compared.

use crate::loader::{byte_offset, each_row, last_dimension};
use crate::storage::{Order, Source};
use crate::tensor::Flags;
use crate::{DataError, Dtype, Loader, Quantizer, Tensor};

/// Views that show each value of their storage more often than this are not summed: they could go on without end.
const MOST_REPEATS: u64 = 64;

/// The sum of all values; `None` for complex numbers, for types without a number of their own, and where there are no
/// values at all to read.
///
/// Integers are added exactly, floats with compensation; the result is rounded once.
pub(crate) fn sum(loader: &mut Loader, tensor: &Tensor) -> Result<Option<f64>, DataError> {
    let Some(decode) = decoder(tensor.dtype) else { return Ok(None) };
    if matches!(tensor.storage.source, Source::Nowhere) || tensor.quantizer == Some(Quantizer::PerChannel) {
        return Ok(None);
    }
    let (view, repeats) = without_repeats(tensor);
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
    bytes.chunks_exact(dtype.size() as usize).for_each(|value| total.add(decode(value, Order::Little)));
    Some(total.get())
}

fn add(loader: &mut Loader, view: &Tensor, decode: Decode, total: &mut Total) -> Result<(), DataError> {
    let size = view.dtype.size() as usize;
    let order = view.storage.order;
    if view.is_contiguous() && (view.bytes() == view.storage.bytes() || !loader.keeps(&view.storage)) {
        return view.storage.stream(byte_offset(view), view.bytes(), |piece| {
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
) -> Result<(), DataError> {
    const AT_ONCE: u64 = 1 << 16;
    let here = if cfg!(target_endian = "big") { Order::Big } else { Order::Little };
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

/// A number of any type.
#[derive(Clone, Copy)]
pub(crate) enum Number {
    Integer(i128),
    Float(f64),
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

pub(crate) type Decode = fn(&[u8], Order) -> Number;

pub(crate) fn decoder(dtype: Dtype) -> Option<Decode> {
    Some(match dtype {
        Dtype::Bool => |bytes, _| Number::Integer(i128::from(bytes[0] != 0)),
        Dtype::Uint8
        | Dtype::Quint8
        | Dtype::Uint1
        | Dtype::Uint2
        | Dtype::Uint3
        | Dtype::Uint4
        | Dtype::Uint5
        | Dtype::Uint6
        | Dtype::Uint7 => |bytes, _| Number::Integer(i128::from(bytes[0])),
        Dtype::Int8
        | Dtype::Qint8
        | Dtype::Int1
        | Dtype::Int2
        | Dtype::Int3
        | Dtype::Int4
        | Dtype::Int5
        | Dtype::Int6
        | Dtype::Int7 => |bytes, _| Number::Integer(i128::from(bytes[0].cast_signed())),
        Dtype::Int16 => |bytes, order| Number::Integer(i128::from(word(bytes, order) as i16)),
        Dtype::Uint16 => |bytes, order| Number::Integer(i128::from(word(bytes, order))),
        Dtype::Int32 | Dtype::Qint32 => |bytes, order| Number::Integer(i128::from(word(bytes, order) as i32)),
        Dtype::Uint32 => |bytes, order| Number::Integer(i128::from(word(bytes, order))),
        Dtype::Int64 => |bytes, order| Number::Integer(i128::from(word(bytes, order).cast_signed())),
        Dtype::Uint64 => |bytes, order| Number::Integer(i128::from(word(bytes, order))),
        Dtype::Float16 => |bytes, order| Number::Float(small_float(word(bytes, order), HALF)),
        Dtype::Bfloat16 => |bytes, order| Number::Float(f64::from(f32::from_bits((word(bytes, order) as u32) << 16))),
        Dtype::Float32 => |bytes, order| Number::Float(f64::from(f32::from_bits(word(bytes, order) as u32))),
        Dtype::Float64 => |bytes, order| Number::Float(f64::from_bits(word(bytes, order))),
        Dtype::Float8E4m3fn => |bytes, _| Number::Float(small_float(u64::from(bytes[0]), E4M3FN)),
        Dtype::Float8E4m3fnuz => |bytes, _| Number::Float(small_float(u64::from(bytes[0]), E4M3FNUZ)),
        Dtype::Float8E5m2 => |bytes, _| Number::Float(small_float(u64::from(bytes[0]), E5M2)),
        Dtype::Float8E5m2fnuz => |bytes, _| Number::Float(small_float(u64::from(bytes[0]), E5M2FNUZ)),
        Dtype::Float8E8m0fnu => {
            |bytes, _| Number::Float(if bytes[0] == 0xff { f64::NAN } else { 2_f64.powi(i32::from(bytes[0]) - 127) })
        }
        _ => return None,
    })
}

/// An unsigned number of up to eight bytes.
fn word(bytes: &[u8], order: Order) -> u64 {
    let push = |number: u64, byte: &u8| number << 8 | u64::from(*byte);
    match order {
        Order::Little => bytes.iter().rev().fold(0, push),
        Order::Big => bytes.iter().fold(0, push),
    }
}

/// How a small float is laid out: one bit of sign, then exponent, then mantissa.
#[derive(Clone, Copy)]
struct Layout {
    exponent_bits: u32,
    mantissa_bits: u32,
    bias: i32,
    special: Special,
}

/// Which patterns are no finite number.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Special {
    /// Infinities and NaN at the largest exponent, as in IEEE 754.
    Ieee,
    /// NaN where all bits but the sign are set; no infinities.
    AllOnes,
    /// NaN in place of the negative zero; no infinities.
    NegativeZero,
}

const HALF: Layout = Layout { exponent_bits: 5, mantissa_bits: 10, bias: 15, special: Special::Ieee };
const E5M2: Layout = Layout { exponent_bits: 5, mantissa_bits: 2, bias: 15, special: Special::Ieee };
const E4M3FN: Layout = Layout { exponent_bits: 4, mantissa_bits: 3, bias: 7, special: Special::AllOnes };
const E4M3FNUZ: Layout = Layout { exponent_bits: 4, mantissa_bits: 3, bias: 8, special: Special::NegativeZero };
const E5M2FNUZ: Layout = Layout { exponent_bits: 5, mantissa_bits: 2, bias: 16, special: Special::NegativeZero };

fn small_float(bits: u64, layout: Layout) -> f64 {
    let Layout { exponent_bits, mantissa_bits, bias, special } = layout;
    let mantissa = bits & ((1 << mantissa_bits) - 1);
    let exponent = bits >> mantissa_bits & ((1 << exponent_bits) - 1);
    let is_negative = bits >> (mantissa_bits + exponent_bits) & 1 == 1;
    let largest = exponent == (1 << exponent_bits) - 1;
    let magnitude = match special {
        Special::Ieee if largest && mantissa == 0 => f64::INFINITY,
        Special::Ieee if largest => f64::NAN,
        Special::AllOnes if largest && mantissa == (1 << mantissa_bits) - 1 => f64::NAN,
        Special::NegativeZero if is_negative && exponent == 0 && mantissa == 0 => f64::NAN,
        // Without the leading one that other exponents imply.
        _ if exponent == 0 => mantissa as f64 * 2_f64.powi(1 - bias - mantissa_bits as i32),
        _ => {
            let whole = mantissa | 1 << mantissa_bits;
            whole as f64 * 2_f64.powi(exponent as i32 - bias - mantissa_bits as i32)
        }
    };
    if is_negative { -magnitude } else { magnitude }
}

/// One number of a type that has numbers, as bytes in an order.
pub(crate) fn number(dtype: Dtype, bytes: &[u8], order: Order) -> Option<crate::Tree> {
    use crate::Tree;
    if dtype.is_complex() {
        let half = match dtype {
            Dtype::Complex64 => Dtype::Float32,
            Dtype::Complex128 => Dtype::Float64,
            _ => Dtype::Float16,
        };
        let (real, imaginary) = bytes.split_at_checked(half.size() as usize)?;
        let float = |bytes| match number(half, bytes, order) {
            Some(Tree::Float(value)) => Some(value),
            _ => None,
        };
        return Some(Tree::Complex { real: float(real)?, imaginary: float(imaginary)? });
    }
    if bytes.len() as u64 != dtype.size() {
        return None;
    }
    Some(match decoder(dtype)?(bytes, order) {
        Number::Integer(value) if dtype == Dtype::Bool => Tree::Bool(value != 0),
        Number::Integer(value) => match i64::try_from(value) {
            Ok(value) => Tree::Int(value),
            Err(_) => Tree::BigInt(value.to_string().into()),
        },
        Number::Float(value) => Tree::Float(value),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_floats_are_what_their_layouts_say() {
        assert_eq!(small_float(0x3c00, HALF), 1.0);
        assert_eq!(small_float(0x0001, HALF), 2_f64.powi(-24));
        assert_eq!(small_float(0xfc00, HALF), f64::NEG_INFINITY);
        assert!(small_float(0x7e00, HALF).is_nan());
        assert_eq!(small_float(0x7e, E4M3FN), 448.0);
        assert!(small_float(0x7f, E4M3FN).is_nan());
        assert_eq!(small_float(0x7f, E4M3FNUZ), 240.0);
        assert!(small_float(0x80, E4M3FNUZ).is_nan());
        assert_eq!(small_float(0x7b, E5M2), 57344.0);
        assert_eq!(small_float(0x7f, E5M2FNUZ), 57344.0);
    }

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
