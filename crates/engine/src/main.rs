//! `lowtide-engine`: the half of Lowtide that links LibTorch. People start it through `lowtide`.
//!
//! `args.rs` is what was typed, `train.rs` carries it out, `outlook.rs` is what a person sees meanwhile.

mod args;
mod exit;
mod outlook;
mod train;

use clap::Parser;

use crate::args::{Command, Engine};

fn main() -> std::process::ExitCode {
    let Engine { command } = Engine::parse();
    let code = match command {
        Command::Train(args) => exit::report(train::train(&args)),
    };
    // LibTorch's worker threads may still wind down; `exit` does not wait for their static objects in a bad order.
    code.into()
}
