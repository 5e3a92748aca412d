//! What `lowtide run` puts into the command's Pythons, by flags and variables.

use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::process::{Command, Stdio};

use clap::ValueEnum;
use lowtide_args::WatchMemory;
use lowtide_core::Bytes;
use lowtide_keep::{MemoryWatch, TrainerGuard, is_python_command};
use lowtide_trainers::Access;

use crate::output::Failure;

/// Says what the flag says, where it is not given.
const WATCH_MEMORY: &str = "LOWTIDE_WATCH_MEMORY";

/// What is written down when memory runs out: as it was asked for, else where the command is Python.
pub(super) fn memory_watch(
    given: Option<WatchMemory>,
    command: &[OsString],
    access: &Access<'_>,
) -> Result<MemoryWatch, Failure> {
    let given = match given {
        Some(given) => Some(given),
        None => by_variable(access)?,
    };
    Ok(match given {
        Some(WatchMemory::Off) => MemoryWatch::Off,
        Some(WatchMemory::Always) => MemoryWatch::Always,
        Some(WatchMemory::AfterCrash) => MemoryWatch::AfterCrash,
        None if is_python_command(command, access) => MemoryWatch::default(),
        None => MemoryWatch::Off,
    })
}

fn by_variable(access: &Access<'_>) -> Result<Option<WatchMemory>, Failure> {
    let Some(value) = (access.variable)(WATCH_MEMORY).filter(|value| !value.is_empty()) else { return Ok(None) };
    let value = value.to_string_lossy();
    let wrong = |_| {
        let hint = "it takes always, after-crash or off, as --watch-memory does";
        Failure::bad_input(format!("{WATCH_MEMORY} is `{value}`"), Some(hint.to_owned()))
    };
    match &*value {
        "0" | "no" | "false" => Ok(Some(WatchMemory::Off)),
        other => WatchMemory::from_str(other, true).map(Some).map_err(wrong),
    }
}

/// What finds out whether a Python has the package.
const HAS_PACKAGE: &str = "import importlib.util, sys; sys.exit(0 if importlib.util.find_spec('lowtide') else 9)";
const HAS_NONE: i32 = 9;
/// The least that PyTorch asks for at a time when a tensor is large.
const LEAST_RESERVE: Bytes = Bytes::from_mib(20);

/// The guard, where the command can take it.
pub(super) fn trainer_guard(command: &[OsString], access: &Access<'_>) -> Result<TrainerGuard, Failure> {
    needs_package("--inside", command, access)?;
    Ok(TrainerGuard::On)
}

/// The reserve, where the command can take it.
pub(super) fn host_reserve(bytes: Bytes, command: &[OsString], access: &Access<'_>) -> Result<Bytes, Failure> {
    needs_package("--reserve 4GiB", command, access)?;
    if bytes < LEAST_RESERVE {
        let text = format!("--reserve {bytes} is too little to be of use");
        return Err(Failure::bad_input(text, Some(format!("give at least {LEAST_RESERVE}, as --reserve 4GiB"))));
    }
    Ok(bytes)
}

/// Refuses a flag whose work the package does where there is none. A Python that is not named on the command line says so itself, later.
fn needs_package(flag: &str, command: &[OsString], access: &Access<'_>) -> Result<(), Failure> {
    let name = flag.split(' ').next().unwrap_or(flag);
    if !is_python_command(command, access) {
        let text = format!("{name} is for a command that is Python, and this one does not look like it");
        return Err(Failure::bad_input(text, Some(format!("lowtide run {flag} -- python train.py"))));
    }
    let is_python = |word: &&OsString| {
        let name = Path::new(word).file_name().and_then(OsStr::to_str).unwrap_or_default();
        name.starts_with("python") && !name.ends_with(".py")
    };
    let Some(python) = command.iter().find(is_python) else { return Ok(()) };
    let mut probe = Command::new(python);
    probe.args(["-c", HAS_PACKAGE]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    // What cannot be started is told by the start itself.
    let code = probe.status().ok().and_then(|status| status.code());
    if code == Some(HAS_NONE) {
        let python = python.display();
        let text = format!("{name} needs the package lowtide, which {python} has not");
        return Err(Failure::bad_input(text, Some(format!("{python} -m pip install . (in a clone of lowtide)"))));
    }
    Ok(())
}
