//! The words a row ends with.

/// Whether `found` is within its goal. A goal that is missed is printed, never an error: machines differ.
pub(crate) fn verdict(found: f64, goal: f64) -> &'static str {
    if found <= goal { "ok" } else { "MISSED" }
}
