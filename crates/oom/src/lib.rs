//! One reader for every engine's out-of-memory text.
//!
//! A message comes in, an [`Oom`] comes out: who ran out ([`Engine`]), of which memory ([`Place`]), how sure that is
//! ([`Certainty`]), and every figure the text gives, in bytes. Text that only looks like an out-of-memory error gives `None`, and
//! [`look_alike`] names what it is instead.
//!
//! ```
//! use lowtide_oom::{Place, read};
//!
//! let oom = read("CUDA out of memory. Tried to allocate 20.00 MiB (GPU 0; 11.17 GiB total capacity)").expect("an OOM");
//! assert_eq!(oom.place, Place::Device);
//! assert_eq!(oom.requested.map(|bytes| bytes.get()), Some(20 << 20));
//! ```
//!
//! What it leaves out: causes and advice (a message is read, not judged), the joining of several hits into one event (a traceback that
//! repeats its error gives several), and anything outside the text, such as the kernel log of a process that ended with status 137.
//!
//! Where to start: `scan.rs` walks a log and is the only way in, for one line as for a gigabyte; `family/order.rs` lists the families in the
//! order in which they are asked; the files beside it hold them, by kind, and `last_resort/` what none of them knows. `figure.rs` turns
//! `1.25 GiB` into bytes. `talk.rs` tells text that reports an error from text that talks about one, `names.rs` a status that is reported
//! from one that is only named, `source_code.rs` from the code that prints it, `shown.rs` an error of the program that writes from one
//! that it shows, `reference.rs` a report from what refers to errors in general, `article.rs` a post from a page about errors; `level.rs`
//! has the levels of loggers.

mod article;
mod family;
mod figure;
mod last_resort;
mod level;
mod line;
mod look_alike;
mod message;
mod names;
mod needles;
mod oom;
mod phrase;
mod read;
mod reference;
mod scan;
mod shown;
mod sieve;
mod source_code;
mod talk;

pub use article::{PageLikeness, page_likeness};
pub use last_resort::{is_of_oneself, scan_last_resort};
pub use look_alike::{LookAlike, ended_otherwise};
pub use message::without_prefix;
pub use oom::{Certainty, DeviceKind, Engine, Oom, Place, ProcessUse, Source};
pub use read::{look_alike, read};
pub use reference::is_reference;
pub use scan::{OomHit, Scan, scan, scan_post};
pub use shown::is_shown;
pub use sieve::{LateTable, Sieve};

/// Tests the example of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
