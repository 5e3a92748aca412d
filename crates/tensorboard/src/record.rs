//! The framing of TFRecord files: length, its checksum, the bytes, their checksum.

/// What a record takes beside its bytes.
pub(crate) const FRAME_BYTES: usize = 16;

/// Appends one record.
pub(crate) fn append(out: &mut Vec<u8>, bytes: &[u8]) {
    let length = (bytes.len() as u64).to_le_bytes();
    out.extend_from_slice(&length);
    out.extend_from_slice(&masked(&length).to_le_bytes());
    out.extend_from_slice(bytes);
    out.extend_from_slice(&masked(bytes).to_le_bytes());
}

/// The checksum of data that may itself hold checksums, as TensorFlow defines it.
fn masked(bytes: &[u8]) -> u32 {
    crc32c::crc32c(bytes).rotate_right(15).wrapping_add(0xa282_ead8)
}

#[cfg(test)]
mod tests {
    use super::{append, masked};

    #[test]
    fn the_checksum_is_crc32c_turned_and_shifted() {
        // The test vector of RFC 3720 for 32 zeros is 0x8a9136aa.
        assert_eq!(masked(&[0; 32]), 0x8a91_36aa_u32.rotate_right(15).wrapping_add(0xa282_ead8));
    }

    #[test]
    fn a_record_is_as_tensorflow_writes_it() {
        // The first record of a file of TensorBoard's own writer begins so: a version event is 24 bytes long.
        let mut out = Vec::new();
        append(&mut out, &[0; 24]);
        assert_eq!(out[..12], [0x18, 0, 0, 0, 0, 0, 0, 0, 0xa3, 0x7f, 0x4b, 0x22]);
        assert_eq!(out.len(), 24 + super::FRAME_BYTES);
    }
}
