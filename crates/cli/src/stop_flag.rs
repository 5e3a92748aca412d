//! Signals that ask a command to end, as a flag that it looks at.

use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use lowtide_keep::ignored_signals;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;

use crate::output::Failure;

/// A flag that SIGINT, SIGTERM and SIGHUP set. A second SIGINT or SIGTERM ends the command at once; a second SIGHUP does
/// not, since a terminal that is closed may send several. It stays ignored where it was so before, as `nohup` does.
pub(crate) fn stop_flag() -> Result<Arc<AtomicBool>, Failure> {
    registered().map_err(|error| Failure::bad_input(format!("cannot listen to signals: {error}"), None))
}

fn registered() -> io::Result<Arc<AtomicBool>> {
    let (stop, was_asked): (Arc<AtomicBool>, Arc<AtomicBool>) = Default::default();
    for signal in [SIGINT, SIGTERM] {
        flag::register_conditional_shutdown(signal, 128 + signal, Arc::clone(&was_asked))?;
        flag::register(signal, Arc::clone(&was_asked))?;
        flag::register(signal, Arc::clone(&stop))?;
    }
    if ignored_signals() >> (SIGHUP - 1) & 1 == 0 {
        flag::register(SIGHUP, Arc::clone(&stop))?;
    }
    Ok(stop)
}
