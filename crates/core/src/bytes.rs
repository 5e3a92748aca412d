//! A number of bytes, as people read and write it.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::{Error, Percent};

/// The units that are printed, smallest first.
const PRINTED: [(u64, &str); 4] = [(1 << 10, "KiB"), (1 << 20, "MiB"), (1 << 30, "GiB"), (1 << 40, "TiB")];

/// A number of bytes.
///
/// Prints with two decimals in the largest binary unit that fits: `3.68 GiB`, `512 bytes`. Parses a number and a unit:
///
/// | typed | means |
/// | --- | --- |
/// | `3.5KiB`, `MiB`, `GiB`, `TiB` | powers of 1024 |
/// | `3.5KB`, `MB`, `GB`, `TB` | powers of 1000 |
/// | `512K`, `M`, `G`, `T` | powers of 1024: memory is meant, as in `-Xmx512M` or `docker --memory` |
/// | `1024`, `1024 B`, `1024 bytes` | bytes |
///
/// Upper and lower case are the same, and blanks around the number are allowed. Parsing is exact; where the result is not
/// a whole number of bytes it is rounded down, so that a line is never above what was asked. In JSON it is a plain number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Bytes(pub u64);

impl Bytes {
    /// No bytes.
    pub const ZERO: Self = Self(0);
    /// The largest number of bytes that can be written down.
    pub const MAX: Self = Self(u64::MAX);

    /// `count` KiB, or [`Bytes::MAX`] where that is too large.
    pub const fn from_kib(count: u64) -> Self {
        Self(count.saturating_mul(1 << 10))
    }

    /// `count` MiB, or [`Bytes::MAX`] where that is too large.
    pub const fn from_mib(count: u64) -> Self {
        Self(count.saturating_mul(1 << 20))
    }

    /// `count` GiB, or [`Bytes::MAX`] where that is too large.
    pub const fn from_gib(count: u64) -> Self {
        Self(count.saturating_mul(1 << 30))
    }

    /// How many GiB, for plots and tables.
    pub const fn as_gib(self) -> f64 {
        self.0 as f64 / (1u64 << 30) as f64
    }

    /// The plain number.
    pub const fn get(self) -> u64 {
        self.0
    }

    /// Whether this is no bytes at all.
    pub const fn is_zero(self) -> bool {
        self.0 == 0
    }

    /// The sum, or [`Bytes::MAX`] where that is too large.
    pub const fn saturating_add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }

    /// The difference, or zero where `other` is larger.
    pub const fn saturating_sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }

    /// The product, or [`Bytes::MAX`] where that is too large.
    pub const fn saturating_mul(self, factor: u64) -> Self {
        Self(self.0.saturating_mul(factor))
    }

    /// The sum, or `None` where that is too large.
    pub fn checked_add(self, other: Self) -> Option<Self> {
        self.0.checked_add(other.0).map(Self)
    }

    /// The difference, or `None` where `other` is larger.
    pub fn checked_sub(self, other: Self) -> Option<Self> {
        self.0.checked_sub(other.0).map(Self)
    }

    /// That share of these bytes, rounded down; never more than the whole.
    pub fn of_percent(self, percent: Percent) -> Self {
        self.scaled(u64::from(percent.hundredths()), 10_000)
    }

    /// These bytes times `numerator / denominator`, rounded down, or [`Bytes::MAX`] where that is too large.
    ///
    /// A denominator of 0 counts as 1.
    pub(crate) fn scaled(self, numerator: u64, denominator: u64) -> Self {
        let product = u128::from(self.0) * u128::from(numerator);
        Self(u64::try_from(product / u128::from(denominator.max(1))).unwrap_or(u64::MAX))
    }

    /// The shortest text without a fraction that parses to exactly these bytes: `3584MiB`, `1025`.
    pub(crate) fn exact(self) -> String {
        for (unit, name) in PRINTED.into_iter().rev() {
            if self.0 >= unit && self.0.is_multiple_of(unit) {
                return format!("{}{name}", self.0 / unit);
            }
        }
        self.0.to_string()
    }
}

impl fmt::Display for Bytes {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 < 1024 {
            let unit = if self.0 == 1 { "byte" } else { "bytes" };
            return formatter.pad(&format!("{} {unit}", self.0));
        }
        let hundredths = |unit: u64| (u128::from(self.0) * 100 + u128::from(unit / 2)) / u128::from(unit);
        let below_next = PRINTED.iter().find(|(unit, _)| hundredths(*unit) < 1024 * 100);
        let (unit, name) = below_next.unwrap_or(&PRINTED[3]);
        let (whole, part) = (hundredths(*unit) / 100, hundredths(*unit) % 100);
        formatter.pad(&format!("{whole}.{part:02} {name}"))
    }
}

impl FromStr for Bytes {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let trimmed = text.trim();
        let wrong = || Error::Size { text: text.to_owned() };
        let end = trimmed.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(trimmed.len());
        let (number, unit_name) = trimmed.split_at(end);
        let unit = unit_bytes(unit_name.trim_start()).ok_or_else(wrong)?;
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if fraction.contains('.') || (whole.is_empty() && fraction.is_empty()) {
            return Err(wrong());
        }
        if unit == 1 && number.contains('.') {
            return Err(Error::SizeWithoutUnit { text: number.to_owned() });
        }
        times(whole, fraction, unit).map(Self).ok_or_else(|| Error::SizeTooLarge { text: text.to_owned() })
    }
}

