//! The number that stands for a sample's id.

const START: u64 = 0xcbf2_9ce4_8422_2325;
const PRIME: u64 = 0x0000_0100_0000_01b3;

/// FNV-1a of the id's UTF-8 in 64 bits, which never changes; 1 in place of 0, which stands for no id.
pub fn hash_of_id(id: &str) -> u64 {
    let hash = id.bytes().fold(START, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(PRIME));
    hash.max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The test vectors of the function's authors.
    #[test]
    fn the_hash_is_the_published_one() {
        let cases = [("", START), ("a", 0xaf63_dc4c_8601_ec8c), ("foobar", 0x8594_4171_f739_67e8)];
        for (id, hash) in cases {
            assert_eq!(hash_of_id(id), hash, "{id}");
        }
    }
}
