//! What opening a data set is told.

use lowtide_tensorfile::pages::PageCache;

use crate::feed::OnDamage;

/// How a data set is opened and read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct OpenOptions {
    /// What to do about a file that cannot be read. Default: stop.
    pub on_damage: OnDamage,
    /// What becomes of what was read in the page cache. Default: it is let go.
    pub page_cache: PageCache,
}
