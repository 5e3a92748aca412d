//! Bytes of a tensor from its shape and the name of its type.

use lowtide_core::Bytes;

/// Bytes of a tensor, given `32,128,1024` and `float`; `None` for an unknown type or more than memory can be.
pub(crate) fn tensor_bytes(shape: &str, dtype: &str) -> Option<Bytes> {
    let mut count = 1_u64;
    for dimension in shape.split(',').map(str::trim).filter(|dimension| !dimension.is_empty()) {
        count = count.checked_mul(dimension.parse().ok()?)?;
    }
    let total = count.checked_mul(element_bytes(dtype)?)?;
    (total < 1 << 60).then_some(Bytes(total))
}

fn element_bytes(dtype: &str) -> Option<u64> {
    match dtype {
        "bool" | "int8" | "uint8" | "qint8" | "quint8" | "float8_e4m3fn" | "float8_e5m2" => Some(1),
        "half" | "float16" | "bfloat16" | "int16" | "uint16" => Some(2),
        "float" | "float32" | "int32" | "uint32" | "qint32" => Some(4),
        "double" | "float64" | "int64" | "uint64" | "complex64" => Some(8),
        "complex128" => Some(16),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shape_times_type() {
        assert_eq!(tensor_bytes("32,128,1024", "float"), Some(Bytes(16_777_216)));
        assert_eq!(tensor_bytes("", "double"), Some(Bytes(8)));
        assert_eq!(tensor_bytes("9223372036854775807,9", "half"), None);
        assert_eq!(tensor_bytes("4,x", "half"), None);
        assert_eq!(tensor_bytes("4", "string"), None);
    }
}
