//! A checksum that a text of JSON carries in itself, so that no changed bit of it goes unnoticed.
//!
//! It is the last key of the object: `"crc32c":"1a2b3c4d"`. The sum is taken over the whole text, with zeros in its own place;
//! whoever reads the JSON and does not know the key passes over it.

const HEAD: &[u8] = b",\"crc32c\":\"";
const ZEROS: &[u8; 8] = b"00000000";
const TAIL: &[u8] = b"\"}";
/// Bytes of a damaged seal that may differ for it to be taken for one; no other text ends like that.
const CLOSE: usize = 3;

/// What a text says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seal {
    /// Every bit is as it was written.
    Whole,
    /// There is none: the text was written before texts had one, or by somebody else.
    Missing,
    /// Something was changed since, in the text or in the seal.
    Broken,
}

impl Seal {
    /// The seal of a text, which begins and ends where it was written to.
    #[must_use]
    pub fn of(text: &[u8]) -> Seal {
        let Some((head, [digits @ .., _, _])) = text.split_last_chunk::<{ ZEROS.len() + TAIL.len() }>() else {
            return Seal::Missing;
        };
        if head.len() <= HEAD.len() {
            return Seal::Missing;
        }
        let written = head.iter().rev().zip(HEAD.iter().rev()).chain(text.iter().rev().zip(TAIL.iter().rev()));
        let different = written.filter(|(there, seal)| there != seal).count();
        match different {
            0 if *digits == hex(sum(head)) => Seal::Whole,
            0..=CLOSE => Seal::Broken,
            _ => Seal::Missing,
        }
    }
}

/// The text of a JSON object with its seal.
///
/// # Panics
///
/// The text is no object, or an empty one.
#[must_use]
pub fn sealed(mut object: String) -> String {
    let end = object.trim_end().strip_suffix('}').expect("an object ends so").trim_end().len();
    assert!(end > 1, "an empty object has no place for a seal");
    object.truncate(end);
    object.extend(HEAD.iter().map(|byte| char::from(*byte)));
    let digits = hex(sum(object.as_bytes()));
    object.extend(digits.iter().chain(TAIL).map(|byte| char::from(*byte)));
    object
}

/// The sum of a text up to the digits of its seal.
fn sum(head: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c_append(crc32c::crc32c(head), ZEROS), TAIL)
}

fn hex(sum: u32) -> [u8; 8] {
    std::array::from_fn(|place| b"0123456789abcdef"[(sum >> (28 - 4 * place) & 15) as usize])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seal_is_a_key_like_others() {
        let text = sealed("{\n  \"a\": 1\n}\n".to_owned());
        assert_eq!(Seal::of(text.as_bytes()), Seal::Whole);
        let value: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(value["a"], 1);
        assert_eq!(value["crc32c"].as_str().unwrap().len(), 8);
        // Written down, so that other programs can do the same: CRC-32C of the text with zeros for the digits.
        assert_eq!(sealed("{\"a\":1}".to_owned()), "{\"a\":1,\"crc32c\":\"a7eb595e\"}");
    }

    #[test]
    fn every_flipped_bit_and_every_cut_is_noticed() {
        let text = sealed("{\"step\":7,\"loss\":0.25}".to_owned()).into_bytes();
        for bit in 0..8 * text.len() {
            let mut damaged = text.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Seal::of(&damaged), Seal::Broken, "bit {bit}");
        }
        for length in 0..text.len() {
            assert_ne!(Seal::of(&text[..length]), Seal::Whole, "{length} bytes");
        }
    }

    #[test]
    fn texts_without_a_seal_are_no_broken_ones() {
        for text in [
            "",
            "{}",
            "{\"step\":7,\"loss\":0.25}",
            "{\"precision\":\"fp32\"}",
            "{\"a\":\"0123456789abcdef\"}",
            "{\"a\":12345}",
        ] {
            assert_eq!(Seal::of(text.as_bytes()), Seal::Missing, "{text}");
        }
    }
}
