//! The memory line: what was typed, and what it means on a device.

use std::fmt;
use std::num::NonZeroU64;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::{Bytes, Error, Percent};

/// A memory line as the user typed it: `3.5GiB`, `90%` or `none`.
///
/// Prints as a text that parses to exactly the same line. In JSON and YAML it is that text; a bare whole number is read too,
/// as bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum LineSpec {
    /// No line: memory is used until the device refuses.
    #[default]
    None,
    /// A fixed number of bytes.
    Size(Bytes),
    /// A share of all the memory the device has.
    Share(Percent),
}

impl LineSpec {
    /// What the line means on a device with `total` bytes.
    ///
    /// A size above the total becomes the total: there is no memory above it to hold a run out of. A caller who wants to
    /// tell the user asks [`LineSpec::exceeds`]. A caller who does not know the total passes [`Bytes::MAX`].
    ///
    /// # Errors
    ///
    /// [`Error::EmptyLine`] where the line comes out at 0 bytes.
    pub fn resolve(self, total: Bytes) -> Result<Line, Error> {
        match self {
            Self::None => Ok(Line::NONE),
            Self::Size(size) => Line::at(size.min(total)),
            Self::Share(percent) => Line::at(total.of_percent(percent)),
        }
    }

    /// Whether a size was asked for that is above `total`.
    pub fn exceeds(self, total: Bytes) -> bool {
        matches!(self, Self::Size(size) if size > total)
    }
}

impl fmt::Display for LineSpec {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => formatter.pad("none"),
            Self::Size(size) => formatter.pad(&size.exact()),
            Self::Share(percent) => formatter.pad(&percent.to_string()),
        }
    }
}

impl FromStr for LineSpec {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let trimmed = text.trim();
        if trimmed.eq_ignore_ascii_case("none") {
            return Ok(Self::None);
        }
        if trimmed.ends_with('%') {
            return text.parse().map(Self::Share);
        }
        match text.parse() {
            Ok(Bytes::ZERO) => Err(Error::EmptyLine),
            Ok(size) => Ok(Self::Size(size)),
            Err(Error::Size { text }) => Err(Error::Line { text }),
            Err(other) => Err(other),
        }
    }
}

impl Serialize for LineSpec {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for LineSpec {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(LineVisitor)
    }
}

/// Reads a [`LineSpec`] out of a text or a number; a number is read as its own text, so that the same rules hold.
struct LineVisitor;

impl de::Visitor<'_> for LineVisitor {
    type Value = LineSpec;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a memory limit: a size such as 3.5GiB, a percentage such as 90%, or none")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<LineSpec, E> {
        text.parse().map_err(E::custom)
    }

    fn visit_u64<E: de::Error>(self, number: u64) -> Result<LineSpec, E> {
        self.visit_str(&number.to_string())
    }

    fn visit_i64<E: de::Error>(self, number: i64) -> Result<LineSpec, E> {
        self.visit_str(&number.to_string())
    }

    fn visit_f64<E: de::Error>(self, number: f64) -> Result<LineSpec, E> {
        self.visit_str(&number.to_string())
    }
}

/// A memory line on a device: a limit in bytes that is never 0, or no limit.
///
/// In JSON it is the number of bytes, or `null`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Line(Option<NonZeroU64>);

impl Line {
    /// No limit.
    pub const NONE: Self = Self(None);

    /// A line at `limit` bytes.
    ///
    /// # Errors
    ///
    /// [`Error::EmptyLine`] where `limit` is 0.
    pub fn at(limit: Bytes) -> Result<Self, Error> {
        NonZeroU64::new(limit.get()).map(|limit| Self(Some(limit))).ok_or(Error::EmptyLine)
    }

    /// The most bytes that may be in use, if there is a limit.
    pub fn limit(self) -> Option<Bytes> {
        self.0.map(|limit| Bytes(limit.get()))
    }

    /// Whether `request` more bytes stay at or under the line while `used` are in use.
    pub fn admits(self, used: Bytes, request: Bytes) -> bool {
        self.limit().is_none_or(|limit| used.checked_add(request).is_some_and(|total| total <= limit))
    }
}

impl fmt::Display for Line {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.limit() {
            Some(limit) => limit.fmt(formatter),
            None => formatter.pad("none"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, total: Bytes, expect: Option<u64>) {
        let line = text.parse::<LineSpec>().unwrap().resolve(total).unwrap();
        assert_eq!(line.limit(), expect.map(Bytes), "{text}");
    }

    #[track_caller]
    fn check_refused(text: &str, expect: &str) {
        assert_eq!(text.parse::<LineSpec>().unwrap_err().to_string(), expect);
    }

    #[test]
    fn resolves_on_a_device() {
        check("none", Bytes(1000), None);
        check(" NONE ", Bytes(1000), None);
        check("90%", Bytes(1001), Some(900));
        check("100%", Bytes::MAX, Some(u64::MAX));
        check("512", Bytes(1000), Some(512));
        check("1K", Bytes(1000), Some(1000));
        assert!("1K".parse::<LineSpec>().unwrap().exceeds(Bytes(1000)));
        assert!(!"90%".parse::<LineSpec>().unwrap().exceeds(Bytes(1000)));
    }

    #[test]
    fn refuses_with_the_mend() {
        let mend = "write a size such as 3.5GiB, a percentage such as 90%, or none";
        for text in ["3.5GiBB", "", "off", "-5"] {
            check_refused(text, &format!("`{text}` is not a memory limit: {mend}"));
        }
        let empty = "a memory limit of 0 bytes leaves room for nothing: write a larger one, or none";
        check_refused("0", empty);
        check_refused("0.0GiB", empty);
        assert_eq!("1%".parse::<LineSpec>().unwrap().resolve(Bytes(99)), Err(Error::EmptyLine));
        assert_eq!(LineSpec::Size(Bytes::ZERO).resolve(Bytes(99)), Err(Error::EmptyLine));
    }

    #[test]
    fn reads_texts_and_whole_numbers() {
        let read = |json: &str| serde_json::from_str::<LineSpec>(json).map_err(|error| error.to_string());
        assert_eq!(read("\"3.5GiB\""), Ok(LineSpec::Size(Bytes(7 << 29))));
        assert_eq!(read("1025"), Ok(LineSpec::Size(Bytes(1025))));
        assert!(read("-5").unwrap_err().starts_with("`-5` is not a memory limit"));
        assert!(read("3.5").unwrap_err().starts_with("`3.5` has a fraction but no unit"));
        assert!(read("null").unwrap_err().contains("expected a memory limit: a size such as"));
        assert_eq!(serde_json::to_string(&LineSpec::Size(Bytes(7 << 29))).unwrap(), "\"3584MiB\"");
    }

    #[test]
    fn admits_up_to_the_line() {
        let line = Line::at(Bytes(100)).unwrap();
        assert!(line.admits(Bytes(60), Bytes(40)));
        assert!(!line.admits(Bytes(60), Bytes(41)));
        assert!(!line.admits(Bytes::MAX, Bytes::MAX));
        assert!(Line::NONE.admits(Bytes::MAX, Bytes::MAX));
    }

    #[test]
    fn a_line_in_json_is_never_zero() {
        assert_eq!(serde_json::to_string(&Line::NONE).unwrap(), "null");
        assert_eq!(serde_json::from_str::<Line>("7").unwrap(), Line::at(Bytes(7)).unwrap());
        assert!(serde_json::from_str::<Line>("0").is_err());
    }
}
