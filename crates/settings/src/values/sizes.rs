//! Settings that are a number, or `auto`: samples computed at once, and pixels along the sides of a frame.

use std::fmt;

use lowtide_core::MicroBatch;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// The micro-batch that a run starts with: `auto` or a number of samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum MicroBatchChoice {
    /// The largest that is foreseen to fit.
    #[default]
    Auto,
    /// This many samples; never more than the batch.
    Samples(MicroBatch),
}

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

impl fmt::Display for MicroBatchChoice {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => formatter.pad("auto"),
            Self::Samples(samples) => samples.fmt(formatter),
        }
    }
}

impl Serialize for MicroBatchChoice {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Auto => serializer.serialize_str("auto"),
            Self::Samples(samples) => serializer.serialize_u32(samples.get()),
        }
    }
}

impl fmt::Display for TileChoice {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => formatter.pad("auto"),
            Self::Pixels(side) => side.fmt(formatter),
            Self::None => formatter.pad("null"),
        }
    }
}

impl Serialize for CropChoice {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Auto => serializer.serialize_str("auto"),
            Self::Pixels(side) => serializer.serialize_u32(*side),
            Self::Whole => serializer.serialize_none(),
        }
    }
}

impl Serialize for TileChoice {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Auto => serializer.serialize_str("auto"),
            Self::Pixels(side) => serializer.serialize_u32(*side),
            Self::None => serializer.serialize_none(),
        }
    }
}

impl<'de> Deserialize<'de> for MicroBatchChoice {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let number = |samples| MicroBatch::new(samples).map(Self::Samples);
        let expected = "auto or a whole number from 1 to train.batch";
        deserializer.deserialize_any(AutoOrNumber { auto: Self::Auto, number, null: None, expected })
    }
}

const PIXELS: &str = "auto, a number of pixels of 1 or more, or null";

impl<'de> Deserialize<'de> for CropChoice {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let (number, null) = (|side| (side > 0).then_some(Self::Pixels(side)), Some(Self::Whole));
        deserializer.deserialize_any(AutoOrNumber { auto: Self::Auto, number, null, expected: PIXELS })
    }
}

impl<'de> Deserialize<'de> for TileChoice {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let (number, null) = (|side| (side > 0).then_some(Self::Pixels(side)), Some(Self::None));
        deserializer.deserialize_any(AutoOrNumber { auto: Self::Auto, number, null, expected: PIXELS })
    }
}

/// What `auto`, a number and, where it is allowed, null stand for.
struct AutoOrNumber<T> {
    auto: T,
    number: fn(u32) -> Option<T>,
    null: Option<T>,
    expected: &'static str,
}

impl<T: Copy> de::Visitor<'_> for AutoOrNumber<T> {
    type Value = T;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.expected)
    }

    fn visit_unit<E: de::Error>(self) -> Result<T, E> {
        self.null.ok_or_else(|| E::invalid_type(de::Unexpected::Unit, &self))
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<T, E> {
        let is_auto = text.eq_ignore_ascii_case("auto");
        is_auto.then_some(self.auto).ok_or_else(|| E::invalid_value(de::Unexpected::Str(text), &self))
    }

    fn visit_u64<E: de::Error>(self, number: u64) -> Result<T, E> {
        let chosen = u32::try_from(number).ok().and_then(self.number);
        chosen.ok_or_else(|| E::invalid_value(de::Unexpected::Unsigned(number), &self))
    }
}
