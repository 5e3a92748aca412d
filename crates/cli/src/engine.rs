//! Turning into `lowtide-engine`.
//!
//! SIGUSR1 never ends a run. Until the engine listens it would, and LibTorch takes tenths of a second to load. The
//! front turns into a shell that ignores it and turns into the engine, because what is ignored stays so through `exec`.

use std::env;
use std::ffi::OsString;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use crate::output::{Failure, report};

/// Names the engine to start, instead of the one beside this program.
const ENGINE_VARIABLE: &str = "LOWTIDE_ENGINE";
const ENGINE: &str = "lowtide-engine";

/// How long threads of the engine spin for work before they sleep. The default of OpenMP's runtime is milliseconds, which
/// makes two runs on the same cores wait for each other; alone, this is as fast. Read when the engine is loaded.
const SPIN: (&str, &str) = ("GOMP_SPINCOUNT", "20000");
/// Variables by which a person chooses that for themselves.
const SPIN_CHOSEN: [&str; 2] = ["GOMP_SPINCOUNT", "OMP_WAIT_POLICY"];

/// SIGUSR1 asks a run to save and ends a process that does not know it yet, such as an engine whose libraries are being
/// loaded. What a shell ignores, the program it turns into ignores too, until it listens itself.
const SHELL: &str = "/bin/sh";
const IGNORING: &str = r#"trap '' USR1; exec "$0" "$@""#;

/// Replaces this process by the engine. Returns only where that fails.
pub(crate) fn become_engine(command: &str, args: &[OsString]) -> ExitCode {
    let engine = match find() {
        Ok(engine) => engine,
        Err(error) => {
            return report(Err(failure(&format!("cannot tell where this program is: {error}"), None)));
        }
    };
    if command == "train" && is_program(&engine) {
        // Returns where there is no shell, and then the engine is started without one.
        let _ = ignoring(&engine).arg(command).args(args).exec();
    }
    let error = engine_command(&engine).arg(command).args(args).exec();
    report(Err(unusable(&engine, &error)))
}

/// The engine as a process of its own that trains with these words.
pub(crate) fn training(args: &[OsString]) -> Result<Command, Failure> {
    let engine = find().map_err(|error| failure(&format!("cannot tell where this program is: {error}"), None))?;
    if !is_program(&engine) {
        return Err(unusable(&engine, &io::ErrorKind::NotFound.into()));
    }
    let mut command = if is_program(Path::new(SHELL)) { ignoring(&engine) } else { engine_command(&engine) };
    command.arg("train").args(args);
    Ok(command)
}

/// A shell that turns into the engine.
fn ignoring(engine: &Path) -> Command {
    let mut command = engine_command(Path::new(SHELL));
    command.args(["-c", IGNORING]).arg(engine);
    command
}

fn unusable(engine: &Path, error: &io::Error) -> Failure {
    match error.kind() {
        io::ErrorKind::NotFound => failure(&format!("the engine is not there: {}", engine.display()), Some(remedy())),
        _ => failure(&format!("{}: {error}", engine.display()), None),
    }
}

fn is_program(path: &Path) -> bool {
    path.metadata().is_ok_and(|metadata| metadata.is_file() && metadata.permissions().mode() & 0o111 != 0)
}

/// A program with the environment that the engine wants.
fn engine_command(program: &Path) -> Command {
    let mut command = Command::new(program);
    if SPIN_CHOSEN.iter().all(|variable| env::var_os(variable).is_none()) {
        command.env(SPIN.0, SPIN.1);
    }
    command
}

/// The engine that would be started.
pub(crate) fn find() -> io::Result<PathBuf> {
    if let Some(named) = env::var_os(ENGINE_VARIABLE) {
        return Ok(named.into());
    }
    // A link to this program is followed, so that the engine is found beside the real one.
    let here = env::current_exe()?.canonicalize()?;
    Ok(here.parent().unwrap_or(Path::new(".")).join(ENGINE))
}

fn remedy() -> &'static str {
    match env::var_os(ENGINE_VARIABLE) {
        Some(_) => "LOWTIDE_ENGINE names it; without that variable the one beside lowtide is taken",
        None => {
            "train and eval need it: `make build` in lowtide's sources builds it and fetches LibTorch, and \
             LOWTIDE_ENGINE names one elsewhere; all other commands work without"
        }
    }
}

fn failure(message: &str, hint: Option<&str>) -> Failure {
    Failure { text: message.to_owned(), hint: hint.map(str::to_owned), code: 1 }
}
