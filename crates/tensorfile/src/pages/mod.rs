//! Pages of memory, and pages of files that the system holds: both are given back when they are not needed.
//!
//! For programs that read many files inside a memory limit; a program that reads one needs nothing of it.

mod memory;
mod page_cache;

pub use memory::{MAPPED_FROM, MOST_SPARE, Memory};
pub use page_cache::{PageCache, expect_random_reads, let_go};
