//! A share of a whole.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::Error;

/// A share above 0 % and up to 100 %, in steps of a hundredth of a percent.
///
/// Written as `90%` or `87.5%`, in JSON and YAML too.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Percent(u16);

impl Percent {
    /// From hundredths of a percent; `None` unless it is in 1 to 10,000.
    pub const fn from_hundredths(hundredths: u16) -> Option<Self> {
        if hundredths == 0 || hundredths > 10_000 { None } else { Some(Self(hundredths)) }
    }

    /// In hundredths of a percent: 9,000 for 90 %.
    pub const fn hundredths(self) -> u16 {
        self.0
    }
}

impl fmt::Display for Percent {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, rest) = (self.0 / 100, self.0 % 100);
        match rest {
            0 => write!(formatter, "{whole}%"),
            _ if rest.is_multiple_of(10) => write!(formatter, "{whole}.{}%", rest / 10),
            _ => write!(formatter, "{whole}.{rest:02}%"),
        }
    }
}

impl FromStr for Percent {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let number = text.trim().strip_suffix('%').map(str::trim_end);
        number
            .and_then(hundredths)
            .and_then(Self::from_hundredths)
            .ok_or_else(|| Error::Percent { text: text.to_owned() })
    }
}

/// Reads `90` or `87.25` as hundredths.
fn hundredths(number: &str) -> Option<u16> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
    let all_digits = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
    if !all_digits(whole) || !all_digits(fraction) || fraction.len() > 2 {
        return None;
    }
    let places: u16 = format!("{fraction:0<2}").parse().ok()?;
    whole.parse::<u16>().ok()?.checked_mul(100)?.checked_add(places)
}

impl Serialize for Percent {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Percent {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expect: Option<u16>) {
        assert_eq!(text.parse::<Percent>().ok().map(Percent::hundredths), expect, "{text}");
    }

    #[test]
    fn parses_above_zero_up_to_a_hundred() {
        check("90%", Some(9000));
        check(" 100 % ", Some(10_000));
        check("87.5%", Some(8750));
        check("0.01%", Some(1));
        for text in
            ["0%", "100.01%", "-1%", "+1%", "90", "%", "1.%", ".5%", "1.234%", "NaN%", "65537%", "999999999999%"]
        {
            check(text, None);
        }
    }

    #[test]
    fn prints_what_it_parses() {
        for hundredths in 1..=10_000 {
            let percent = Percent::from_hundredths(hundredths).unwrap();
            assert_eq!(percent.to_string().parse(), Ok(percent));
        }
    }
}