/// How many bytes the unit of that name has.
fn unit_bytes(name: &str) -> Option<u64> {
    let bytes = match name.to_ascii_lowercase().as_str() {
        "" | "b" | "byte" | "bytes" => 1,
        "k" | "kib" => 1 << 10,
        "m" | "mib" => 1 << 20,
        "g" | "gib" => 1 << 30,
        "t" | "tib" => 1 << 40,
        "kb" => 1_000,
        "mb" => 1_000_000,
        "gb" => 1_000_000_000,
        "tb" => 1_000_000_000_000,
        _ => return None,
    };
    Some(bytes)
}

/// `whole.fraction` times `unit`, rounded down, in integers only; `None` where that is too large.
///
/// Both texts hold nothing but ASCII digits, in any number.
fn times(whole: &str, fraction: &str, unit: u64) -> Option<u64> {
    let mut units: u64 = 0;
    for digit in whole.bytes().map(|b| u64::from(b - b'0')) {
        units = units.checked_mul(10)?.checked_add(digit)?;
    }
    // From the last digit to the first: rounding down at every place gives the same as rounding down once, and the
    // value stays below the unit.
    let mut rest: u64 = 0;
    for digit in fraction.bytes().rev().map(|b| u64::from(b - b'0')) {
        rest = (digit * unit + rest) / 10;
    }
    units.checked_mul(unit)?.checked_add(rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_parse(text: &str, expect: u64) {
        assert_eq!(text.parse(), Ok(Bytes(expect)), "{text}");
    }

    #[track_caller]
    fn check_refused(text: &str, expect: &str) {
        assert_eq!(text.parse::<Bytes>().unwrap_err().to_string(), expect);
    }

    #[track_caller]
    fn check_print(bytes: u64, expect: &str) {
        assert_eq!(Bytes(bytes).to_string(), expect);
    }

    #[test]
    fn parses_what_people_write() {
        check_parse("0", 0);
        check_parse("1024", 1024);
        check_parse("512 bytes", 512);
        check_parse("7B", 7);
        check_parse("3.5GiB", 7 << 29);
        check_parse("3.5GB", 3_500_000_000);
        check_parse("512M", 512 << 20);
        check_parse("1 GiB", 1 << 30);
        check_parse("  2gib\t", 2 << 30);
        check_parse("8k", 8192);
        check_parse("8kb", 8000);
        check_parse(".5KiB", 512);
        check_parse("1.KiB", 1024);
        check_parse("1.5T", 3 << 39);
        check_parse("18446744073709551615", u64::MAX);
        check_parse("00000000000000000000000000001", 1);
    }

    #[test]
    fn parses_fractions_exactly_and_rounds_down() {
        check_parse("0.1GB", 100_000_000);
        check_parse("16777215.9999999TiB", u64::MAX - 109_951);
        check_parse("0.0009765625KiB", 1);
        check_parse("0.0009765624999999999999999999999999999999KiB", 0);
        check_parse("9007199.254740993GB", 9_007_199_254_740_993);
    }

    #[test]
    fn refuses_what_is_not_a_size() {
        let mend = "write a number and a unit, such as 3.5GiB, 3.5GB, 512M or 1024";
        for text in [
            "", " ", "GiB", ".", "3.5GiBB", "-1", "-1GiB", "+1", "NaN", "inf", "1e9", "1..2K", "1.2.3K", "1_000", "½G",
            "90%",
        ] {
            check_refused(text, &format!("`{text}` is not a size: {mend}"));
        }
        check_refused("3.5", "`3.5` has a fraction but no unit: write the unit too, such as 3.5GiB");
        for text in ["18446744073709551616", "16777216TiB", "99999999999999999999999999999999999999999GiB"] {
            check_refused(text, &format!("`{text}` is too large: a size must be below 16777216 TiB (2^64 bytes)"));
        }
    }

    #[test]
    fn prints_two_decimals() {
        check_print(0, "0 bytes");
        check_print(1, "1 byte");
        check_print(1023, "1023 bytes");
        check_print(1024, "1.00 KiB");
        check_print(3_951_369_912, "3.68 GiB");
        check_print((1 << 30) - 1, "1.00 GiB");
        check_print(1_073_000_000, "1023.29 MiB");
        check_print(u64::MAX, "16777216.00 TiB");
        assert_eq!(format!("{:>10}|{:<10}|", Bytes::from_kib(2), Bytes(5)), "  2.00 KiB|5 bytes   |");
    }

    #[test]
    fn arithmetic_never_overflows() {
        assert_eq!(Bytes::MAX.saturating_add(Bytes(1)), Bytes::MAX);
        assert_eq!(Bytes(1).saturating_sub(Bytes(2)), Bytes::ZERO);
        assert_eq!(Bytes::MAX.saturating_mul(2), Bytes::MAX);
        assert_eq!(Bytes::MAX.checked_add(Bytes(1)), None);
        assert_eq!(Bytes(1).checked_sub(Bytes(2)), None);
        assert_eq!(Bytes::MAX.scaled(3, 2), Bytes::MAX);
        assert_eq!(Bytes::MAX.scaled(2, 4), Bytes(u64::MAX / 2));
        assert_eq!(Bytes(100).of_percent("33.33%".parse().unwrap()), Bytes(33));
    }

    #[test]
    fn is_a_plain_number_in_json() {
        assert_eq!(serde_json::to_string(&Bytes(5)).unwrap(), "5");
        assert_eq!(serde_json::from_str::<Bytes>("18446744073709551615").unwrap(), Bytes::MAX);
    }
}
