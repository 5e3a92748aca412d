//! Files and folders that are there as a whole or not at all.
//!
//! **What it does.** [`write()`], [`write_with`] and [`write_folder`] write under a temporary name in the same folder, sync what
//! was written, rename it and sync the folder: a kill or a crash at any moment leaves the old one or the new one. What
//! fails removes what it had written. [`PartialFile`] is the same in steps, for writers that live longer than a call.
//! [`rewrite()`] is for a file that must stay the one it is, such as one with several names.
//!
//! [`HeldFolder`] finds a folder again that was moved while it was written to; [`open`] and [`read_text`] read files, and
//! nothing else that has the name of one.
//!
//! **What it leaves out.** Formats, and what a file means. It does not make the folder a file is in.
//!
//! **Where to start reading.** `partial_file.rs`, then `temporary_name.rs`.

mod error;
mod folder;
mod held_folder;
mod partial_file;
mod regular_file;
mod relocation;
mod rewrite;
mod temporary_name;
mod write;

pub use error::DiskError;
pub use folder::write_folder;
pub use held_folder::{FolderNews, HeldFolder};
pub use partial_file::PartialFile;
pub use regular_file::{ensure_regular, open, read_text};
pub use relocation::move_to;
pub use rewrite::rewrite;
pub use temporary_name::leftover_of;
pub use write::{write, write_with};

/// Tests the example of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
