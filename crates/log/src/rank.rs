//! Ranks of a job in its log: which one wrote a line, which one the launcher saw fail first, and which only lost a peer.

use std::sync::LazyLock;

use aho_corasick::packed::{self, Searcher};
use aho_corasick::{AhoCorasick, Input, Match, Span};
use memchr::{memchr, memmem, memrchr};

use crate::line::split_rank;
use crate::number::leading_number;

/// What a rank says that waited for another, or talked to it, when that one was gone.
const LOST_PEER: [&str; 13] = [
    "Connection closed by peer",
    "Connection reset by peer",
    "onnection closed by remote peer",
    "Connection was likely closed",
    "ncclRemoteError",
    "remote process exited",
    "aught collective operation timeout",
    "Some NCCL operations have failed or timed out",
    "NCCL communicator was aborted",
    "Application timeout caused pair closure",
    "for recv operation to complete",
    "for send operation to complete",
    "Broken pipe",
];
static LOST: LazyLock<LostSearch> = LazyLock::new(LostSearch::new);

/// All that follows the first error of a log is searched for these phrases, so it must go at the speed of memory.
struct LostSearch {
    /// By wide registers, where the processor has them.
    packed: Option<Searcher>,
    automaton: AhoCorasick,
}

impl LostSearch {
    fn new() -> Self {
        let automaton = AhoCorasick::new(LOST_PEER).expect("a few short phrases");
        Self { packed: packed::Config::new().builder().extend(LOST_PEER).build(), automaton }
    }

    fn find(&self, text: &[u8], from: usize) -> Option<Match> {
        let span = Span { start: from, end: text.len() };
        match &self.packed {
            Some(packed) if span.len() >= packed.minimum_len() => packed.find_in(text, span),
            _ => self.automaton.find(Input::new(text).span(span)),
        }
    }
}

/// torchrun's title above the process that failed first.
const FIRST_FAILURE: &str = "Root Cause (first observed failure)";
/// How much of a line is looked at on either side of a phrase.
const LONGEST_LINE: usize = 4 << 10;
/// How far below that title the rank stands.
const BELOW_TITLE: usize = 600;

/// An error of a rank that lost a peer.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct LostPeer {
    /// Where its line begins in the text.
    pub start: usize,
    /// Which rank wrote it.
    pub rank: Option<u64>,
    /// The line, without the mark of its process.
    pub text: String,
}

/// The rank that wrote a line: `[rank3]: `, torchrun's `[default3]:`, `3: ` of `srun --label`, or a name within, as in
/// `[PG ID 0 Rank 3]` and `local_rank: 3`.
#[must_use]
pub fn rank(line: &str) -> Option<u64> {
    let (mark, rest) = split_rank(line);
    let digits = mark.trim_end_matches(|c: char| !c.is_ascii_digit());
    let number = &digits[digits.trim_end_matches(|c: char| c.is_ascii_digit()).len()..];
    number.parse().ok().or_else(|| ["Rank ", "local_rank: ", "[rank"].iter().find_map(|name| number_behind(rest, name)))
}

fn number_behind(text: &str, name: &str) -> Option<u64> {
    let at = text.find(name)? + name.len();
    leading_number(&text.as_bytes()[at..]).map(|(number, _)| number)
}

/// The rank that torchrun saw fail first, where a text has its summary.
#[must_use]
pub fn first_failed_rank(text: &[u8]) -> Option<u64> {
    // Forwards first, which is many times as fast.
    let first = memmem::find(text, FIRST_FAILURE.as_bytes())?;
    let at = first + memmem::rfind(&text[first..], FIRST_FAILURE.as_bytes())?;
    let below = &text[at..(at + BELOW_TITLE).min(text.len())];
    let below = String::from_utf8_lossy(below);
    let value = below.lines().find_map(|line| split_rank(line).1.trim_start().strip_prefix("rank"))?;
    let value = value.trim_start().strip_prefix(':')?.trim_start();
    leading_number(value.as_bytes()).map(|(number, _)| number)
}

/// The errors in a text of ranks that lost a peer, one for each line.
pub fn lost_peers(text: &[u8]) -> impl Iterator<Item = LostPeer> {
    let mut from = 0;
    std::iter::from_fn(move || {
        let found = LOST.find(text, from)?;
        let start = memrchr(b'\n', &text[..found.start()]).map_or(0, |newline| newline + 1);
        let end = memchr(b'\n', &text[found.end()..]).map_or(text.len(), |newline| found.end() + newline);
        // A line without end has its phrases near each other.
        let line = &text[start.max(found.start().saturating_sub(LONGEST_LINE))..end.min(found.end() + LONGEST_LINE)];
        let line = String::from_utf8_lossy(line);
        from = end;
        Some(LostPeer { start, rank: rank(&line), text: split_rank(&line).1.trim().to_owned() })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_of_lines() {
        for (line, expected) in [
            ("[rank3]: RuntimeError: no", Some(3)),
            ("[default12]:RuntimeError: no", Some(12)),
            ("7: RuntimeError: no", Some(7)),
            ("[E1028 ProcessGroupNCCL.cpp:607] [Rank 5] Watchdog caught collective operation timeout", Some(5)),
            ("[PG ID 0 PG GUID 0(default_pg) Rank 2] Timeout at NCCL work: 4", Some(2)),
            ("failed (exitcode: -9) local_rank: 1 (pid: 77) of binary: python", Some(1)),
            ("RuntimeError: no", None),
            ("Ranking 3 things", None),
        ] {
            assert_eq!(rank(line), expected, "{line}");
        }
    }

    #[test]
    fn the_launcher_names_the_first() {
        let summary = "train.py FAILED\n------\nFailures:\n[1]:\n  time      : 2026-01-02_03:04:05\n  rank      : 0 \
                       (local_rank: 0)\n------\nRoot Cause (first observed failure):\n[0]:\n  time      : \
                       2026-01-02_03:04:04\n  host      : a\n  rank      : 5 (local_rank: 1)\n  exitcode  : 1 (pid: 8)\n";
        assert_eq!(first_failed_rank(summary.as_bytes()), Some(5));
        assert_eq!(first_failed_rank(b"rank : 5"), None);
    }

    #[test]
    fn peers_that_are_lost() {
        let text = "[rank0]: RuntimeError: [gloo/transport/tcp/pair.cc:534] Connection closed by peer [::1]:7\nstep 3\n\
                    ncclRemoteError: A call failed possibly due to a network error or a remote process exited\n";
        let found: Vec<_> = lost_peers(text.as_bytes()).map(|lost| (lost.start, lost.rank)).collect();
        assert_eq!(found, [(0, Some(0)), (text.find("ncclRemote").unwrap(), None)]);
    }

    #[test]
    fn every_phrase_is_found_in_short_and_in_long_texts() {
        for phrase in LOST_PEER {
            for pad in [0, 8, 4096] {
                let text = format!("{}\n[rank2]: {phrase}\n", "x".repeat(pad));
                let found: Vec<_> = lost_peers(text.as_bytes()).collect();
                assert_eq!(found.len(), 1, "{phrase} behind {pad}");
                assert_eq!((found[0].start, found[0].rank, &*found[0].text), (pad + 1, Some(2), phrase));
            }
        }
    }
}
