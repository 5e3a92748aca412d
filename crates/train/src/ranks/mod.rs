//! Several processes that train one model together, each on its own part of every step.
//!
//! All ranks run the same loop and take the same decisions, because they decide by the same figures: what only one of them
//! knows is exchanged in an agreement before it counts. Alone, all of this costs nothing.

mod failure;
mod shards;
mod shares;
mod spread;
mod team;

pub(crate) use failure::{OwnFailure, RankFailure};
pub(crate) use shards::{MomentId, MomentOrder, Shards, Way};
pub(crate) use shares::Shares;
pub(crate) use spread::spread_state;
pub(crate) use team::Agreed;
pub use team::{Fault, Passage, Team};
