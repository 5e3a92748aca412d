//! Several ranks, with gloo on the CPU, one thread each.

mod errors;
mod kit;
mod refusals;
mod samples;
mod shards;
mod signals;
mod torchrun;
mod uneven;
