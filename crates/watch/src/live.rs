//! Where live figures of the machine join what a run writes of itself.
//!
//! This crate measures nothing. Whoever owns a [`Board`](crate::Board) hands it a [`Source`], which is asked at most twice a
//! second, with the process that trains where that is known. What it gives is shown as it is.

use std::fmt;

use lowtide_core::Bytes;
use serde::Serialize;

/// One figure of the machine, such as the memory of a card.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Gauge {
    /// What it is: `GPU 0`, `host`, `this run`.
    pub name: String,
    /// What is in use.
    pub used: Bytes,
    /// Of how much, where there is a bound.
    pub of: Option<Bytes>,
    /// More about it: `81 %, 54 °C`.
    pub note: Option<String>,
}

/// A sample of the machine.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Live {
    /// Figures with bars.
    pub gauges: Vec<Gauge>,
    /// Processes on the card, the largest first.
    pub processes: Vec<Gauge>,
}

/// Takes a sample of the machine on which the given process trains.
pub struct Source(Box<dyn FnMut(Option<u32>) -> Live + Send>);

impl Source {
    /// A source that asks a function.
    pub fn new(sample: impl FnMut(Option<u32>) -> Live + Send + 'static) -> Source {
        Source(Box::new(sample))
    }

    /// A source that has nothing to tell.
    #[must_use]
    pub fn none() -> Source {
        Source::new(|_| Live::default())
    }

    pub(crate) fn sample(&mut self, process: Option<u32>) -> Live {
        (self.0)(process)
    }
}

impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Source")
    }
}
