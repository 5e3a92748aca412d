//! How many samples are computed at once, as the user chose it.

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

impl<'de> Deserialize<'de> for MicroBatchChoice {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ChoiceVisitor)
    }
}

struct ChoiceVisitor;

impl de::Visitor<'_> for ChoiceVisitor {
    type Value = MicroBatchChoice;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("auto or a whole number from 1 to train.batch")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<MicroBatchChoice, E> {
        if text.eq_ignore_ascii_case("auto") {
            return Ok(MicroBatchChoice::Auto);
        }
        Err(E::invalid_value(de::Unexpected::Str(text), &self))
    }

    fn visit_u64<E: de::Error>(self, number: u64) -> Result<MicroBatchChoice, E> {
        let samples = u32::try_from(number).ok().and_then(MicroBatch::new);
        let samples = samples.ok_or_else(|| E::invalid_value(de::Unexpected::Unsigned(number), &self))?;
        Ok(MicroBatchChoice::Samples(samples))
    }
}
