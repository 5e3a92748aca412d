//! The commands on data files: what people see of them, and what they are told of bad ones.

mod files;
mod kit;
mod pack;
mod shards;
