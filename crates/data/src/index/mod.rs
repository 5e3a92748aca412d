//! Where each sample of a data set lies, without reading any.
//!
//! An [`Index`] holds 16 bytes a sample and about 40 a file besides its name. It is made by opening every file once,
//! and saved, so that the next run opens one file instead of thousands. With it are saved size and time of change of
//! every file: an index that no longer fits its files is noticed and made anew.

mod error;
mod open;
mod saved;
mod table;

pub use error::Error;
pub use open::{Opened, Rebuilt, open_or_build};
pub use table::{Builder, FileStamp, Index, Place};
