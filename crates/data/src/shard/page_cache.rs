//! Keeping the system from holding the data a second time.
//!
//! Advice only: where a system does not take it, reading works as well, and the page cache grows as far as it is let.

use std::fs::File;

#[cfg(target_os = "linux")]
const PAGE: u64 = 4096;

/// Says that reads come from anywhere, so that nothing is read ahead that nobody asked for.
pub(super) fn expect_random_reads(file: &File) {
    #[cfg(target_os = "linux")]
    let _ = rustix::fs::fadvise(file, 0, None, rustix::fs::Advice::Random);
    #[cfg(not(target_os = "linux"))]
    let _ = file;
}

/// Lets go of all pages that hold some of these bytes. Pages that are not on the disk yet stay.
pub(super) fn let_go(file: &File, offset: u64, len: u64) {
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
