//! A command that was just started, with pipes or in a terminal of its own.
//!
//! A command has a group of its own, or, in a terminal, a session with a pseudo-terminal, so that a signal reaches it
//! once: by us. We are the subreaper of all it starts, so that what it leaves behind is ours to find and to end,
//! whatever session it fled to. Signals that were set to be ignored before us, as `nohup` does, stay so.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{self, Command, Stdio};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex};
use std::thread;

use rustix::process::Pid;
use rustix::stdio::{stderr, stdout};

use crate::output::relay::{Turns, relay};
use crate::output::tail::{PIPE, Stream};
use crate::output::transcript::Transcript;
use crate::process::incident::Incident;
use crate::process::terminal::{Keys, RawMode, Streams, Terminal, copy_size};
use crate::{KeepError, Launch};

/// A command that was just started.
pub(crate) struct Child {
    pub(crate) process: Pid,
    /// How many streams are passed on.
    pub(crate) streams: usize,
    pub(crate) terminal: Option<Terminal>,
}

/// Where a command's output goes, and who hears of its end.
#[derive(Debug, Clone)]
pub(crate) struct Outlet {
    pub(crate) transcript: Arc<Mutex<Transcript>>,
    pub(crate) incidents: Sender<Incident>,
}

impl Child {
    pub(crate) fn start(launch: &Launch, outlet: &Outlet) -> Result<Self, KeepError> {
        let [program, words @ ..] = launch.command.as_slice() else {
            return Err(KeepError::NotFound { program: String::new() });
        };
        match Streams::of_terminal() {
            Some(streams) => Self::in_terminal(program, words, launch, streams, outlet),
            None => Self::with_pipes(program, words, launch, outlet),
        }
    }

    fn with_pipes(program: &OsStr, words: &[OsString], launch: &Launch, outlet: &Outlet) -> Result<Self, KeepError> {
        let mut command = Command::new(program);
        command.args(words).envs(launch.environment.iter().cloned());
        // A group of its own: signals reach the command once, by us.
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
        let mut child = command.spawn().map_err(|error| refused(program, error))?;
        let process = Pid::from_child(&child);
        let streams = outlet.pass_pipes(&mut child)?;
        Ok(Self { process, streams, terminal: None })
    }

    fn in_terminal(
        program: &OsStr,
        words: &[OsString],
        launch: &Launch,
        streams: Streams,
        outlet: &Outlet,
    ) -> Result<Self, KeepError> {
        let shown = streams.shown().expect("one of them is a terminal's");
        let no_terminal = |error: pty_process::Error| match error {
            pty_process::Error::Io(error) => error,
            other => io::Error::other(other),
        };
        let system = |error| KeepError::System { what: "no pseudo-terminal can be had", error };
        let (screen, far_side) = pty_process::blocking::open().map_err(no_terminal).map_err(system)?;
        copy_size(shown, &screen);
        let mut command =
            pty_process::blocking::Command::new(program).args(words).envs(launch.environment.iter().cloned());
        if !streams.takes_keys() {
            command = command.stdin(Stdio::inherit());
        }
        if !streams.stdout {
            command = command.stdout(Stdio::piped());
        }
        if !streams.stderr {
            command = command.stderr(Stdio::piped());
        }
        let mut child = command.spawn(far_side).map_err(|error| refused(program, no_terminal(error)))?;
        let process = Pid::from_child(&child);
        let screen = File::from(OwnedFd::from(screen));
        let on_screen = match (streams.stdout, streams.stderr) {
            (true, false) => Stream::Output,
            (false, true) => Stream::Errors,
            _ => Stream::Screen,
        };
        outlet.pass(on_screen, screen.try_clone().map_err(no_stream)?.into(), shown, Arc::default())?;
        let piped = outlet.pass_pipes(&mut child)?;
        let (mut raw, mut keys) = (None, None);
        if streams.takes_keys() {
            raw = Some(RawMode::enter());
            let screen = screen.try_clone().map_err(no_stream)?;
            keys = Some(Keys::pass(screen, outlet.incidents.clone()).map_err(system)?);
        }
        let terminal = Some(Terminal { _keys: keys, raw, screen, shown: streams });
        Ok(Self { process, streams: 1 + piped, terminal })
    }
}

impl Outlet {
    /// Passes on the streams of a command that are pipes, and tells how many.
    fn pass_pipes(&self, child: &mut process::Child) -> Result<usize, KeepError> {
        let (output, errors) = (child.stdout.take().map(OwnedFd::from), child.stderr.take().map(OwnedFd::from));
        let turns: Arc<Turns> = Arc::default();
        let of_errors = if are_one_place(stdout(), stderr()) { turns.clone() } else { Arc::default() };
        let streams = [(Stream::Output, output, stdout(), turns), (Stream::Errors, errors, stderr(), of_errors)];
        let mut count = 0;
        for (stream, from, to, turns) in streams {
            let Some(from) = from else { continue };
            self.pass(stream, from, to, turns)?;
            count += 1;
        }
        Ok(count)
    }

    /// Passes a stream on in a thread of its own.
    fn pass(&self, stream: Stream, from: OwnedFd, to: BorrowedFd<'_>, turns: Arc<Turns>) -> Result<(), KeepError> {
        let to = File::from(to.try_clone_to_owned().map_err(no_stream)?);
        // A larger pipe takes fewer turns; where it is refused, the usual one will do.
        let _ = rustix::pipe::fcntl_setpipe_size(&from, PIPE);
        let Self { transcript, incidents } = self.clone();
        thread::spawn(move || {
            let from = File::from(from);
            let is_empty = || rustix::io::ioctl_fionread(&from).is_ok_and(|waiting| waiting == 0);
            relay(stream, &from, is_empty, to, &turns, &transcript);
            let _ = incidents.send(Incident::StreamEnd);
        });
        Ok(())
    }
}

/// Whether two streams of our own end in the same file, pipe or terminal.
fn are_one_place(one: BorrowedFd<'_>, other: BorrowedFd<'_>) -> bool {
    let place = |stream| rustix::fs::fstat(stream).map(|found| (found.st_dev, found.st_ino)).ok();
    place(one).is_some_and(|one| place(other) == Some(one))
}

fn no_stream(error: io::Error) -> KeepError {
    KeepError::System { what: "a stream cannot be passed on", error }
}

fn refused(program: &OsStr, error: io::Error) -> KeepError {
    let program = program.to_string_lossy().into_owned();
    match error.kind() {
        io::ErrorKind::NotFound => KeepError::NotFound { program },
        _ => KeepError::NotExecutable { program, error },
    }
}
