//! `lowtide completions`: what a shell needs to complete what is typed.

use std::process::ExitCode;

use clap::CommandFactory;
use clap_complete::aot::{self, generate};
use lowtide_args::{CompletionsArgs, Lowtide, Shell};

use crate::output::{print, report};

pub(crate) fn run(args: &CompletionsArgs) -> ExitCode {
    report(print(&script(args.shell)))
}

fn script(shell: Shell) -> String {
    let shell = match shell {
        Shell::Bash => aot::Shell::Bash,
        Shell::Zsh => aot::Shell::Zsh,
        Shell::Fish => aot::Shell::Fish,
    };
    let mut script = Vec::new();
    generate(shell, &mut Lowtide::command(), "lowtide", &mut script);
    String::from_utf8(script).expect("made of our own texts")
}
