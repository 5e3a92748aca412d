//! One start of a command: its process, its streams, and the events of both.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, WaitOptions, WaitStatus, getpid};
use rustix::stdio::{stderr, stdout};
use signal_hook::consts::{SIGCONT, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP, SIGUSR1, SIGUSR2, SIGWINCH};
use signal_hook::iterator::{Handle, Signals};

use crate::evidence::memory::{Seen, Watch};
use crate::keeper::ending::Asked;
use crate::output::log::Log;
use crate::output::passing::{PIPE, pass};
use crate::output::tail::{Stream, Tail};
use crate::process::attend::Attending;
use crate::process::terminal::{Keys, Raw, Streams, copy_size};
use crate::{End, KeepError, Launch, Told, ToldBatch};

const CAUGHT: [i32; 9] = [SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGWINCH, SIGTSTP, SIGCONT];

/// What happens while a command runs.
#[derive(Debug)]
pub(crate) enum Event {
    /// A signal came to us.
    Signal(i32),
    /// Ctrl-C was typed in the command's own terminal, which tells the command.
    InterruptKey,
    /// Ctrl-Z was typed there; the command, alone in its session, cannot be stopped by it.
    SuspendKey,
    /// The terminal is ours again.
    Foreground,
    /// A process below us ended.
    Waited(Pid, WaitStatus),
    /// No process is left below us.
    AllGone,
    /// A stream was passed on to its end.
    Passed,
}

/// Runs commands one after the other.
#[derive(Debug)]
pub(crate) struct Supervisor {
    events: Receiver<Event>,
    sender: Sender<Event>,
    signals: Handle,
    grace: Duration,
}

/// What became of a start.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) end: End,
    pub(crate) asked: Asked,
    pub(crate) seen: Seen,
    pub(crate) tail: Tail,
    pub(crate) told_batch: Option<ToldBatch>,
    pub(crate) output_bytes: u64,
    pub(crate) log_cut: Option<String>,
    pub(crate) seconds: f64,
}

/// A command that was just started.
pub(crate) struct Started {
    pub(crate) process: Pid,
    /// How many streams are passed on.
    pub(crate) streams: usize,
    pub(crate) terminal: Option<Terminal>,
}

/// The command's own terminal. Keys are let go before ours is put back.
pub(crate) struct Terminal {
    _keys: Option<Keys>,
    pub(crate) raw: Option<Raw>,
    pub(crate) screen: File,
    pub(crate) shown: Streams,
}

impl Supervisor {
    /// Takes over the signals of this process, and all processes that the command may leave behind.
    pub(crate) fn new(grace: Duration) -> Result<Self, KeepError> {
        let system = |what| move |error| KeepError::System { what, error };
        rustix::process::set_child_subreaper(Some(getpid()))
            .map_err(io::Error::from)
            .map_err(system("processes left behind cannot be taken over"))?;
        let (sender, events) = mpsc::channel();
        // What was set to be ignored, as `nohup` does, stays so, for the command too.
        let ignored = ignored_signals();
        let caught = CAUGHT.iter().filter(|signal| ignored >> (**signal - 1) & 1 == 0);
        let mut signals = Signals::new(caught).map_err(system("signals cannot be caught"))?;
        let handle = signals.handle();
        let to = sender.clone();
        thread::spawn(move || signals.forever().take_while(|signal| to.send(Event::Signal(*signal)).is_ok()).count());
        Ok(Self { events, sender, signals: handle, grace })
    }

    /// Whether somebody wants an end, while no command is running.
    pub(crate) fn is_told_to_end(&self) -> bool {
        let ends = |event: Event| match event {
            Event::InterruptKey => true,
            Event::Signal(signal) => matches!(signal, SIGINT | SIGTERM | SIGHUP | SIGQUIT),
            _ => false,
        };
        self.events.try_iter().any(ends)
    }

    /// Starts a command and stays with it until no process of it is left.
    pub(crate) fn run(
        &mut self,
        launch: &Launch,
        log: io::Result<File>,
        told: &mut dyn FnMut(&Told),
    ) -> Result<Ran, KeepError> {
        let log = Arc::new(Mutex::new(Log::new(log)));
        let begun = Instant::now();
        let started = self.start(launch, &log)?;
        self.reap();
        let watch = Watch::start(started.process.as_raw_nonzero().get().unsigned_abs());
        let (end, asked) = Attending::new(&started, self.grace).attend(&self.events, told)?;
        let seconds = begun.elapsed().as_secs_f64();
        drop(started);
        let seen = watch.finish();
        let log = log.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(Ran {
            end,
            asked,
            seen,
            tail: log.tail().clone(),
            told_batch: log.told_batch().cloned(),
            output_bytes: log.bytes(),
            log_cut: log.refused().map(ToString::to_string),
            seconds,
        })
    }

