//! Messages of every engine: what is read from them, what is not, and what no text can do.

mod any_bytes;
mod families;
mod figures;
mod labels;
mod look_alikes;
mod programs;
mod scan;
mod watchers;
