//! How sure a reading is.

use serde::Serialize;

/// How sure it is that memory ran out, from the text alone.
///
/// Ordered from the least to the most sure; written out as its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(into = "f64")]
pub enum Certainty {
    /// One explanation among several: a bare `Killed`, exit status 137.
    Slight,
    /// As likely as not: a cuDNN status that also has other causes, a warning after which the engine often goes on.
    Possible,
    /// Nearly always memory, but the text does not say so outright.
    Likely,
    /// The text says so.
    Sure,
}

impl Certainty {
    /// The certainty as a number between 0 and 1.
    #[must_use]
    pub fn number(self) -> f64 {
        match self {
            Self::Slight => 0.25,
            Self::Possible => 0.5,
            Self::Likely => 0.8,
            Self::Sure => 0.98,
        }
    }
}

impl From<Certainty> for f64 {
    fn from(certainty: Certainty) -> Self {
        certainty.number()
    }
}
