//! How many multiprocessors the device has, which a snapshot does not say.

use super::pairing::partners;
use super::program::SizedRecording;
use super::reduction::{Seen, seen};
use super::sizes::Form;
use crate::SimError;

/// What PyTorch keeps for cuBLAS on a Hopper card.
const HOPPER_WORKSPACE: u64 = 32 << 20;
const HOPPER: Multiprocessors = Multiprocessors { likely: 132, low: 78, high: 144 };
/// Of any card.
const ANY: Multiprocessors = Multiprocessors { likely: 132, low: 20, high: Multiprocessors::MOST };

/// The multiprocessors of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Multiprocessors {
    likely: u64,
    low: u64,
    high: u64,
}

impl Multiprocessors {
    /// The most of any card.
    pub(super) const MOST: u64 = 192;

    /// By a buffer of a sum that did not grow with the size, or by the workspace of cuBLAS.
    pub(super) fn of(recorded: &[SizedRecording]) -> Result<Self, SimError> {
        let buffers = |one: &SizedRecording| -> Vec<Seen> {
            (0..one.requests.len()).filter_map(|at| seen(&one.requests, at)).collect()
        };
        let least = recorded.iter().flat_map(buffers).map(Seen::multiprocessors_at_least).max().unwrap_or_default();
        let mut full = Vec::new();
        for two in recorded.windows(2) {
            full.extend(saturated(&two[0], &two[1])?);
        }
        // Each is rounded up by its own grid.
        if let Some(count) = full.into_iter().filter(|count| *count >= least).min() {
            return Ok(Self { likely: count, low: count, high: count });
        }
        let kept = recorded.iter().flat_map(|one| &one.requests).filter(|request| request.death == u32::MAX);
        let is_hopper = kept.map(|request| request.bytes).any(|bytes| bytes == HOPPER_WORKSPACE);
        let Self { likely, low, high } = if is_hopper { HOPPER } else { ANY };
        Ok(Self { likely: likely.max(least), low: low.max(least), high: high.max(least) })
    }

    pub(super) const fn get(self, form: Form) -> u64 {
        match form {
            Form::Likely | Form::Draw(_) => self.likely,
            Form::Low => self.low,
            Form::High => self.high,
        }
    }
}

/// The multiprocessors that those sums show which had all blocks already.
fn saturated(small: &SizedRecording, large: &SizedRecording) -> Result<Vec<u64>, SimError> {
    let partners = partners(large, small)?;
    let growth = large.size as f64 / small.size as f64;
    let counts = partners.iter().enumerate().filter_map(|(at, partner)| {
        let seen = seen(&large.requests, at)?;
        let before = seen.blocks_of(small.requests[(*partner)?].bytes)?;
        let is_full = (seen.blocks as f64) < (before as f64 - 1.0) * growth;
        is_full.then(|| seen.multiprocessors())
    });
    Ok(counts.collect())
}
