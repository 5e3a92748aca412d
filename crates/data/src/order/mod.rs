//! The order in which the samples of an epoch come: a pure function of a seed and an epoch.
//!
//! Samples lie in shards, and a shard is what is read in one go. A full shuffle of samples needs every shard all the
//! time; a [`Shuffle::Window`] takes a few shards at a time and shuffles their samples together, so that each shard
//! is read once. Nothing is stored but the number of samples of each shard: any place of any epoch is computed when
//! it is asked for, so a run goes on from a [`Cursor`] alone, and any number of threads see the same order.
//!
//! [`Order`] is the whole of it, [`EpochOrder`] one epoch of it, and [`window_for`] says how large a window may be.
//! [`Share`] is the part of it that one of several ranks takes, epoch by epoch, [`Stride`] where steps go on through epochs.

mod epoch;
mod layout;
mod permutation;
mod run;
mod share;
mod shuffle;
mod stride;

pub use epoch::EpochOrder;
pub use layout::{Layout, SampleId};
pub use permutation::Permutation;
pub use run::{Cursor, Order, Samples};
pub use share::{Share, StepRange, Tail};
pub use shuffle::{Shuffle, window_for};
pub use stride::Stride;
