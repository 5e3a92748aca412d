//! Sizes of tensors, and whether one is the size that was asked for.

use lowtide_core::Bytes;

/// Whether a tensor of so many bytes is a request that is printed as `tried`: rounded to 2 MiB, printed with two
/// decimals.
pub(super) fn is_size(bytes: u64, tried: Bytes) -> bool {
    let rounded = if bytes >= 10 << 20 { bytes.checked_next_multiple_of(2 << 20).unwrap_or(bytes) } else { bytes };
    [bytes, rounded].iter().any(|bytes| Bytes(*bytes) == tried || Bytes(*bytes).to_string() == tried.to_string())
}

/// The number of elements.
pub(super) fn product(shape: &[u64]) -> Option<u64> {
    shape.iter().try_fold(1_u64, |product, size| product.checked_mul(*size))
}
