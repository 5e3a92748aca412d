//! What wakes whoever attends to a command.

use rustix::process::{Pid, WaitStatus};

/// What happens while a command runs.
#[derive(Debug)]
pub(crate) enum Incident {
    /// A signal came to us.
    Signal(i32),
    /// Ctrl-C was typed in the command's own terminal, which tells the command.
    InterruptKey,
    /// Ctrl-Z was typed there; the command, alone in its session, cannot be stopped by it.
    SuspendKey,
    /// The terminal is ours again.
    Foreground,
    /// A process below us ended.
    Exit(Pid, WaitStatus),
    /// No process is left below us.
    NoneLeft,
    /// A stream was passed on to its end.
    StreamEnd,
}
