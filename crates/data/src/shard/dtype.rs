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
}

impl Dtype {
    /// All of them, by their number.
    pub const ALL: [Self; 17] = [
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
    ];

    /// The number by which a file names it.
    pub fn number(self) -> u8 {
        self as u8
    }

    /// The type with this number.
    pub fn from_number(number: u8) -> Option<Self> {
        Self::ALL.get(usize::from(number)).copied()
    }

    /// How many bytes an element takes.
    pub fn bytes(self) -> u64 {
        match self {
            Self::Bool | Self::U8 | Self::I8 | Self::F8E4M3 | Self::F8E5M2 => 1,
            Self::U16 | Self::I16 | Self::F16 | Self::Bf16 => 2,
            Self::U32 | Self::I32 | Self::F32 => 4,
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
        assert_eq!(Dtype::from_number(17), None);
    }

    #[test]
    fn sizes_do_not_overflow() {
        assert_eq!(Dtype::F32.bytes_of(&[]), Some(4));
        assert_eq!(Dtype::F32.bytes_of(&[3, 0, 5]), Some(0));
        assert_eq!(Dtype::F32.bytes_of(&[1 << 62]), None);
        assert_eq!(Dtype::Bf16.to_string(), "bf16");
    }
}
