//! One start of a command: its processes, its output, its signals, until nothing of it is left.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use lowtide_sensors::processes_below;
use rustix::process::{
    Pid, Signal, WaitOptions, WaitStatus, getpgid, getpgrp, getpid, getppid, getsid, kill_process, kill_process_group,
};
use rustix::stdio::{stderr, stdout};
use signal_hook::consts::{SIGCONT, SIGHUP, SIGINT, SIGQUIT, SIGSTOP, SIGTERM, SIGTSTP, SIGUSR1, SIGUSR2, SIGWINCH};
use signal_hook::iterator::{Handle, Signals};

use crate::ending::Asked;
use crate::log::Log;
use crate::memory::{Seen, Watch};
use crate::passing::{PIPE, pass};
use crate::tail::Tail;
use crate::terminal::{Keys, Raw, Streams, copy_size};
use crate::{End, KeepError, Launch, Told};

/// How long processes may take to end after SIGKILL.
const UNKILLABLE: Duration = Duration::from_secs(5);
/// How often SIGKILL is sent again meanwhile, to those that were just started.
const KILL_AGAIN: Duration = Duration::from_millis(50);
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
    pub(crate) output_bytes: u64,
    pub(crate) log_cut: Option<String>,
    pub(crate) seconds: f64,
}

/// A command that was just started.
struct Started {
    process: Pid,
    streams: usize,
    terminal: Option<Terminal>,
}

/// The command's own terminal. Keys are let go before ours is put back.
struct Terminal {
    _keys: Option<Keys>,
    raw: Option<Raw>,
    screen: File,
    shown: Streams,
}

