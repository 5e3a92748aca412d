//! The types of a tensor's values.

use std::fmt;

use serde::{Serialize, Serializer};

macro_rules! dtypes {
    ($($variant:ident $name:literal $size:literal $part:literal $($storage:literal)?;)*) => {
        /// A type of values, as torch names them.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[expect(missing_docs, reason = "the names are torch's")]
        #[non_exhaustive]
        pub enum Dtype {
            $($variant,)*
        }

        impl Dtype {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$variant,)*];

            /// The name, without `torch.` before it.
            #[must_use]
            #[inline]
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)*
                }
            }

            /// Bytes of one value; where several share a byte, of the byte that they share.
            #[must_use]
            #[inline]
            pub fn size(self) -> u64 {
                match self {
                    $(Self::$variant => $size,)*
                }
            }

            /// Bytes of the part that the order of bytes applies to: half a complex number.
            pub(crate) fn part(self) -> usize {
                match self {
                    $(Self::$variant => $part,)*
                }
            }

            /// The type of the values in a storage of this class, such as `FloatStorage`.
            pub(crate) fn of_storage(class: &str) -> Option<Self> {
                match class {
                    $($($storage => Some(Self::$variant),)?)*
                    _ => None,
                }
            }

            /// The class of storages for values of this type, where there is one.
            pub(crate) fn storage_class(self) -> Option<&'static str> {
                match self {
                    $($(Self::$variant => Some($storage),)?)*
                    _ => None,
                }
            }

            /// The classes of storages that have a type of their own.
            pub(crate) const STORAGES: &[&str] = &[$($($storage,)?)*];
        }
    };
}

dtypes! {
    Uint8 "uint8" 1 1 "ByteStorage";
    Int8 "int8" 1 1 "CharStorage";
    Int16 "int16" 2 2 "ShortStorage";
    Int32 "int32" 4 4 "IntStorage";
    Int64 "int64" 8 8 "LongStorage";
    Uint16 "uint16" 2 2;
    Uint32 "uint32" 4 4;
    Uint64 "uint64" 8 8;
    Bool "bool" 1 1 "BoolStorage";
    Float16 "float16" 2 2 "HalfStorage";
    Bfloat16 "bfloat16" 2 2 "BFloat16Storage";
    Float32 "float32" 4 4 "FloatStorage";
    Float64 "float64" 8 8 "DoubleStorage";
    Float8E4m3fn "float8_e4m3fn" 1 1;
    Float8E4m3fnuz "float8_e4m3fnuz" 1 1;
    Float8E5m2 "float8_e5m2" 1 1;
    Float8E5m2fnuz "float8_e5m2fnuz" 1 1;
    Float8E8m0fnu "float8_e8m0fnu" 1 1;
    Float4E2m1fnX2 "float4_e2m1fn_x2" 1 1;
    Complex32 "complex32" 4 2;
    Complex64 "complex64" 8 4 "ComplexFloatStorage";
    Complex128 "complex128" 16 8 "ComplexDoubleStorage";
    Quint8 "quint8" 1 1 "QUInt8Storage";
    Qint8 "qint8" 1 1 "QInt8Storage";
    Qint32 "qint32" 4 4 "QInt32Storage";
    Quint4x2 "quint4x2" 1 1 "QUInt4x2Storage";
    Quint2x4 "quint2x4" 1 1 "QUInt2x4Storage";
    Bits1x8 "bits1x8" 1 1;
    Bits2x4 "bits2x4" 1 1;
    Bits4x2 "bits4x2" 1 1;
    Bits8 "bits8" 1 1;
    Bits16 "bits16" 2 2;
    Uint1 "uint1" 1 1;
    Uint2 "uint2" 1 1;
    Uint3 "uint3" 1 1;
    Uint4 "uint4" 1 1;
    Uint5 "uint5" 1 1;
    Uint6 "uint6" 1 1;
    Uint7 "uint7" 1 1;
    Int1 "int1" 1 1;
    Int2 "int2" 1 1;
    Int3 "int3" 1 1;
    Int4 "int4" 1 1;
    Int5 "int5" 1 1;
    Int6 "int6" 1 1;
    Int7 "int7" 1 1;
}

/// The types that numpy has too, by the names that it gives them.
const NUMPY: [(&str, Dtype); 14] = [
    ("b1", Dtype::Bool),
    ("i1", Dtype::Int8),
    ("i2", Dtype::Int16),
    ("i4", Dtype::Int32),
    ("i8", Dtype::Int64),
    ("u1", Dtype::Uint8),
    ("u2", Dtype::Uint16),
    ("u4", Dtype::Uint32),
    ("u8", Dtype::Uint64),
    ("f2", Dtype::Float16),
    ("f4", Dtype::Float32),
    ("f8", Dtype::Float64),
    ("c8", Dtype::Complex64),
    ("c16", Dtype::Complex128),
];

impl Dtype {
    /// The type that numpy calls so.
    pub(crate) fn of_numpy(name: &str) -> Option<Self> {
        NUMPY.iter().find(|(known, _)| *known == name).map(|(_, dtype)| *dtype)
    }

    /// What numpy calls it, where it has such a type.
    pub(crate) fn numpy_name(self) -> Option<&'static str> {
        NUMPY.iter().find(|(_, dtype)| *dtype == self).map(|(name, _)| *name)
    }

    /// The type of that name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|dtype| dtype.name() == name)
    }

    /// How many values share a byte of a storage.
    ///
    /// The types whose names say so count differently: their shape counts bytes.
    #[must_use]
    #[inline]
    pub fn per_byte(self) -> u64 {
        match self {
            Self::Quint4x2 => 2,
            Self::Quint2x4 => 4,
            _ => 1,
        }
    }

    /// Bytes that hold so many values in a row, or `None` where that is too large.
    #[must_use]
    #[inline]
    pub fn bytes_of(self, values: u64) -> Option<u64> {
        values.div_ceil(self.per_byte()).checked_mul(self.size()).filter(|bytes| i64::try_from(*bytes).is_ok())
    }

    /// Whether values are integers that stand for real numbers by a scale.
    pub(crate) fn is_quantized(self) -> bool {
        matches!(self, Self::Quint8 | Self::Qint8 | Self::Qint32 | Self::Quint4x2 | Self::Quint2x4)
    }

    /// Whether values are pairs of a real and an imaginary part.
    #[must_use]
    #[inline]
    pub fn is_complex(self) -> bool {
        matches!(self, Self::Complex32 | Self::Complex64 | Self::Complex128)
    }
}

impl fmt::Display for Dtype {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(self.name())
    }
}

impl Serialize for Dtype {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}
