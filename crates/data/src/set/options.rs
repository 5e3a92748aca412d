//! What opening and reading a data set is told.

use lowtide_tensorfile::DecodeLimit;
use lowtide_tensorfile::pages::PageCache;

use crate::feed::OnDamage;

/// How a data set is opened and read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct OpenOptions {
    /// What to do about a file that cannot be read. Default: stop.
    pub on_damage: OnDamage,
    /// What becomes of what was read in the page cache. Default: it is let go.
    pub page_cache: PageCache,
    /// What a file may decode to. Default: 256 MiB, or 64 times its size.
    pub decode_limit: DecodeLimit,
    /// When the index is saved. Default: whenever it was made anew.
    pub save_index: SaveIndex,
}

/// When an index that was made anew is saved.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SaveIndex {
    /// Whatever the reason was.
    #[default]
    Always,
    /// Never: it is of files from anywhere.
    Never,
    /// Where there was none: one that does not fit is left to whoever opens the folder next and tells about it.
    WhereNone,
}

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
