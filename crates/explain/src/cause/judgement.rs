//! A cause with its reasons.

use lowtide_core::Bytes;
use lowtide_oom::Oom;

use crate::verdict::{Cause, Holder};

/// A cause with its reasons.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Judgement {
    pub(crate) cause: Cause,
    pub(crate) contributing: Vec<Cause>,
    pub(crate) certainty: f64,
    pub(crate) evidence: Vec<String>,
    /// What others hold on the device.
    pub(crate) others: Option<Bytes>,
    /// What this process holds outside its allocator.
    pub(crate) outside: Option<Bytes>,
    pub(crate) holders: Vec<Holder>,
    /// What this process can have at most as things are.
    pub(crate) available: Option<Bytes>,
}

impl Judgement {
    /// A cause with what shows it.
    pub(super) fn new(cause: Cause, certainty: f64, evidence: Vec<String>) -> Self {
        Self { cause, certainty, evidence, ..Self::default() }
    }

    /// A cause with one reason, where there is no arithmetic to be done.
    pub(super) fn bare(oom: &Oom, cause: Cause, certainty: f64, text: &str) -> Self {
        let available = oom.limit.or(oom.capacity);
        Self { outside: oom.outside_allocator, available, ..Self::new(cause, certainty, vec![text.to_owned()]) }
    }

    /// The same with another cause that made it worse.
    pub(crate) fn with(mut self, cause: Cause) -> Self {
        if cause != self.cause && !self.contributing.contains(&cause) {
            self.contributing.push(cause);
        }
        self
    }
}
