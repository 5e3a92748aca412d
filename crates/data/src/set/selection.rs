//! Which samples of a file are read.

/// Which samples of a file are read, and how they lie in memory.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Selection<'a> {
    /// All, in one buffer.
    All,
    /// Some, in one buffer.
    Together(&'a [u64]),
    /// Some, each in a buffer of its own, so that each is given back by itself.
    Apart(&'a [u64]),
}
