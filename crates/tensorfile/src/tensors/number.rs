//! Numbers out of their bytes, whatever type they have.

use super::{ByteOrder, Dtype};

/// A number of any type.
#[derive(Clone, Copy)]
pub(crate) enum Number {
    Integer(i128),
    Float(f64),
}

/// Makes a number of the bytes of one value.
pub(crate) type Decode = fn(&[u8], ByteOrder) -> Number;

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
fn word(bytes: &[u8], order: ByteOrder) -> u64 {
    let push = |number: u64, byte: &u8| number << 8 | u64::from(*byte);
    match order {
        ByteOrder::Little => bytes.iter().rev().fold(0, push),
        ByteOrder::Big => bytes.iter().fold(0, push),
    }
}

/// How a small float is laid out: one bit of sign, then exponent, then mantissa.
#[derive(Clone, Copy)]
struct FloatLayout {
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

const HALF: FloatLayout = FloatLayout { exponent_bits: 5, mantissa_bits: 10, bias: 15, special: Special::Ieee };
const E5M2: FloatLayout = FloatLayout { exponent_bits: 5, mantissa_bits: 2, bias: 15, special: Special::Ieee };
const E4M3FN: FloatLayout = FloatLayout { exponent_bits: 4, mantissa_bits: 3, bias: 7, special: Special::AllOnes };
const E4M3FNUZ: FloatLayout =
    FloatLayout { exponent_bits: 4, mantissa_bits: 3, bias: 8, special: Special::NegativeZero };
const E5M2FNUZ: FloatLayout =
    FloatLayout { exponent_bits: 5, mantissa_bits: 2, bias: 16, special: Special::NegativeZero };

fn small_float(bits: u64, layout: FloatLayout) -> f64 {
    let FloatLayout { exponent_bits, mantissa_bits, bias, special } = layout;
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
}