    fn start(&self, launch: &Launch, log: &Arc<Mutex<Log>>) -> Result<Started, KeepError> {
        let [program, words @ ..] = launch.command.as_slice() else {
            return Err(KeepError::NotFound { program: String::new() });
        };
        match Streams::of_terminal() {
            Some(streams) => self.start_in_terminal(program, words, launch, streams, log),
            None => self.start_with_pipes(program, words, launch, log),
        }
    }

    fn start_with_pipes(
        &self,
        program: &OsString,
        words: &[OsString],
        launch: &Launch,
        log: &Arc<Mutex<Log>>,
    ) -> Result<Started, KeepError> {
        let mut command = Command::new(program);
        command.args(words).envs(launch.environment.iter().cloned());
        // A group of its own: signals reach the command once, by us.
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
        let mut child = command.spawn().map_err(|error| refused(program, error))?;
        let process = Pid::from_child(&child);
        let streams = [
            (Stream::Output, child.stdout.take().map(OwnedFd::from), stdout()),
            (Stream::Errors, child.stderr.take().map(OwnedFd::from), stderr()),
        ];
        for (stream, from, to) in streams {
            let from = from.expect("a pipe was asked for");
            self.pass(stream, from, to.try_clone_to_owned().map_err(no_stream)?, log);
        }
        Ok(Started { process, streams: 2, terminal: None })
    }

    fn start_in_terminal(
        &self,
        program: &OsString,
        words: &[OsString],
        launch: &Launch,
        streams: Streams,
        log: &Arc<Mutex<Log>>,
    ) -> Result<Started, KeepError> {
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
        let mut count = 1;
        let on_screen = match (streams.stdout, streams.stderr) {
            (true, false) => Stream::Output,
            (false, true) => Stream::Errors,
            _ => Stream::Screen,
        };
        self.pass(
            on_screen,
            screen.try_clone().map_err(no_stream)?,
            shown.try_clone_to_owned().map_err(no_stream)?,
            log,
        );
        let apart = [
            (Stream::Output, child.stdout.take().map(OwnedFd::from), stdout()),
            (Stream::Errors, child.stderr.take().map(OwnedFd::from), stderr()),
        ];
        for (stream, from, to) in apart {
            let Some(from) = from else { continue };
            self.pass(stream, from, to.try_clone_to_owned().map_err(no_stream)?, log);
            count += 1;
        }
        let (mut raw, mut keys) = (None, None);
        if streams.takes_keys() {
            raw = Some(Raw::enter().map_err(system)?);
            keys = Some(Keys::pass(screen.try_clone().map_err(no_stream)?, self.sender.clone()).map_err(system)?);
        }
        let terminal = Some(Terminal { _keys: keys, raw, screen, shown: streams });
        Ok(Started { process, streams: count, terminal })
    }

    /// Passes a stream on in a thread of its own.
    fn pass(&self, stream: Stream, from: impl Into<OwnedFd>, to: OwnedFd, log: &Arc<Mutex<Log>>) {
        let (from, to): (OwnedFd, OwnedFd) = (from.into(), to);
        // A larger pipe takes fewer turns; where it is refused, the usual one will do.
        let _ = rustix::pipe::fcntl_setpipe_size(&from, PIPE);
        let (log, sender) = (log.clone(), self.sender.clone());
        thread::spawn(move || {
            let from = File::from(from);
            let is_empty = || rustix::io::ioctl_fionread(&from).is_ok_and(|waiting| waiting == 0);
            pass(stream, &from, is_empty, File::from(to), &log);
            let _ = sender.send(Event::Passed);
        });
    }

    /// Waits for every process below us in a thread, until there is none.
    fn reap(&self) {
        let sender = self.sender.clone();
        thread::spawn(move || {
            loop {
                let event = match rustix::process::wait(WaitOptions::empty()) {
                    Ok(Some((process, status))) => Event::Waited(process, status),
                    Ok(None) | Err(rustix::io::Errno::INTR) => continue,
                    Err(_) => Event::AllGone,
                };
                let gone = matches!(event, Event::AllGone);
                if sender.send(event).is_err() || gone {
                    return;
                }
            }
        });
    }
}

impl Drop for Supervisor {
    fn drop(&mut self) {
        self.signals.close();
    }
}

/// The signals that this process was started with set to be ignored, a bit each.
fn ignored_signals() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| u64::from_str_radix(line.strip_prefix("SigIgn:")?.trim(), 16).ok());
    mask.unwrap_or(0)
}

fn no_stream(error: io::Error) -> KeepError {
    KeepError::System { what: "a stream cannot be passed on", error }
}

fn refused(program: &OsString, error: io::Error) -> KeepError {
    let program = program.to_string_lossy().into_owned();
    match error.kind() {
        io::ErrorKind::NotFound => KeepError::NotFound { program },
        _ => KeepError::NotExecutable { program, error },
    }
}
