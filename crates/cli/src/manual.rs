//! `lowtide man`: a manual page for each command.

use std::fs;
use std::process::ExitCode;

use clap::CommandFactory;
use lowtide_args::{Lowtide, ManualArgs};

use crate::output::{Failure, report};

pub(crate) fn run(args: &ManualArgs) -> ExitCode {
    let failed = Failure::at(&args.out);
    let written = fs::create_dir_all(&args.out).and_then(|()| clap_mangen::generate_to(Lowtide::command(), &args.out));
    report(written.map_err(failed))
}
