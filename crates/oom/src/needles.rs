//! The words that every message has at least one of, few and rare enough to search a log for at memory speed.
//!
//! They are chosen by their first bytes: the search looks at those in every position, so none opens with what every training log is full of
//! (`memory`, `alloc`, `step`, digits).

use std::sync::OnceLock;

use aho_corasick::packed::{Config, MatchKind, Searcher};
use aho_corasick::{AhoCorasick, Span};

/// The search, built once.
pub(crate) struct Needles {
    packed: Option<Searcher>,
    automaton: AhoCorasick,
}

impl Needles {
    /// The one search of this process.
    pub(crate) fn get() -> &'static Self {
        static NEEDLES: OnceLock<Needles> = OnceLock::new();
        NEEDLES.get_or_init(Self::new)
    }

    fn new() -> Self {
        Self {
            packed: Config::new().match_kind(MatchKind::LeftmostFirst).builder().extend(NEEDLES).build(),
            automaton: AhoCorasick::new(NEEDLES).expect("a short list of literals always builds"),
        }
    }

    /// The first needle at or after a position.
    pub(crate) fn find(&self, log: &[u8], from: usize) -> Option<usize> {
        let span = Span { start: from.min(log.len()), end: log.len() };
        match &self.packed {
            // The packed search has no path for less than its vector's width.
            Some(packed) if span.len() >= packed.minimum_len() => packed.find_in(log, span).map(|found| found.start()),
            _ => self.automaton.find(aho_corasick::Input::new(log).span(span)).map(|found| found.start()),
        }
    }
}

const NEEDLES: &[&str] = &[
    "ut of memory",
    "ut of Memory",
    "ut Of Memory",
    "UT OF MEMORY",
    "ut-of-memory",
    "ut of device m",
    "ut_of_memory",
    "OUT_OF_",
    "OfMemory",
    "OfDeviceMemory",
    "MemoryError",
    "MemoryAllocation",
    "bad_alloc",
    "bad alloc",
    "OOM when",
    "System OOM",
    "oom-",
    "oom_",
    "RESOURCE_EXH",
    "esource exhausted",
    "ResourceExh",
    "ALLOC",
    "AllocFailed",
    "CUDNN_STATUS_",
    "INSUFFICIENT_RES",
    "to allocate",
    "t allocate",
    "cating ",
    "to reserve ",
    "Allocation on device",
    "preemptively",
    "enough ",
    "nsufficient ",
    "valid buffer size",
    "cation of ",
    "oc of size",
    "requested bytes of",
    "y segment",
    "nable to ",
    "s_memory_error",
    "illed",
    "unexpectedly",
    "SIGKILL",
    "ignal 9",
    "xitcode",
    "ode 137",
    "ode: 137",
    "tatus 137",
    "xit 137",
    "ith 137",
    "ode -9",
    "ode: -9",
    "tatus -9",
    "ENOMEM",
    "Errno 12",
    "os error",
    "paging file",
    "WinError 8",
    "y exhausted",
    "xceed",
    "MEMLIMIT",
    "low on ",
    "g beyond ",
    "No space left",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(target_arch = "x86_64")]
    fn the_list_is_short_enough_for_the_packed_search() {
        assert!(Needles::get().packed.is_some());
    }
}
