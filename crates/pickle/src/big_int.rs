//! Integers beyond 64 bits.

use std::fmt;

/// The most decimal digits that a text integer may have, as in Python: turning them into bytes takes the square of
/// their number.
const MOST_DIGITS: usize = 4300;

/// An integer that 64 bits cannot hold, in two's complement, least byte first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BigInt<'a>(pub(crate) &'a [u8]);

impl<'a> BigInt<'a> {
    /// Its bytes, least first, in two's complement and as few as hold it.
    #[must_use]
    pub fn bytes(self) -> &'a [u8] {
        self.0
    }

    /// The same integer, where 128 bits can hold it.
    #[must_use]
    pub fn to_i128(self) -> Option<i128> {
        let mut bytes = if self.is_negative() { [0xff; 16] } else { [0; 16] };
        bytes.get_mut(..self.0.len())?.copy_from_slice(self.0);
        Some(i128::from_le_bytes(bytes))
    }

    fn is_negative(self) -> bool {
        self.0.last().is_some_and(|byte| byte & 0x80 != 0)
    }
}

impl fmt::Display for BigInt<'_> {
    /// Decimal up to 128 bits, and `0x...` in two's complement beyond, where decimal digits would take long to find.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(value) = self.to_i128() {
            return write!(formatter, "{value}");
        }
        formatter.write_str("0x")?;
        self.0.iter().rev().try_for_each(|byte| write!(formatter, "{byte:02x}"))
    }
}

/// Two's complement bytes without those that only repeat the sign.
pub(crate) fn trim(bytes: &[u8]) -> &[u8] {
    let mut length = bytes.len();
    while length > 1 {
        let repeats = match bytes[length - 1] {
            0 => bytes[length - 2] & 0x80 == 0,
            0xff => bytes[length - 2] & 0x80 != 0,
            _ => false,
        };
        if !repeats {
            break;
        }
        length -= 1;
    }
    &bytes[..length]
}

/// The integer of two's complement bytes, where they are no more than eight.
#[inline]
pub(crate) fn small(bytes: &[u8]) -> Option<i64> {
    if bytes.len() > 8 {
        return None;
    }
    let fill = if bytes.last().is_some_and(|byte| byte & 0x80 != 0) { -1 } else { 0 };
    Some(bytes.iter().rev().fold(fill, |value, byte| value << 8 | i64::from(*byte)))
}

/// The two's complement bytes of a decimal integer, not trimmed; `None` where the text is none or has too many digits.
pub(crate) fn parse(text: &str) -> Option<Vec<u8>> {
    let (negative, digits) = match text.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    if digits.is_empty() || digits.len() > MOST_DIGITS || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let mut words: Vec<u32> = Vec::new();
    for digit in digits.bytes() {
        let mut carry = u64::from(digit - b'0');
        for word in &mut words {
            let value = u64::from(*word) * 10 + carry;
            *word = (value & 0xffff_ffff) as u32;
            carry = value >> 32;
        }
        if carry != 0 {
            words.push(carry as u32);
        }
    }
    // One word more, so that the top bit is the sign's.
    words.push(0);
    if negative {
        let mut carry = true;
        for word in &mut words {
            (*word, carry) = (!*word).overflowing_add(u32::from(carry));
        }
    }
    Some(words.iter().flat_map(|word| word.to_le_bytes()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str) {
        let bytes = parse(text).expect("an integer");
        assert_eq!(BigInt(trim(&bytes)).to_string(), text);
    }

    #[test]
    fn decimal_text_and_bytes_agree() {
        for text in ["0", "-1", "127", "128", "-128", "-129", "255", "256", "9223372036854775808"] {
            check(text);
        }
        check("-9223372036854775809");
        check("170141183460469231731687303715884105727");
        check("-170141183460469231731687303715884105728");
    }

    #[test]
    fn bytes_are_as_few_as_hold_the_integer() {
        assert_eq!(trim(&parse("128").unwrap()), [0x80, 0]);
        assert_eq!(trim(&parse("-128").unwrap()), [0x80]);
        assert_eq!(small(trim(&parse("-9223372036854775808").unwrap())), Some(i64::MIN));
        assert_eq!(small(trim(&parse("9223372036854775808").unwrap())), None);
        assert_eq!(small(&[]), Some(0));
    }

    #[test]
    fn beyond_128_bits_it_is_written_in_hexadecimal() {
        let bytes = parse("340282366920938463463374607431768211456").unwrap();
        let big = BigInt(trim(&bytes));
        assert_eq!(big.to_string(), "0x0100000000000000000000000000000000");
    }

    #[test]
    fn what_is_no_integer_is_refused() {
        for text in ["", "-", "+", "1 ", "0x10", "1_0", "½", "--1"] {
            assert_eq!(parse(text), None, "{text}");
        }
        assert_eq!(parse(&"9".repeat(4301)), None);
        assert!(parse(&"9".repeat(4300)).is_some());
    }
}
