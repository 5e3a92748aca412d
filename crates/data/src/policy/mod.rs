//! What to keep of the data that was read, when the future is known.
//!
//! A cache decides in the dark: it guesses from the past what will be needed again. A sampler knows.
//! [`Policy::Belady`] asks the [order](crate::order) when each unit is needed next, in this epoch or the one after,
//! and lets go of what is needed latest; no policy reads less where units are of one size. When every shard is used
//! once an epoch and a share c of them fits, it finds c of them there; [`Policy::Lru`], which throws out what was
//! just used because it will not come again this epoch, finds c + (1 - c) ln(1 - c): 15 % for c = 0.5.
//!
//! [`Cache`] decides and does nothing else: no reading, no threads, no clock.

mod cache;
mod future;
mod unit;

pub use cache::{Cache, Decision, Policy};
pub(crate) use unit::Parts;
pub use unit::{Unit, Units};
