//! Files that torch, numpy and others made, files that no reader should believe, and files that are written here.

mod any_bytes;
mod kit;
mod limits;
mod other_formats;
mod pickle_writer;
mod pt_writer;
mod refusals;
mod torch_save;
