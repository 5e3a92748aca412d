//! A value where it lies in memory.

use std::borrow::Cow;

use super::number::{Number, decoder};
use super::{ByteOrder, Dtype};

/// A value in memory that was read before, as part of a larger buffer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum View<'a> {
    /// A string.
    Text(&'a str),
    /// Numbers; a single one is an array without dimensions.
    Array {
        /// The type of the values.
        dtype: Dtype,
        /// How many values there are along each dimension.
        shape: Cow<'a, [u64]>,
        /// The values in rows, one after another, little-endian.
        bytes: &'a [u8],
    },
}

impl View<'_> {
    /// The values as single precision, rounded where they have to be; `None` for text and complex numbers.
    #[must_use]
    pub fn to_f32(&self) -> Option<Vec<f32>> {
        let Self::Array { dtype, bytes, .. } = self else { return None };
        Some(match dtype {
            Dtype::Float32 => each(bytes, f32::from_le_bytes),
            Dtype::Float64 => each(bytes, |value| f64::from_le_bytes(value) as f32),
            Dtype::Float16 => each(bytes, |value| half_to_f32(u16::from_le_bytes(value))),
            Dtype::Bfloat16 => each(bytes, |value| f32::from_bits(u32::from(u16::from_le_bytes(value)) << 16)),
            Dtype::Int64 => each(bytes, |value| i64::from_le_bytes(value) as f32),
            Dtype::Int32 => each(bytes, |value| i32::from_le_bytes(value) as f32),
            _ => decoded(*dtype, bytes, |number| match number {
                Number::Integer(value) => value as f32,
                Number::Float(value) => value as f32,
            })?,
        })
    }

    /// The values as integers, the fractions of floats cut off; `None` for text and complex numbers.
    #[must_use]
    pub fn to_i64(&self) -> Option<Vec<i64>> {
        let Self::Array { dtype, bytes, .. } = self else { return None };
        Some(match dtype {
            Dtype::Int64 => each(bytes, i64::from_le_bytes),
            Dtype::Int32 => each(bytes, |value| i64::from(i32::from_le_bytes(value))),
            Dtype::Uint64 => each(bytes, |value| i64::try_from(u64::from_le_bytes(value)).unwrap_or(i64::MAX)),
            _ => decoded(*dtype, bytes, |number| match number {
                Number::Integer(value) => i64::try_from(value).unwrap_or(i64::MAX),
                Number::Float(value) => value as i64,
            })?,
        })
    }
}

fn each<const N: usize, T>(bytes: &[u8], decode: impl Fn([u8; N]) -> T) -> Vec<T> {
    bytes.as_chunks::<N>().0.iter().map(|value| decode(*value)).collect()
}

fn decoded<T>(dtype: Dtype, bytes: &[u8], convert: impl Fn(Number) -> T) -> Option<Vec<T>> {
    let decode = decoder(dtype)?;
    let values = bytes.chunks_exact(dtype.size() as usize);
    Some(values.map(|value| convert(decode(value, ByteOrder::Little))).collect())
}

/// Half precision, by moving its bits into the places of single precision and the exponent by a product.
fn half_to_f32(half: u16) -> f32 {
    const RAISE: f32 = f32::from_bits((127 + 112) << 23);
    let sign = u32::from(half & 0x8000) << 16;
    let magnitude = u32::from(half & 0x7fff) << 13;
    let bits =
        if half & 0x7c00 == 0x7c00 { magnitude | 0x7f80_0000 } else { (f32::from_bits(magnitude) * RAISE).to_bits() };
    f32::from_bits(bits | sign)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_half_is_the_number_it_stands_for() {
        let decode = decoder(Dtype::Float16).unwrap();
        for half in 0..=u16::MAX {
            let Number::Float(expect) = decode(&half.to_le_bytes(), ByteOrder::Little) else { panic!("a float") };
            let found = f64::from(half_to_f32(half));
            assert!(found == expect || found.is_nan() && expect.is_nan(), "{half:04x}: {found} and not {expect}");
        }
    }

    #[track_caller]
    fn check(dtype: Dtype, bytes: &[u8], floats: &[f32], integers: &[i64]) {
        let view = View::Array { dtype, shape: Cow::Borrowed(&[]), bytes };
        assert_eq!(view.to_f32().as_deref(), Some(floats), "{dtype}");
        assert_eq!(view.to_i64().as_deref(), Some(integers), "{dtype}");
    }

    #[test]
    fn numbers_of_every_kind() {
        check(Dtype::Bool, &[0, 1], &[0.0, 1.0], &[0, 1]);
        check(Dtype::Uint8, &[255], &[255.0], &[255]);
        check(Dtype::Int8, &[255], &[-1.0], &[-1]);
        check(Dtype::Int16, &[0xfe, 0xff], &[-2.0], &[-2]);
        check(Dtype::Int32, &(-3_i32).to_le_bytes(), &[-3.0], &[-3]);
        check(Dtype::Int64, &i64::MIN.to_le_bytes(), &[i64::MIN as f32], &[i64::MIN]);
        check(Dtype::Uint64, &u64::MAX.to_le_bytes(), &[u64::MAX as f32], &[i64::MAX]);
        check(Dtype::Float16, &[0x00, 0xbe], &[-1.5], &[-1]);
        check(Dtype::Bfloat16, &[0xc0, 0x3f], &[1.5], &[1]);
        check(Dtype::Float32, &2.75_f32.to_le_bytes(), &[2.75], &[2]);
        check(Dtype::Float64, &(-2.75_f64).to_le_bytes(), &[-2.75], &[-2]);
        let complex = View::Array { dtype: Dtype::Complex64, shape: Cow::Borrowed(&[]), bytes: &[0; 8] };
        assert_eq!((complex.to_f32(), complex.to_i64()), (None, None));
        assert_eq!(View::Text("1").to_f32(), None);
    }
}
