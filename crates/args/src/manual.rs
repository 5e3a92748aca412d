//! What `lowtide man` takes.

use std::path::PathBuf;

use clap::{Args, ValueHint};

/// Write the manual pages, one for each command.
///
/// For whoever installs lowtide: `man lowtide` finds them in a folder man1 of its path.
#[derive(Debug, Args)]
pub struct ManualArgs {
    /// The folder, made if need be; pages that are there are replaced.
    #[arg(value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub out: PathBuf,
}
