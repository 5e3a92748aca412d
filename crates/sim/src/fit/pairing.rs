//! Which request of one recording is which of another.

use serde::Serialize;

use super::align::longest_common;
use super::law::is_regular;
use super::program::{Request, SizedRecording};
use crate::SimError;

/// How well recordings pair.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Pairing {
    /// Requests of the recording that the prediction follows.
    pub requests: usize,
    /// Those whose sizes follow from others of the recordings.
    pub paired: usize,
    /// Those that only this recording has: at its size a library picked another kernel.
    pub unpaired: usize,
    /// Those that are paired and whose growth two recordings do not decide.
    pub undecided: usize,
    /// Those of them that shrink, or grow faster than the size, as where another kernel was picked.
    pub jumping: usize,
}

/// For each request of one recording its partner in another.
pub(super) fn partners(base: &SizedRecording, other: &SizedRecording) -> Result<Vec<Option<usize>>, SimError> {
    let sizes = (base.size, other.size);
    let (ours, theirs) = (&base.requests, &other.requests);
    let is_regular = |i: usize, j: usize| {
        is_alike(&ours[i], &theirs[j]) && is_regular((sizes.0, ours[i].bytes), (sizes.1, theirs[j].bytes))
    };
    let anchors = longest_common((ours.len(), theirs.len()), is_regular).unwrap_or_default();
    if anchors.len() * 2 < ours.len().min(theirs.len()) {
        return Err(SimError::Sizes {
            reason: format!(
                "the recordings at {} and {} are not of the same program: only {} of {} requests pair",
                sizes.1,
                sizes.0,
                anchors.len(),
                ours.len()
            ),
        });
    }
    let mut partners = vec![None; ours.len()];
    let mut last = (0, 0);
    for &(i, j) in anchors.iter().chain([&(ours.len(), theirs.len())]) {
        let gap = (&ours[last.0..i], &theirs[last.1..j]);
        for (a, b) in in_gap(gap, sizes) {
            partners[last.0 + a] = Some(last.1 + b);
        }
        if i < ours.len() {
            partners[i] = Some(j);
        }
        last = (i + 1, j + 1);
    }
    Ok(partners)
}

fn is_alike(one: &Request, other: &Request) -> bool {
    let has_same_stack = one.stack.is_none() || other.stack.is_none() || one.stack == other.stack;
    one.stream == other.stream && has_same_stack
}

/// Pairs what stands between two pairs: what grows, and no faster than the square of the size.
fn in_gap((ours, theirs): (&[Request], &[Request]), sizes: (u64, u64)) -> Vec<(usize, usize)> {
    let growth = sizes.0.max(sizes.1) as f64 / sizes.0.min(sizes.1) as f64;
    let may_be = |i: usize, j: usize| {
        let (small, large) = match sizes.0 > sizes.1 {
            true => (theirs[j].bytes, ours[i].bytes),
            false => (ours[i].bytes, theirs[j].bytes),
        };
        is_alike(&ours[i], &theirs[j]) && small <= large && large as f64 <= small as f64 * growth * growth
    };
    longest_common((ours.len(), theirs.len()), may_be).unwrap_or_default()
}
