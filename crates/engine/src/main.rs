//! `lowtide-engine`: the half of Lowtide that links LibTorch. People start it through `lowtide`, so it goes by that name.

use std::process::ExitCode;

use lowtide_program::Program;
use lowtide_workloads::CATALOGUE;

fn main() -> ExitCode {
    Program { name: "lowtide", version: env!("CARGO_PKG_VERSION"), catalogue: CATALOGUE }.run()
}
