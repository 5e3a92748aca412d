//! What is done every so many steps, or batches.

/// Whether something that is done `every` so often is done after this many.
pub(crate) fn is_due(every: Option<u64>, count: u64) -> bool {
    every.is_some_and(|every| every > 0 && count.is_multiple_of(every))
}
