//! The page of metrics.
//!
//! Names follow the conventions of Prometheus: base units as suffix, `_total` for counters, shares from 0 to 1 as `_ratio`.
//! What is missing has no series, rather than a zero.

use super::exposition::Exposition;
use super::{machine, runs};
use crate::runs::Board;

/// The newest sample of the machine, and every run.
pub(crate) fn exposition(board: &Board) -> String {
    let mut page = Exposition::default();
    if let Some(sample) = board.sample() {
        machine::sample(&mut page, sample);
    }
    if let Some(detail) = board.detail() {
        machine::holders(&mut page, detail);
    }
    runs::runs(&mut page, board.runs());
    page.into_text()
}
