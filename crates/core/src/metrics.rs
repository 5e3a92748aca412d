//! Figures of an evaluation beyond the loss.

use std::fmt;

use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Figures over all samples of an evaluation, by name, in the order in which the workload names them.
///
/// In JSON it is a map. A figure that is not a finite number is written as `null` and read as NaN.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Metrics(Vec<(String, f64)>);

impl Metrics {
    /// Whether there are none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The figure of this name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<f64> {
        self.iter().find(|(other, _)| *other == name).map(|(_, value)| value)
    }

    /// Names and figures.
    pub fn iter(&self) -> impl Iterator<Item = (&str, f64)> {
        self.0.iter().map(|(name, value)| (name.as_str(), *value))
    }
}

impl FromIterator<(String, f64)> for Metrics {
    fn from_iter<I: IntoIterator<Item = (String, f64)>>(pairs: I) -> Self {
        Self(pairs.into_iter().collect())
    }
}

impl fmt::Display for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (name, value)) in self.iter().enumerate() {
            let comma = if index == 0 { "" } else { ", " };
            write!(f, "{comma}{name} {value:.4}")?;
        }
        Ok(())
    }
}

impl Serialize for Metrics {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.iter())
    }
}

impl<'de> Deserialize<'de> for Metrics {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(Pairs)
    }
}

/// Reads pairs one by one, because a map of the standard library would lose their order.
struct Pairs;

impl<'de> Visitor<'de> for Pairs {
    type Value = Metrics;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a map of names to numbers")
    }

    fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Metrics, M::Error> {
        let mut pairs = Vec::new();
        while let Some((name, value)) = map.next_entry::<String, Option<f64>>()? {
            pairs.push((name, value.unwrap_or(f64::NAN)));
        }
        Ok(Metrics(pairs))
    }
}
