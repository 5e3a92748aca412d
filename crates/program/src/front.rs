//! The front, `lowtide`, which shows a page beside a run.

use std::env;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, anyhow, ensure};

/// The name of the front.
const FRONT: &str = "lowtide";
/// By which the front is told what to turn into.
const ENGINE_VARIABLE: &str = "LOWTIDE_ENGINE";

/// Replaces this process by the front, which starts the page and turns into this program again, without `--watch`. Returns
/// only where that fails.
pub(crate) fn hand_over() -> anyhow::Error {
    match command() {
        Err(error) => error,
        Ok(mut command) => {
            let error = command.exec();
            let front = Path::new(command.get_program()).display();
            anyhow!("--watch needs the program `lowtide`, beside this one or on PATH: {front}: {error}")
        }
    }
}

fn command() -> anyhow::Result<Command> {
    let this = env::current_exe().context("cannot tell where this program is")?;
    // The front takes the flag out, so nobody comes here twice.
    let is_second = env::var_os(ENGINE_VARIABLE).is_some_and(|engine| Path::new(&engine) == this);
    ensure!(!is_second, "--watch needs the program {FRONT}, and the one of that name is another");
    let mut command = Command::new(front(&this));
    command.args(env::args_os().skip(1)).env(ENGINE_VARIABLE, this);
    Ok(command)
}

/// The front beside this program, else the one on the path.
fn front(this: &Path) -> PathBuf {
    let beside = this.with_file_name(FRONT);
    if beside != this && beside.is_file() { beside } else { FRONT.into() }
}
