//! Why memory ran out, by arithmetic over the figures of the message.
//!
//! Of a device with `capacity`, this process holds `allocated + reserved_unallocated` in its allocator and something
//! outside of it, others hold the rest, and what is left is `free`. A request fails because
//!
//! 1. a limit below the capacity stands in its way;
//! 2. it would have fitted into `free + reserved_unallocated`, but not in one piece: fragmentation;
//! 3. it would have fitted had others not held what they hold, or had so much not gone past the allocator;
//! 4. or it is simply too much: need.
//!
//! Each is said with the figures it comes from. Where figures are missing the cause is the likeliest one and its
//! certainty low.

mod allocator;
mod figures;
mod judgement;
mod source;

pub(crate) use judgement::Judgement;
pub(crate) use source::judge;
