//! Messages of every engine: what is read from them, what is not, and what no text can do.

mod any_bytes;
mod ends;
mod families;
mod figures;
mod kit;
mod labels;
mod look_alikes;
mod machine;
mod names;
mod programs;
mod scan;
mod watchers;
