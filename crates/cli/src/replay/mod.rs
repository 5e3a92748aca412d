//! `lowtide replay`.

mod command;
mod findings;
mod fit;
mod html;
mod layout;
mod oom;
mod pictures;
mod snapshot_file;
mod svg;
mod text;

pub(crate) use command::run;
pub(crate) use oom::{IsJson, explain_snapshot};
