//! What the same program asks for at another size (its batch, its length of text), from recordings at a few sizes.
//!
//! **What it does.** The requests of the recordings are paired in their order ([`align`]), each request gets a law of the size
//! ([`law`]), and the requests of the largest recording with the sizes of those laws go through the allocator: rounding and fragmentation at the
//! other size come out by themselves.
//!
//! **What holds it together.** A law that the recordings do not decide has a least and a greatest form. All three are replayed, and the
//! prediction has a bar.

mod align;
mod law;
mod laws;
mod multiprocessors;
mod pairing;
mod prediction;
mod program;
mod reduction;
mod sizes;
mod sums;

pub use pairing::Pairing;
pub use prediction::{Prediction, SizedWhatIf, Verdict};
pub use program::SizedRecording;
pub use sizes::Fit;
