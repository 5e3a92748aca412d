//! What a tensor of a record holds.

use std::fmt;

use lowtide_tensorfile::Dtype;

/// What the values of a field are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FieldKind {
    /// A string: UTF-8, a byte each; the one dimension is its length.
    Text,
    /// An array of this type.
    Array(Dtype),
}

/// What a shard holds. The place of each is the number by which a file names it, and never changes.
///
/// Quantized values and those that share a byte are not among them: they mean nothing without what is not in a shard.
const NUMBERS: [FieldKind; 22] = [
    FieldKind::Array(Dtype::Bool),
    FieldKind::Array(Dtype::Uint8),
    FieldKind::Array(Dtype::Int8),
    FieldKind::Array(Dtype::Uint16),
    FieldKind::Array(Dtype::Int16),
    FieldKind::Array(Dtype::Uint32),
    FieldKind::Array(Dtype::Int32),
    FieldKind::Array(Dtype::Uint64),
    FieldKind::Array(Dtype::Int64),
    FieldKind::Array(Dtype::Float16),
    FieldKind::Array(Dtype::Bfloat16),
    FieldKind::Array(Dtype::Float32),
    FieldKind::Array(Dtype::Float64),
    FieldKind::Array(Dtype::Complex64),
    FieldKind::Array(Dtype::Complex128),
    FieldKind::Array(Dtype::Float8E4m3fn),
    FieldKind::Array(Dtype::Float8E5m2),
    FieldKind::Text,
    FieldKind::Array(Dtype::Float8E4m3fnuz),
    FieldKind::Array(Dtype::Float8E5m2fnuz),
    FieldKind::Array(Dtype::Float8E8m0fnu),
    FieldKind::Array(Dtype::Complex32),
];

impl FieldKind {
    /// The number by which a file names it; `None` where a shard does not hold it.
    #[must_use]
    pub fn number(self) -> Option<u8> {
        NUMBERS.iter().position(|known| *known == self).map(|number| number as u8)
    }

    /// What has this number.
    #[must_use]
    #[inline]
    pub fn from_number(number: u8) -> Option<Self> {
        NUMBERS.get(usize::from(number)).copied()
    }

    /// How many bytes a tensor of this shape takes, or `None` where 64 bits cannot say it.
    #[must_use]
    #[inline]
    pub fn bytes_of(self, shape: &[u64]) -> Option<u64> {
        let one = match self {
            Self::Text => 1,
            Self::Array(dtype) => dtype.size(),
        };
        shape.iter().try_fold(one, |bytes, size| bytes.checked_mul(*size))
    }
}

impl fmt::Display for FieldKind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(match self {
            Self::Text => "str",
            Self::Array(dtype) => dtype.name(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_of_the_format() {
        for (number, kind) in NUMBERS.into_iter().enumerate() {
            assert_eq!(kind.number(), Some(number as u8));
            assert_eq!(FieldKind::from_number(number as u8), Some(kind));
        }
        assert_eq!(FieldKind::from_number(22), None);
        assert_eq!(FieldKind::Text.number(), Some(17));
        assert_eq!(FieldKind::Array(Dtype::Complex32).number(), Some(21));
        assert_eq!(FieldKind::Array(Dtype::Qint8).number(), None);
    }

    #[test]
    fn a_value_of_what_a_shard_holds_has_bytes_of_its_own() {
        let held = NUMBERS.into_iter().filter_map(|kind| match kind {
            FieldKind::Array(dtype) => Some(dtype),
            FieldKind::Text => None,
        });
        assert!(held.into_iter().all(|dtype| dtype.per_byte() == 1));
    }

    #[test]
    fn sizes_do_not_overflow() {
        let float = FieldKind::Array(Dtype::Float32);
        assert_eq!(float.bytes_of(&[]), Some(4));
        assert_eq!(float.bytes_of(&[3, 0, 5]), Some(0));
        assert_eq!(float.bytes_of(&[1 << 62]), None);
        assert_eq!(FieldKind::Text.bytes_of(&[5]), Some(5));
    }
}
