//! Writes what TensorBoard reads: event files of scalars and text.
//!
//! **What it does.** A [`Writer`] makes one event file for each start of a run, in a folder that may hold those of
//! earlier starts, and never touches these: whatever a kill left behind stays as it is, and TensorBoard reads up to
//! there. A file has a largest size; a [`Scalar`] that comes too often is thinned, and what is kept of each span is
//! said by [`Retention`].
//!
//! **What it leaves out.** It has no clock and asks nobody for names of hosts; no images, no histograms, no reading.
//!
//! **Where to start reading.** [`Writer`]. `record` holds the framing of the file, `message` the few protocol buffer
//! messages, `thinning` the arithmetic of the bound.

mod error;
mod message;
mod record;
mod thinning;
mod writer;

pub use error::Error;
pub use thinning::Retention;
pub use writer::{DropCounts, Options, Scalar, Writer};
