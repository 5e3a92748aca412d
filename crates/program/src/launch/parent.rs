//! The program that started several engines on this machine: they end with it.
//!
//! A program that is killed passes nothing on, and nobody else knows its engines. The system tells each of them by a signal, as if it had
//! been asked to end: the step under way is finished and saved.

use std::env;
use std::fs;

use rustix::process::{Pid, Signal, getppid, set_parent_process_death_signal};

/// The process that `lowtide train --ranks` is.
const PARENT_VARIABLE: &str = "LOWTIDE_RANKS_PARENT";

/// Whether this process may go on: it was started by somebody else, or by one who is still there. From now on the end of that one
/// is a SIGTERM.
pub(crate) fn is_there() -> bool {
    let parent = env::var(PARENT_VARIABLE).ok().and_then(|number| Pid::from_raw(number.parse().ok()?));
    // Asked for first, so that there is no moment in which nobody would tell.
    parent.is_none_or(|parent| {
        let _ = set_parent_process_death_signal(Some(Signal::TERM));
        getppid() == Some(parent) || is_running(parent)
    })
}

/// Whether a process is there and has not ended, for an engine that was started by way of another program.
fn is_running(process: Pid) -> bool {
    let status = fs::read_to_string(format!("/proc/{}/stat", process.as_raw_pid())).unwrap_or_default();
    // The name, which may hold anything, is in parentheses; the state is behind it.
    status.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X']))
}
