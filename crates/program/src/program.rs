//! A program, from what was typed to its exit code.

use std::env;
use std::path::Path;
use std::process::ExitCode;

use lowtide_args::{ProgramArgs, ProgramCommand};
use lowtide_core::parse_printable;
use lowtide_train::Catalogue;

use crate::{eval, exit, output, train};

/// A program that trains what is in its catalogue.
///
/// # Examples
///
/// All that a `main` does which brings models of its own:
///
/// ```no_run
/// use std::process::ExitCode;
///
/// use lowtide_program::Program;
/// use lowtide_train::{Catalogue, Recipe};
///
/// fn run(recipes: &'static [Recipe]) -> ExitCode {
///     Program { name: "curves", version: env!("CARGO_PKG_VERSION"), catalogue: Catalogue(recipes) }.run()
/// }
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Program {
    /// What people type to start it, in help and hints.
    pub name: &'static str,
    /// What `--version` says.
    pub version: &'static str,
    /// The workloads that it has, at least one.
    pub catalogue: Catalogue,
}

impl Program {
    /// Does what was typed, from the arguments of the process on.
    ///
    /// Help and mistakes in arguments end the process.
    #[must_use = "it is the exit code of the process"]
    pub fn run(self) -> ExitCode {
        std::panic::set_hook(Box::new(output::report_panic));
        let workloads: Vec<&str> = self.catalogue.names().collect();
        let parse = |words| ProgramArgs::parse(self.name, self.version, &workloads, words);
        let typed = parse_printable(env::args_os(), parse).unwrap_or_else(|refusal| refusal.exit());
        let result = match typed.command {
            ProgramCommand::Train(args) => train::train(self, &args),
            ProgramCommand::Eval(args) => eval::eval(self, &args),
        };
        exit::report(self, result)
    }

    /// The words that go on with the run, or the series of runs, in a folder.
    pub(crate) fn resume_command(self, folder: &Path) -> String {
        format!("{} train --resume --out {}", self.name, folder.display())
    }
}
