//! A cause with its reasons.
//!
//! A cause is arithmetic over the figures of the message (`explain/cause/`), said with the figures it comes from; the
//! certainty follows the margin by which they say it, and where they say two things or nothing, each possibility is
//! named with what tells it from the others. What a message leaves over of the capacity is others' memory, since a
//! container does not see who they are. Inside one, a process is named among the others: the one that holds just a
//! little more than our allocator is ourselves (`cause/holders.rs`). Processes with numbers next to each other are
//! ranks of one job, which are never to be ended; where each holds no more than a context, they are part of the job's
//! own need. Others count before pieces: where they hold twice what is idle, expandable segments would not have helped.

use lowtide_core::Bytes;
use lowtide_oom::Oom;
use serde::Serialize;

use super::checkpoint::CheckpointWork;
use crate::own_heap::OwnHeap;
use crate::verdict::{Cause, Holder};

/// A cause with its reasons.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Judgement {
    pub(crate) cause: Cause,
    pub(crate) contributing: Vec<Cause>,
    pub(crate) certainty: f64,
    pub(crate) evidence: Vec<String>,
    /// What it may be, likeliest first, where the text does not decide.
    pub(crate) possibilities: Vec<Possibility>,
    /// What others hold on the device.
    pub(crate) others: Option<Bytes>,
    /// Whether that is what the figures leave over beyond a usual context, and nobody counted it.
    pub(crate) is_left_over: bool,
    /// What contexts of the job's other ranks hold, where the request would have fitted without them.
    pub(crate) rank_contexts: Option<Bytes>,
    /// What this process holds outside its allocator.
    pub(crate) outside: Option<Bytes>,
    pub(crate) holders: Vec<Holder>,
    /// Cards that the log shows unused, by the driver's numbers.
    pub(crate) free_cards: Vec<u32>,
    /// What was done with a whole state.
    pub(crate) checkpoint: Option<CheckpointWork>,
    /// The heap with a limit of its own that refused.
    pub(crate) heap: Option<OwnHeap>,
    /// What this process can have at most as things are.
    pub(crate) available: Option<Bytes>,
}

/// One of several explanations that a text leaves open.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Possibility {
    /// The cause it would be.
    pub cause: Cause,
    /// What it would be, as a sentence.
    pub text: String,
    /// What shows whether it is.
    pub test: String,
}

impl Possibility {
    pub(super) fn new(cause: Cause, text: &str, test: &str) -> Self {
        Self { cause, text: text.to_owned(), test: test.to_owned() }
    }
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

    /// The likeliest of several explanations, with a certainty that says that it is no more.
    pub(super) fn open(certainty: f64, evidence: Vec<String>, possibilities: Vec<Possibility>) -> Self {
        let cause = possibilities.first().map(|first| first.cause).unwrap_or_default();
        // That a device is full, or memory idle, the figures show; a limit or somebody else would be asserted.
        let is_shown = |cause: &Cause| matches!(cause, Cause::Need | Cause::Fragmentation);
        let others: Vec<Cause> =
            possibilities.iter().skip(1).map(|possibility| possibility.cause).filter(is_shown).collect();
        let judgement = Self { possibilities, ..Self::new(cause, certainty, evidence) };
        others.into_iter().fold(judgement, Self::with)
    }

    /// The same, where a step is estimated to need more than there is: then what is idle in pieces is the smaller part of it.
    pub(crate) fn against(mut self, peak: Bytes) -> Self {
        let is_full = matches!(self.cause, Cause::Need | Cause::Fragmentation);
        let Some(available) = self.available.filter(|available| is_full && peak > *available) else { return self };
        let known = format!("by its settings a step takes about {peak} (an estimate), and there are {available}");
        self.evidence.insert(self.evidence.len().min(1), known);
        let is_open = !self.possibilities.is_empty() || self.cause == Cause::Fragmentation;
        if is_open {
            self.certainty = 0.75;
            self.possibilities.clear();
        }
        if std::mem::replace(&mut self.cause, Cause::Need) == Cause::Fragmentation {
            self.contributing.retain(|cause| *cause != Cause::Need);
            return self.with(Cause::Fragmentation);
        }
        self
    }

    /// The same with another cause that made it worse.
    pub(crate) fn with(mut self, cause: Cause) -> Self {
        if cause != self.cause && !self.contributing.contains(&cause) {
            self.contributing.push(cause);
        }
        self
    }
}
