//! Which of the answers of `lowtide data` is asked for.

use std::process::ExitCode;

use lowtide_args::DataArgs;
use lowtide_data::{Folder, pack};
use lowtide_tensorfile::DecodeLimit;

use super::{listing, shards, survey};
use crate::output::{Failure, report};

pub(crate) fn run(args: &DataArgs) -> ExitCode {
    report(look(args))
}

fn look(args: &DataArgs) -> Result<(), Failure> {
    if !args.path.is_dir() {
        return listing::list(args);
    }
    let folder = Folder::list(&args.path)?;
    if folder.shards.is_empty() && !pack::is_unfinished(&args.path) {
        return survey::survey(args, &folder);
    }
    shards::survey(args, &folder)
}

/// What a file may decode to; never more than the line of a run that is asked about.
pub(super) fn decode_limit(args: &DataArgs) -> DecodeLimit {
    DecodeLimit::asked(args.decode_limit).under(args.cost.host_line)
}
