//! Signals as this process was started with them, and the one that would end it for what a write can answer.
//!
//! A write past `ulimit -f` is an error in `lowtide`, because the signal for it is caught. It is not ignored: that
//! would be inherited, and a command of `lowtide run` is to end by it as it would alone.

use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use signal_hook::consts::SIGXFSZ;
use signal_hook::flag;

/// The signals that this process was started with set to be ignored, a bit each.
#[must_use]
pub fn ignored_signals() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| u64::from_str_radix(line.strip_prefix("SigIgn:")?.trim(), 16).ok());
    mask.unwrap_or(0)
}

/// Makes a write past the largest size that files may have (`ulimit -f`) an error, where it would end this process.
///
/// The signal is caught and not ignored: what is ignored stays so in every program that is started, and a command is to end
/// by it as it would alone.
///
/// # Errors
///
/// The system refuses.
pub fn survive_file_size_limit() -> io::Result<()> {
    if ignored_signals() >> (SIGXFSZ - 1) & 1 == 1 {
        return Ok(());
    }
    flag::register(SIGXFSZ, Arc::new(AtomicBool::new(false))).map(drop)
}
