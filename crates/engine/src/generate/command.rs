//! Whose data is written.

use std::process::ExitCode;

use clap::{Args, Subcommand};

use super::films::{self, FilmArgs};
use super::scoring;
use super::scoring_files::ScoringArgs;
use crate::exit;
use crate::output::to_stderr;

/// Write made-up training data of any size.
///
/// The samples are those that the workload makes up for itself, as files like those that people have.
#[derive(Debug, Args)]
#[command(disable_help_subcommand = true)]
pub(crate) struct GenerateArgs {
    /// Whose data it is.
    #[command(subcommand)]
    data: Data,
}

#[derive(Debug, Subcommand)]
enum Data {
    Scoring(ScoringArgs),
    Deblur(FilmArgs),
}

/// Carries the command out, says what came of it and gives the exit code.
pub(crate) fn run(args: &GenerateArgs) -> ExitCode {
    let written = match &args.data {
        Data::Scoring(args) => scoring::write(args),
        Data::Deblur(args) => films::write(args),
    };
    match written {
        Ok(exit) => exit::report(Ok(exit)),
        Err(failure) => {
            to_stderr(&format!("error: {}", failure.text));
            if let Some(hint) = failure.hint {
                to_stderr(&format!("hint: {hint}"));
            }
            ExitCode::from(2)
        }
    }
}
