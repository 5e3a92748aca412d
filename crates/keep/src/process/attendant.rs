//! Stays with a command while it runs: what signals, keys and patience do to it, until no process of it is left.

use std::path::Path;
use std::sync::mpsc::Receiver;
use std::thread;
use std::time::{Duration, Instant};

use lowtide_sensors::processes_below;
use rustix::process::{
    Pid, Signal, WaitStatus, getpgid, getpgrp, getpid, getppid, getsid, kill_process, kill_process_group,
};
use signal_hook::consts::{SIGCONT, SIGHUP, SIGINT, SIGQUIT, SIGSTOP, SIGTERM, SIGTSTP, SIGUSR1, SIGUSR2, SIGWINCH};

use crate::process::child::Child;
use crate::process::incident::Incident;
use crate::process::terminal::{RawMode, copy_size};
use crate::{End, KeepError, Notice};

/// How long processes may take to end after SIGKILL.
const UNKILLABLE: Duration = Duration::from_secs(5);
/// How often SIGKILL is sent again meanwhile, to those that were just started.
const KILL_AGAIN: Duration = Duration::from_millis(50);

/// Signals by which people and schedulers tell a command to end.
pub(crate) const ENDS: [i32; 4] = [SIGINT, SIGTERM, SIGHUP, SIGQUIT];
/// Within this time the same signal is the same order: `timeout` sends it to a process and to its group.
const ONE_ORDER: Duration = Duration::from_secs(1);

/// How long processes may take to end when they are told to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Grace {
    /// As the user says it, from the first order to end on.
    Given(Duration),
    /// A little from the second order on. After the first one all the time they want: saving may take minutes, and whoever
    /// sends SIGTERM has a time of its own and sends SIGKILL then.
    Usual,
}

impl Grace {
    /// What processes have that are to end soon.
    #[must_use]
    pub const fn time(self) -> Duration {
        match self {
            Self::Given(time) => time,
            Self::Usual => Duration::from_secs(10),
        }
    }
}

/// Whether somebody told the command to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Interruption {
    Requested,
    None,
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

/// What is known while a command is attended to.
pub(crate) struct Attendant<'a> {
    child: &'a Child,
    grace: Grace,
    stage: Stage,
    /// When patience ends.
    deadline: Option<Instant>,
    interrupts: u32,
    /// Signals other than Ctrl-C's that are to end the command, and when each came first.
    orders: Vec<(i32, Instant)>,
    /// Whether it was said that the command is killed soon.
    is_warned: bool,
    end: Option<End>,
    interruption: Interruption,
}

impl<'a> Attendant<'a> {
    /// Stays with a command until it has ended, nothing of it is left, and all of its output is passed on.
    pub(crate) fn attend(
        child: &'a Child,
        grace: Grace,
        incidents: &Receiver<Incident>,
        notify: &mut dyn FnMut(&Notice),
    ) -> Result<(End, Interruption), KeepError> {
        let mut attendant = Self {
            child,
            grace,
            stage: Stage::Running,
            deadline: None,
            interrupts: 0,
            orders: Vec::new(),
            is_warned: false,
            end: None,
            interruption: Interruption::None,
        };
        let (mut all_gone, mut passed) = (false, 0);
        while !all_gone || passed < child.streams {
            match attendant.next(incidents) {
                Some(Incident::NoneLeft) => {
                    all_gone = true;
                    attendant.deadline = None;
                }
                Some(Incident::StreamEnd) => passed += 1,
                Some(Incident::Exit(process, status)) => attendant.waited(process, status, notify),
                Some(Incident::InterruptKey) => attendant.interrupted(notify),
                Some(Incident::SuspendKey) => attendant.suspend(),
                Some(Incident::Foreground) => attendant.take_keys(),
                Some(Incident::Signal(signal)) if all_gone => {
                    // Whoever takes our output is slow, and somebody has enough of it.
                    if ENDS.contains(&signal) {
                        attendant.interruption = Interruption::Requested;
                        break;
                    }
                }
                Some(Incident::Signal(signal)) => attendant.signal(signal, notify),
                None => attendant.late(notify)?,
            }
        }
        Ok((attendant.end.unwrap_or(End::Code(1)), attendant.interruption))
    }

    /// The next incident, or `None` when patience ends first.
    fn next(&self, incidents: &Receiver<Incident>) -> Option<Incident> {
        let Some(deadline) = self.deadline else { return incidents.recv().ok() };
        incidents.recv_timeout(deadline.saturating_duration_since(Instant::now())).ok()
    }