/// How far the end has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// The command runs.
    Running,
    /// It has ended well, and what it left may end by itself.
    Waiting,
    /// What is left was asked to end.
    Asked,
    /// What is left was killed.
    Killed,
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

    /// Starts a command and stays with it until no process of it is left.
    pub(crate) fn run(&mut self, launch: &Launch, log: &Path, told: &mut dyn FnMut(&Told)) -> Result<Ran, KeepError> {
        let log = Arc::new(Mutex::new(Log::new(File::create(log))));
        let begun = Instant::now();
        let started = self.start(launch, &log)?;
        self.reap();
        let watch = Watch::start(started.process.as_raw_nonzero().get().unsigned_abs());
        let (end, asked) = self.attend(&started, told)?;
        let seconds = begun.elapsed().as_secs_f64();
        drop(started);
        let seen = watch.finish();
        let log = log.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(Ran {
            end,
            asked,
            seen,
            tail: log.tail().clone(),
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
        let streams =
            [(child.stdout.take().map(OwnedFd::from), stdout()), (child.stderr.take().map(OwnedFd::from), stderr())];
        for (number, (from, to)) in streams.into_iter().enumerate() {
            let from = from.expect("a pipe was asked for");
            self.pass(number, from, to.try_clone_to_owned().map_err(no_stream)?, log);
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
        self.pass(0, screen.try_clone().map_err(no_stream)?, shown.try_clone_to_owned().map_err(no_stream)?, log);
        let apart =
            [(child.stdout.take().map(OwnedFd::from), stdout()), (child.stderr.take().map(OwnedFd::from), stderr())];
        for (from, to) in apart {
            let Some(from) = from else { continue };
            self.pass(count, from, to.try_clone_to_owned().map_err(no_stream)?, log);
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
    fn pass(&self, stream: usize, from: impl Into<OwnedFd>, to: OwnedFd, log: &Arc<Mutex<Log>>) {
        let (from, to): (OwnedFd, OwnedFd) = (from.into(), to);
        // A larger pipe takes fewer turns; where it is refused, the usual one will do.
        let _ = rustix::pipe::fcntl_setpipe_size(&from, PIPE);
        let (log, sender) = (log.clone(), self.sender.clone());
        thread::spawn(move || {
            pass(stream, File::from(from), File::from(to), &log);
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

    /// Stays with a command until it has ended, nothing of it is left, and all of its output is passed on.
    fn attend(&self, started: &Started, told: &mut dyn FnMut(&Told)) -> Result<(End, Asked), KeepError> {
        let mut attending = Attending {
            started,
            grace: self.grace,
            stage: Stage::Running,
            deadline: None,
            interrupts: 0,
            end: None,
            asked: Asked::No,
        };
        let (mut all_gone, mut passed) = (false, 0);
        while !all_gone || passed < started.streams {
            match attending.next(&self.events) {
                Some(Event::AllGone) => all_gone = true,
                Some(Event::Passed) => passed += 1,
                Some(Event::Waited(process, status)) => attending.waited(process, status),
                Some(Event::InterruptKey) => attending.interrupted(told),
                Some(Event::SuspendKey) => attending.suspend(),
                Some(Event::Foreground) => attending.take_keys(),
                Some(Event::Signal(signal)) if all_gone => {
                    // Whoever takes our output is slow, and somebody has enough of it.
                    if matches!(signal, SIGINT | SIGTERM | SIGHUP | SIGQUIT) {
                        attending.asked = Asked::Yes;
                        break;
                    }
                }
                Some(Event::Signal(signal)) => attending.signal(signal, told),
                None => attending.late(told)?,
            }
        }
        let end = attending.end.unwrap_or(End::Code(1));
        Ok((end, attending.asked))
    }
}

impl Drop for Supervisor {
    fn drop(&mut self) {
        self.signals.close();
    }
}

/// What is known while a command is attended to.
struct Attending<'a> {
    started: &'a Started,
    grace: Duration,
    stage: Stage,
    /// When patience ends.
    deadline: Option<Instant>,
    interrupts: u32,
    end: Option<End>,
    asked: Asked,
}

impl Attending<'_> {
    /// The next event, or `None` when patience ends first.
    fn next(&self, events: &Receiver<Event>) -> Option<Event> {
        let Some(deadline) = self.deadline else { return events.recv().ok() };
        events.recv_timeout(deadline.saturating_duration_since(Instant::now())).ok()
    }

    fn waited(&mut self, process: Pid, status: WaitStatus) {
        if process != self.started.process {
            return;
        }
        let end = match (status.exit_status(), status.terminating_signal()) {
            (Some(code), _) => End::Code(code),
            (None, Some(signal)) => End::Signal(signal),
            (None, None) => return,
        };
        self.end = Some(end);
        if self.stage == Stage::Killed {
            return;
        }
        if end == End::Code(0) && self.asked == Asked::No {
            self.stage = Stage::Waiting;
        } else {
            signal_all(Signal::TERM);
            self.stage = Stage::Asked;
        }
        self.deadline = Some(Instant::now() + self.grace);
    }

    fn signal(&mut self, signal: i32, told: &mut dyn FnMut(&Told)) {
        match signal {
            SIGWINCH => {
                if let Some(terminal) = &self.started.terminal
                    && let Some(shown) = terminal.shown.shown()
                {
                    copy_size(shown, &terminal.screen);
                }
            }
            SIGTSTP => self.suspend(),
            SIGCONT => {
                self.take_keys();
                self.send(SIGCONT);
            }
            SIGINT => {
                self.send_to_end(SIGINT);
                self.interrupted(told);
            }
            // Who is told to end or to save tells its own: data workers may die of it otherwise.
            SIGUSR1 | SIGUSR2 => self.send_to_first(signal),
            SIGTERM => {
                self.send_to_first(SIGTERM);
                self.send(SIGCONT);
                self.asked = Asked::Yes;
                self.hurry();
            }
            _ => {
                self.send_to_end(signal);
                self.asked = Asked::Yes;
                self.hurry();
            }
        }
    }

    /// Ctrl-C: the first leaves the command all the time it wants to save, the second a little, the third none.
    fn interrupted(&mut self, told: &mut dyn FnMut(&Told)) {
        self.asked = Asked::Yes;
        self.interrupts += 1;
        match self.interrupts {
            1 if self.stage == Stage::Running => {}
            1 | 2 => {
                told(&Told::Patience { grace: self.grace });
                self.hurry();
            }
            _ => self.kill(),
        }
    }

    fn hurry(&mut self) {
        let deadline = Instant::now() + self.grace;
        self.deadline = Some(self.deadline.map_or(deadline, |earlier| earlier.min(deadline)));
    }

    /// Patience has ended.
    fn late(&mut self, told: &mut dyn FnMut(&Told)) -> Result<(), KeepError> {
        match self.stage {
            Stage::Waiting => {
                signal_all(Signal::TERM);
                told(&Told::LeftBehind { processes: left().len() });
                self.stage = Stage::Asked;
                self.deadline = Some(Instant::now() + self.grace);
            }
            Stage::Running | Stage::Asked => {
                told(&Told::Killing { processes: left().len() });
                self.kill();
            }
            Stage::Killed => self.kill_on()?,
        }
        Ok(())
    }

    fn kill(&mut self) {
        self.stage = Stage::Killed;
        self.deadline = Some(Instant::now() + KILL_AGAIN);
        signal_all(Signal::KILL);
    }

    /// Kills what was started since, for a while.
    fn kill_on(&mut self) -> Result<(), KeepError> {
        let begun = Instant::now();
        loop {
            let pids = left();
            if pids.is_empty() {
                self.deadline = None;
                return Ok(());
            }
            if begun.elapsed() > UNKILLABLE {
                return Err(KeepError::Stuck { pids });
            }
            signal_all(Signal::KILL);
            thread::sleep(KILL_AGAIN);
        }
    }

    /// Sends a signal to the command and those of its group. A group that is gone needs none.
    fn send(&self, signal: i32) {
        if let Some(signal) = Signal::from_named_raw(signal) {
            let _ = kill_process_group(self.started.process, signal);
        }
    }

    /// Sends a signal to the process that was started, as whoever knows its number would.
    fn send_to_first(&self, signal: i32) {
        if self.end.is_none()
            && let Some(signal) = Signal::from_named_raw(signal)
        {
            let _ = kill_process(self.started.process, signal);
        }
    }

    /// Sends a signal of a terminal's that is to end the command, also where it is stopped, as whoever reads from a terminal in the
    /// background is.
    fn send_to_end(&self, signal: i32) {
        self.send(signal);
        self.send(SIGCONT);
    }

    /// Stops the command and ourselves, so that the shell takes over; SIGCONT comes when the shell wants us to go on.
    /// Without a shell that could say so, nothing stops.
    fn suspend(&self) {
        if !has_job_control() {
            return;
        }
        self.send(SIGSTOP);
        if let Some(raw) = self.raw() {
            raw.restore();
        }
        let _ = kill_process(getpid(), Signal::STOP);
    }

    /// Gives keys to the command again, if the terminal is ours.
    fn take_keys(&self) {
        if let Some(raw) = self.raw() {
            raw.again();
        }
    }

    fn raw(&self) -> Option<&Raw> {
        self.started.terminal.as_ref()?.raw.as_ref()
    }
}

/// Whether whoever started us is a shell that can continue us: in our session, in another group.
fn has_job_control() -> bool {
    let shell = getppid();
    let in_session = shell.is_some() && getsid(shell).ok() == getsid(None).ok();
    in_session && getpgid(shell).is_ok_and(|group| group != getpgrp())
}

/// Every process below us that still runs.
fn left() -> Vec<u32> {
    let all = processes_below(Path::new("/"), std::process::id());
    let lives = |pid: &u32| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X']))
    };
    all.into_iter().filter(lives).collect()
}

/// Sends a signal that is to end them to all processes below us, also to those that are stopped.
fn signal_all(signal: Signal) {
    for pid in left() {
        if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
            // It may have ended meanwhile.
            let _ = kill_process(pid, signal);
            let _ = kill_process(pid, Signal::CONT);
        }
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
