//! Why memory ran out, by arithmetic over the figures of the message.
//!
//! Of a device with `capacity`, this process holds `allocated + reserved_unallocated` in its allocator and something
//! outside of it, others hold the rest, and what is left is `free`. A request fails because
//!
//! 1. a limit below the capacity stands in its way;
//! 2. others hold much more than what is idle, and without them it would have fitted;
//! 3. it would have fitted into `free + reserved_unallocated`, but not in one piece: fragmentation;
//! 4. it would have fitted had so much not gone past the allocator;
//! 5. or it is simply too much: need.
//!
//! Each is said with the figures it comes from, and the certainty follows the margin by which they say it. Where figures
//! are missing, or say two things, the likeliest is the cause, its certainty is low, and all are named with what tells
//! them apart.

mod allocator;
mod checkpoint;
mod figures;
mod holders;
mod host;
mod judgement;
mod source;
mod startup;

pub(crate) use allocator::private_pools;
pub use checkpoint::CheckpointWork;
pub(crate) use checkpoint::puts_optimizer_state;
pub(crate) use host::is_of_node;
pub(crate) use judgement::Judgement;
pub use judgement::Possibility;
pub(crate) use source::judge;
pub(crate) use startup::cache_need;
