//! `lowtide-engine`: the half of Lowtide that links LibTorch. People start it through `lowtide`.
//!
//! `args.rs` is what was typed, `train.rs` and `eval.rs` carry it out, `session.rs` is the started engine with one run on it,
//! `engine_choice.rs` is how it is to run, `series.rs` is several of them, `output/console.rs` is what a person sees meanwhile, `curves.rs` is what TensorBoard sees.

#![expect(clippy::disallowed_methods, reason = "a program is what prints")]

mod args;
mod curves;
mod engine_choice;
mod eval;
mod exit;
mod output;
mod series;
mod session;
mod signals;
mod train;

use clap::Parser;
use lowtide_core::parse_printable;

use crate::args::{Command, Engine};

fn main() -> std::process::ExitCode {
    std::panic::set_hook(Box::new(output::report_panic));
    let typed = parse_printable(std::env::args_os(), Engine::try_parse_from);
    let Engine { command } = typed.unwrap_or_else(|refusal| refusal.exit());
    match command {
        Command::Train(args) => exit::report(train::train(&args)),
        Command::Eval(args) => exit::report(eval::eval(&args)),
    }
}
