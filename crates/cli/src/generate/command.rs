//! Whose data is written.

use std::process::ExitCode;

use lowtide_args::{Data, GenerateArgs};

use super::{films, scoring};
use crate::output::report;

/// Carries the command out, says what came of it and gives the exit code.
pub(crate) fn run(args: &GenerateArgs) -> ExitCode {
    report(match &args.data {
        Data::Scoring(args) => scoring::write(args),
        Data::Deblur(args) => films::write(args),
    })
}
