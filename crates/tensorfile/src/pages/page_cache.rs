//! Keeping the system from holding the data a second time.
//!
//! Advice only: where a system does not take it, reading works as well, and the page cache grows as far as it is let.

use std::fs::File;

/// What becomes of the pages of files that were read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum PageCache {
    /// They are let go, or the system would hold the data a second time, outside of every line.
    #[default]
    LetGo,
    /// They stay, as long as the system wants: for small data sets, and for measuring without a disk.
    Keep,
}

impl PageCache {
    /// Lets go of all pages that hold some of these bytes, unless they are to stay.
    pub fn after_reading(self, file: &File, offset: u64, len: u64) {
        if self == Self::LetGo {
            let_go(file, offset, len);
        }
    }
}

#[cfg(target_os = "linux")]
const PAGE: u64 = 4096;

/// Says that reads come from anywhere, so that nothing is read ahead that nobody asked for.
pub fn expect_random_reads(file: &File) {
    #[cfg(target_os = "linux")]
    let _ = rustix::fs::fadvise(file, 0, None, rustix::fs::Advice::Random);
    #[cfg(not(target_os = "linux"))]
    let _ = file;
}

/// Lets go of all pages that hold some of these bytes. Pages that are not on the disk yet stay.
pub fn let_go(file: &File, offset: u64, len: u64) {
    #[cfg(target_os = "linux")]
    {
        // Pages that are covered in part would stay.
        let start = offset / PAGE * PAGE;
        let len = offset.saturating_add(len).next_multiple_of(PAGE) - start;
        let _ = rustix::fs::fadvise(file, start, std::num::NonZeroU64::new(len), rustix::fs::Advice::DontNeed);
    }
    #[cfg(not(target_os = "linux"))]
    let _ = (file, offset, len);
}
