//! Samples in their order, read ahead by threads under one budget.
//!
//! The [order](crate::order) is known, so everything is decided before it happens: `lookahead.rs` walks ahead of the
//! consumer and asks the [cache](crate::policy::Cache) what is read, what is kept and what leaves; threads carry that
//! out. What is read depends on the order, the policy and the budget alone, never on threads or time.
//!
//! A thread reserves bytes before it reads, in the order of the lookahead. What that lets go of stays until the consumer
//! is past its last use, so a read waits for the consumer where there is no room, and the consumer never waits for a
//! read that waits for it: everything that is needed before a read was decided on, reserved and read before it.

mod lookahead;
mod options;
mod slot;
mod store;
mod stream;

pub use options::{FeedError, FeedOptions, FeedStats, OnDamage};
pub use store::Store;
pub use stream::{Feed, FeedSample, KeptSample, transient_bytes};
