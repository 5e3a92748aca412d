//! On what part of a frame, and in what tiles, a model of frames is evaluated.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// The part of a frame that is evaluated: `auto`, a number of pixels, or null.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum CropChoice {
    /// The crop that is trained on; whole frames where they are evaluated in tiles.
    #[default]
    Auto,
    /// This many pixels along each side, in the middle.
    Pixels(u32),
    /// Whole frames.
    Whole,
}

/// The tiles that frames are evaluated in: null, a number of pixels, or `auto`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum TileChoice {
    /// The largest that fits.
    Auto,
    /// This many pixels along each side, overlap included.
    Pixels(u32),
    /// No tiles: all at once.
    #[default]
    None,
}

const EXPECTED: &str = "auto, a number of pixels of 1 or more, or null";

impl fmt::Display for TileChoice {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => formatter.pad("auto"),
            Self::Pixels(side) => side.fmt(formatter),
            Self::None => formatter.pad("null"),
        }
    }
}

/// Both are written alike.
enum Written {
    Auto,
    Pixels(u32),
    Null,
}

impl Serialize for Written {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Auto => serializer.serialize_str("auto"),
            Self::Pixels(side) => serializer.serialize_u32(*side),
            Self::Null => serializer.serialize_none(),
        }
    }
}

impl Serialize for CropChoice {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let written = match *self {
            Self::Auto => Written::Auto,
            Self::Pixels(side) => Written::Pixels(side),
            Self::Whole => Written::Null,
        };
        written.serialize(serializer)
    }
}

impl Serialize for TileChoice {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let written = match *self {
            Self::Auto => Written::Auto,
            Self::Pixels(side) => Written::Pixels(side),
            Self::None => Written::Null,
        };
        written.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for CropChoice {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(match deserializer.deserialize_any(WrittenVisitor)? {
            Written::Auto => Self::Auto,
            Written::Pixels(side) => Self::Pixels(side),
            Written::Null => Self::Whole,
        })
    }
}

impl<'de> Deserialize<'de> for TileChoice {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(match deserializer.deserialize_any(WrittenVisitor)? {
            Written::Auto => Self::Auto,
            Written::Pixels(side) => Self::Pixels(side),
            Written::Null => Self::None,
        })
    }
}

struct WrittenVisitor;

impl de::Visitor<'_> for WrittenVisitor {
    type Value = Written;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(EXPECTED)
    }

    fn visit_unit<E: de::Error>(self) -> Result<Written, E> {
        Ok(Written::Null)
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Written, E> {
        if text.eq_ignore_ascii_case("auto") {
            return Ok(Written::Auto);
        }
        Err(E::invalid_value(de::Unexpected::Str(text), &self))
    }

    fn visit_u64<E: de::Error>(self, number: u64) -> Result<Written, E> {
        let side = u32::try_from(number).ok().filter(|side| *side > 0);
        side.map(Written::Pixels).ok_or_else(|| E::invalid_value(de::Unexpected::Unsigned(number), &self))
    }
}
