//! The terminal that we run in, and the one that the command gets instead.
//!
//! Keys go to the command where both its input and its output are the terminal's. Else they may be for a pager after
//! the bar, and the command, in a session of its own, may read our terminal without being stopped for it. In the
//! background our terminal is left alone, and a command that waits for keys gets them when it is ours again; no signal tells
//! that, so the thread of the keys looks every 200 ms.

use std::cell::RefCell;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::mpsc::Sender;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::getpgrp;
use rustix::stdio::{stderr, stdin, stdout};
use rustix::termios::{
    LocalModes, OptionalActions, Termios, isatty, tcgetattr, tcgetpgrp, tcgetwinsize, tcsetattr, tcsetwinsize,
};

use crate::process::incident::Incident;

/// The bytes of Ctrl-C and Ctrl-Z.
const INTERRUPT: u8 = 0x03;
const SUSPEND: u8 = 0x1a;
/// How often a job in the background looks whether the terminal is its own again, which no signal tells.
const LOOK_AGAIN: Duration = Duration::from_millis(200);

/// The command's own terminal. Keys are let go before ours is put back.
pub(crate) struct Terminal {
    pub(crate) _keys: Option<Keys>,
    pub(crate) raw: Option<RawMode>,
    pub(crate) screen: File,
    pub(crate) shown: Streams,
}

/// Which of our streams are a terminal's.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Streams {
    pub(crate) stdin: bool,
    pub(crate) stdout: bool,
    pub(crate) stderr: bool,
}

impl Streams {
    /// Our streams, where the command should get a terminal of its own: where one of them is a terminal's that is ours
    /// to use, or all keys would be the command's. Else a job in the background would read the shell's keys.
    pub(crate) fn of_terminal() -> Option<Self> {
        let streams = Self { stdin: isatty(stdin()), stdout: isatty(stdout()), stderr: isatty(stderr()) };
        (is_ours(streams.shown()?) || streams.takes_keys()).then_some(streams)
    }

    /// Where the command's terminal is shown.
    pub(crate) fn shown(self) -> Option<BorrowedFd<'static>> {
        match self {
            Self { stdout: true, .. } => Some(stdout()),
            Self { stderr: true, .. } => Some(stderr()),
            Self { stdin: true, .. } => Some(stdin()),
            _ => None,
        }
    }

    /// Whether all keys are the command's. Where its output goes on to another program, they may be that one's, as with
    /// `less`, and the command reads our terminal itself if it wants to.
    pub(crate) const fn takes_keys(self) -> bool {
        self.stdin && self.stdout
    }
}

/// Whether we are in the foreground of a terminal. In the background, who changes or reads it is stopped.
fn is_ours(terminal: impl AsFd) -> bool {
    tcgetpgrp(terminal).is_ok_and(|group| group == getpgrp())
}

/// Our terminal while the command's own does the work of reading keys; put back when this goes, also by a panic.
#[derive(Debug)]
pub(crate) struct RawMode {
    /// Its settings before, while it is raw. In the background they are the shell's, and not what we would put back.
    before: RefCell<Option<Termios>>,
}

impl RawMode {
    /// Lets every key through, if the terminal is ours.
    pub(crate) fn enter() -> Self {
        let raw = Self { before: RefCell::new(None) };
        raw.again();
        raw
    }

    /// Lets every key through again, after [`RawMode::restore`], if the terminal is ours.
    pub(crate) fn again(&self) {
        let mut before = self.before.borrow_mut();
        if before.is_some() || !is_ours(stdin()) {
            return;
        }
        // A terminal that went away is noticed by whoever reads from it.
        let Ok(settings) = tcgetattr(stdin()) else { return };
        let mut raw = settings.clone();
        raw.make_raw();
        let _ = tcsetattr(stdin(), OptionalActions::Drain, &raw);
        *before = Some(settings);
    }

    /// Puts the terminal back as it was.
    pub(crate) fn restore(&self) {
        if let Some(before) = self.before.take() {
            let _ = tcsetattr(stdin(), OptionalActions::Drain, &before);
        }
    }
}

impl Drop for RawMode {
    fn drop(&mut self) {
        self.restore();
    }
}

/// Gives the command's terminal the size of ours.
pub(crate) fn copy_size(from: BorrowedFd<'_>, to: impl AsFd) {
    if let Ok(size) = tcgetwinsize(from) {
        let _ = tcsetwinsize(to, size);
    }
}

/// A thread that gives keys to the command's terminal.
#[derive(Debug)]
pub(crate) struct Keys {
    /// Closed to end the thread.
    wake: Option<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

impl Keys {
    pub(crate) fn pass(to: File, incidents: Sender<Incident>) -> io::Result<Self> {
        let (woken, wake) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
        let thread = thread::spawn(move || pass_keys(to, &woken, &incidents));
        Ok(Self { wake: Some(wake), thread: Some(thread) })
    }
}

impl Drop for Keys {
    fn drop(&mut self) {
        self.wake = None;
        if let Some(thread) = self.thread.take() {
            // It has nothing to tell.
            let _ = thread.join();
        }
    }
}

fn pass_keys(mut to: File, woken: &OwnedFd, incidents: &Sender<Incident>) {
    let mut keys = [0; 4096];
    let mut away = false;
    loop {
        if !is_ours(stdin()) {
            away = true;
            if is_woken(woken) {
                return;
            }
            continue;
        }
        if std::mem::take(&mut away) {
            // Nobody listens any more where the command has ended.
            let _ = incidents.send(Incident::Foreground);
        }
        let mut waiting = [PollFd::from_borrowed_fd(stdin(), PollFlags::IN), PollFd::new(woken, PollFlags::IN)];
        match poll(&mut waiting, None) {
            Ok(_) if !waiting[1].revents().is_empty() => return,
            Ok(_) if is_ours(stdin()) => {}
            // These keys are for the shell.
            Ok(_) | Err(rustix::io::Errno::INTR) => continue,
            Err(_) => return,
        }
        let size = match rustix::io::read(stdin(), &mut keys) {
            Ok(0) => return,
            Ok(size) => size,
            Err(rustix::io::Errno::INTR | rustix::io::Errno::AGAIN) => continue,
            Err(_) => return,
        };
        let keys = &keys[..size];
        // A program that reads keys itself, as an editor does, gets these as keys.
        let are_signals = tcgetattr(&to).is_ok_and(|settings| settings.local_modes.contains(LocalModes::ISIG));
        let count = |key: u8| if are_signals { keys.iter().filter(|it| **it == key).count() } else { 0 };
        // Told first, since the command may end by it at once.
        for _ in 0..count(INTERRUPT) {
            let _ = incidents.send(Incident::InterruptKey);
        }
        if to.write_all(keys).is_err() {
            return;
        }
        // Told last, since it stops us too: what is written after that would stop the command again.
        for _ in 0..count(SUSPEND) {
            let _ = incidents.send(Incident::SuspendKey);
        }
    }
}

/// Waits a little while, and tells whether the thread is to end.
fn is_woken(woken: &OwnedFd) -> bool {
    let time = Timespec::try_from(LOOK_AGAIN).expect("less than a second");
    let mut waiting = [PollFd::new(woken, PollFlags::IN)];
    poll(&mut waiting, Some(&time)).is_ok_and(|ready| ready > 0)
}