    fn waited(&mut self, process: Pid, status: WaitStatus, notify: &mut dyn FnMut(&Notice)) {
        if process != self.child.process {
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
        if end == End::Code(0) && self.interruption == Interruption::None {
            self.stage = Stage::Waiting;
        } else {
            signal_all(Signal::TERM);
            self.stage = Stage::Asked;
        }
        // Behind a shell, what is left may be the training, which hears of the order only now.
        let has_time = self.grace == Grace::Usual && !self.orders.is_empty() && !self.is_warned;
        self.deadline = if has_time { None } else { Instant::now().checked_add(self.grace.time()) };
        let processes = if has_time { left().len() } else { 0 };
        if processes > 0 {
            notify(&Notice::Leftovers { processes });
        }
    }

    fn signal(&mut self, signal: i32, notify: &mut dyn FnMut(&Notice)) {
        match signal {
            SIGWINCH => {
                if let Some(terminal) = &self.child.terminal
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
                self.interrupted(notify);
            }
            // Who is told to end or to save tells its own: data workers may die of it otherwise.
            SIGUSR1 | SIGUSR2 => self.send_to_first(signal),
            SIGTERM => {
                self.send_to_first(SIGTERM);
                self.send(SIGCONT);
                self.ordered(SIGTERM, notify);
            }
            _ => {
                self.send_to_end(signal);
                self.ordered(signal, notify);
            }
        }
    }

    /// An order to end: the same one again, some time later, means soon.
    fn ordered(&mut self, signal: i32, notify: &mut dyn FnMut(&Notice)) {
        self.interruption = Interruption::Requested;
        match self.orders.iter().find(|(other, _)| *other == signal) {
            Some((_, first)) if first.elapsed() < ONE_ORDER => {}
            Some(_) => self.warn(notify),
            None => {
                self.orders.push((signal, Instant::now()));
                if matches!(self.grace, Grace::Given(_)) {
                    self.hurry();
                }
            }
        }
    }

    /// Ctrl-C: the first leaves the command all the time it wants to save, the second a little, the third none.
    fn interrupted(&mut self, notify: &mut dyn FnMut(&Notice)) {
        self.interruption = Interruption::Requested;
        self.interrupts += 1;
        match self.interrupts {
            1 if self.stage == Stage::Running && !self.is_warned => {}
            _ if self.is_warned => self.kill(),
            _ => self.warn(notify),
        }
    }

    fn warn(&mut self, notify: &mut dyn FnMut(&Notice)) {
        if !std::mem::replace(&mut self.is_warned, true) {
            notify(&Notice::Patience { grace: self.grace.time() });
        }
        self.hurry();
    }

    fn hurry(&mut self) {
        let deadline = Instant::now().checked_add(self.grace.time());
        self.deadline = [self.deadline, deadline].into_iter().flatten().min();
    }

    /// Patience has ended.
    fn late(&mut self, notify: &mut dyn FnMut(&Notice)) -> Result<(), KeepError> {
        match self.stage {
            Stage::Waiting => {
                signal_all(Signal::TERM);
                notify(&Notice::Leftovers { processes: left().len() });
                self.stage = Stage::Asked;
                self.deadline = Instant::now().checked_add(self.grace.time());
            }
            Stage::Running | Stage::Asked => {
                notify(&Notice::Kill { processes: left().len() });
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
            let _ = kill_process_group(self.child.process, signal);
        }
    }

    /// Sends a signal to the process that was started, as whoever knows its number would.
    fn send_to_first(&self, signal: i32) {
        if self.end.is_none()
            && let Some(signal) = Signal::from_named_raw(signal)
        {
            let _ = kill_process(self.child.process, signal);
        }
    }

    /// Sends a signal of a terminal's that is to end the command, also where it is stopped, as whoever reads from a
    /// terminal in the background is.
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
        suspend_ourselves();
    }

    /// Gives keys to the command again, if the terminal is ours.
    fn take_keys(&self) {
        if let Some(raw) = self.raw() {
            raw.again();
        }
    }

    fn raw(&self) -> Option<&RawMode> {
        self.child.terminal.as_ref()?.raw.as_ref()
    }
}

/// Stops this process, where a shell can continue it.
pub(crate) fn suspend_ourselves() {
    if has_job_control() {
        let _ = kill_process(getpid(), Signal::STOP);
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
