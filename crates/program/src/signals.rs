//! Signals to a command, as flags that it looks at.

use std::fs;
use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use lowtide_train::Requests;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1, SIGXFSZ};
use signal_hook::flag;

/// What signals ask of a run. Called before anything that takes time: until then a signal ends the process.
pub(crate) fn requests() -> io::Result<Requests> {
    let requests = Requests { stop: stop_flag()?, ..Requests::default() };
    flag::register(SIGUSR1, Arc::clone(&requests.save))?;
    Ok(requests)
}

/// A flag that SIGINT, SIGTERM and SIGHUP set. A second SIGINT or SIGTERM ends the command at once; a second SIGHUP does
/// not, since a terminal that is closed may send several.
///
/// SIGHUP stays ignored where it was so before, as `nohup` does. A file that grows beyond what the system allows
/// (`ulimit -f`) is an error like any other from now on: SIGXFSZ would end the process.
fn stop_flag() -> io::Result<Arc<AtomicBool>> {
    let (stop, was_asked): (Arc<AtomicBool>, Arc<AtomicBool>) = Default::default();
    for signal in [SIGINT, SIGTERM] {
        flag::register_conditional_shutdown(signal, 128 + signal, Arc::clone(&was_asked))?;
        flag::register(signal, Arc::clone(&was_asked))?;
        flag::register(signal, Arc::clone(&stop))?;
    }
    if !is_ignored(SIGHUP) {
        flag::register(SIGHUP, Arc::clone(&stop))?;
    }
    // Its flag is looked at by nobody: that the signal is caught makes the write fail instead.
    flag::register(SIGXFSZ, Arc::default())?;
    Ok(stop)
}

/// Whether this process was started with a signal set to be ignored.
fn is_ignored(signal: i32) -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| u64::from_str_radix(line.strip_prefix("SigIgn:")?.trim(), 16).ok());
    mask.unwrap_or(0) >> (signal - 1) & 1 == 1
}
