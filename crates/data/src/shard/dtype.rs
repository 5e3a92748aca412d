//! The types of elements.

use std::fmt;

/// The type of a tensor's elements. The number of each is what the file holds, and never changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Dtype {
    /// True or false, a byte each.
    Bool = 0,
    /// 8 bits, without sign.
    U8 = 1,
    /// 8 bits, with sign.
    I8 = 2,
    /// 16 bits, without sign.
    U16 = 3,
    /// 16 bits, with sign.
    I16 = 4,
    /// 32 bits, without sign.
    U32 = 5,
    /// 32 bits, with sign.
    I32 = 6,
    /// 64 bits, without sign.
    U64 = 7,
    /// 64 bits, with sign.
    I64 = 8,
    /// Half precision.
    F16 = 9,
    /// The upper half of single precision.
    Bf16 = 10,
    /// Single precision.
    F32 = 11,
    /// Double precision.
    F64 = 12,
    /// Two of single precision.
    C64 = 13,
    /// Two of double precision.
    C128 = 14,
    /// 8 bits with an exponent of 4.
    F8E4M3 = 15,
    /// 8 bits with an exponent of 5.
    F8E5M2 = 16,
    /// UTF-8, a byte each: the one dimension is the length of the text.
    Text = 17,
    /// As [`Dtype::F8E4M3`], without negative zero.
    F8E4M3Fnuz = 18,
    /// As [`Dtype::F8E5M2`], without infinities and negative zero.
    F8E5M2Fnuz = 19,
    /// 8 bits of exponent alone.
    F8E8M0 = 20,
    /// Two of half precision.
    C32 = 21,
}

impl Dtype {
    /// All of them, by their number.
    pub const ALL: [Self; 22] = [
        Self::Bool,
        Self::U8,
        Self::I8,
        Self::U16,
        Self::I16,
        Self::U32,
        Self::I32,
        Self::U64,
        Self::I64,
        Self::F16,
        Self::Bf16,
        Self::F32,
        Self::F64,
        Self::C64,
        Self::C128,
        Self::F8E4M3,
        Self::F8E5M2,
        Self::Text,
        Self::F8E4M3Fnuz,
        Self::F8E5M2Fnuz,
        Self::F8E8M0,
        Self::C32,
    ];

    /// The number by which a file names it.
    pub fn number(self) -> u8 {
        self as u8
    }

    /// The type with this number.
    pub fn from_number(number: u8) -> Option<Self> {
        Self::ALL.get(usize::from(number)).copied()
    }

    /// The type that stands for these values; `None` for quantized ones and those that share a byte, which mean nothing
    /// without what is not in a shard.
    pub fn of(dtype: crate::Dtype) -> Option<Self> {
        Self::ALL.into_iter().find(|known| known.values() == Some(dtype))
    }

    /// The type of the values, as torch names it; `None` for text.
    pub fn values(self) -> Option<crate::Dtype> {
        use crate::Dtype as Values;
        Some(match self {
            Self::Bool => Values::Bool,
            Self::U8 => Values::Uint8,
            Self::I8 => Values::Int8,
            Self::U16 => Values::Uint16,
            Self::I16 => Values::Int16,
            Self::U32 => Values::Uint32,
            Self::I32 => Values::Int32,
            Self::U64 => Values::Uint64,
            Self::I64 => Values::Int64,
            Self::F16 => Values::Float16,
            Self::Bf16 => Values::Bfloat16,
            Self::F32 => Values::Float32,
            Self::F64 => Values::Float64,
            Self::C64 => Values::Complex64,
            Self::C128 => Values::Complex128,
            Self::F8E4M3 => Values::Float8E4m3fn,
            Self::F8E5M2 => Values::Float8E5m2,
            Self::Text => return None,
            Self::F8E4M3Fnuz => Values::Float8E4m3fnuz,
            Self::F8E5M2Fnuz => Values::Float8E5m2fnuz,
            Self::F8E8M0 => Values::Float8E8m0fnu,
            Self::C32 => Values::Complex32,
        })
    }

    /// How many bytes an element takes.
    pub fn bytes(self) -> u64 {
        match self {
            Self::Bool | Self::U8 | Self::I8 | Self::Text => 1,
            Self::F8E4M3 | Self::F8E5M2 | Self::F8E4M3Fnuz | Self::F8E5M2Fnuz | Self::F8E8M0 => 1,
            Self::U16 | Self::I16 | Self::F16 | Self::Bf16 => 2,
            Self::U32 | Self::I32 | Self::F32 | Self::C32 => 4,
            Self::U64 | Self::I64 | Self::F64 | Self::C64 => 8,
            Self::C128 => 16,
        }
    }

    /// How many bytes a tensor of this shape takes, or `None` where 64 bits cannot say it.
    pub fn bytes_of(self, shape: &[u64]) -> Option<u64> {
        shape.iter().try_fold(self.bytes(), |bytes, size| bytes.checked_mul(*size))
    }
}

impl fmt::Display for Dtype {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(&format!("{self:?}").to_ascii_lowercase())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_places() {
        for (place, dtype) in Dtype::ALL.into_iter().enumerate() {
            assert_eq!(usize::from(dtype.number()), place);
            assert_eq!(Dtype::from_number(dtype.number()), Some(dtype));
        }
        assert_eq!(Dtype::from_number(22), None);
    }

    #[test]
    fn values_have_the_same_size_on_both_sides() {
        for dtype in Dtype::ALL {
            let Some(values) = dtype.values() else { continue };
            assert_eq!((Dtype::of(values), values.size()), (Some(dtype), dtype.bytes()));
        }
        assert_eq!(Dtype::of(crate::Dtype::Qint8), None);
    }

    #[test]
    fn sizes_do_not_overflow() {
        assert_eq!(Dtype::F32.bytes_of(&[]), Some(4));
        assert_eq!(Dtype::F32.bytes_of(&[3, 0, 5]), Some(0));
        assert_eq!(Dtype::F32.bytes_of(&[1 << 62]), None);
        assert_eq!(Dtype::Bf16.to_string(), "bf16");
    }
}
