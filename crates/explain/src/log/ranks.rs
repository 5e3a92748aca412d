//! Ranks that failed together: which ran out of memory first, and whose errors follow from that.

use std::collections::{HashSet, VecDeque};

use lowtide_log::{first_failed_rank, lost_peers};
use memchr::memchr_iter;
use serde::Serialize;

use super::Event;

/// How many errors of ranks that lost a peer are kept, one for each rank.
const MOST: usize = 64;
/// How much of a line is kept.
const LONGEST: usize = 200;

/// Which rank of a job failed first, and who followed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct RankErrors {
    /// The rank that ran out of memory first.
    pub first: u64,
    /// Whether the launcher says so; else it is the first in the log.
    pub by_launcher: bool,
    /// Other ranks that ran out of memory too.
    pub also_out_of_memory: Vec<u64>,
    /// Errors of other ranks that follow from it: they waited for a rank that was gone.
    pub consequences: Vec<RankError>,
}

/// An error of one rank.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct RankError {
    /// The rank, where the line names it.
    pub rank: Option<u64>,
    /// Line of the log, from 1.
    pub line: u64,
    /// The line, cut to a bounded length.
    pub text: String,
}

/// What a log says of ranks beside its out-of-memory errors.
#[derive(Debug, Default)]
pub(crate) struct RankNotes {
    lost: Vec<RankError>,
    first_failed: Option<u64>,
}

impl RankNotes {
    /// Takes a part of the log that begins on this line.
    pub(crate) fn note(&mut self, text: &[u8], line: u64) {
        self.first_failed = first_failed_rank(text).or(self.first_failed);
        for lost in lost_peers(text) {
            if self.lost.len() == MOST {
                return;
            }
            if self.lost.iter().any(|known| known.rank == lost.rank) {
                continue;
            }
            let above = memchr_iter(b'\n', &text[..lost.start]).count() as u64;
            let text = lost.text.chars().take(LONGEST).collect();
            self.lost.push(RankError { rank: lost.rank, line: line + above, text });
        }
    }

    /// Which of the events came first among those of ranks that failed together, and what followed.
    pub(crate) fn errors(&self, events: &VecDeque<Event>) -> Option<(usize, RankErrors)> {
        let together = last_together(events);
        let ranks: Vec<u64> = together.iter().map(|(_, rank)| *rank).collect();
        let by_launcher = self.first_failed.filter(|rank| ranks.contains(rank));
        let first = by_launcher.or(ranks.first().copied())?;
        let (index, _) = together.iter().find(|(_, rank)| *rank == first)?;
        let is_other = |error: &&RankError| error.rank.is_none_or(|rank| !ranks.contains(&rank));
        let consequences: Vec<RankError> = self.lost.iter().filter(is_other).cloned().collect();
        let also: Vec<u64> = ranks.iter().copied().filter(|rank| *rank != first).collect();
        if also.is_empty() && consequences.is_empty() && by_launcher.is_none() {
            return None;
        }
        let by_launcher = by_launcher.is_some();
        Some((*index, RankErrors { first, by_launcher, also_out_of_memory: also, consequences }))
    }
}

/// The ranks of the last events of a log in which none is named twice, each with the place of its event, the first first.
fn last_together(events: &VecDeque<Event>) -> Vec<(usize, u64)> {
    let mut known: HashSet<u64> = HashSet::new();
    let is_new = |event: &&Event| !event.ranks.is_empty() && event.ranks.iter().all(|rank| known.insert(*rank));
    let count = events.iter().rev().take_while(is_new).count();
    let places = events.len() - count..events.len();
    places.flat_map(|index| events[index].ranks.iter().map(move |rank| (index, *rank))).collect()
}
