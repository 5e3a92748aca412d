//! Runs commands one after the other, and hears of all that happens to them.

use std::cell::Cell;
use std::fs::File;
use std::io;
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Instant;

use lowtide_log::steps;
use rustix::process::{WaitOptions, getpid};
use signal_hook::consts::{SIGCONT, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP, SIGUSR1, SIGUSR2, SIGWINCH};
use signal_hook::iterator::{Handle, Signals};

use crate::evidence::footprint::{Footprint, ProbeThread};
use crate::journal::Journal;
use crate::output::transcript::Transcript;
use crate::process::attendant::{Attendant, ENDS, Grace, Interruption, suspend_ourselves};
use crate::process::child::{Child, Outlet};
use crate::process::incident::Incident;
use crate::process::signal_mask::{ignored_signals, survive_file_size_limit};
use crate::{End, KeepError, Launch, Notice};

const CAUGHT: [i32; 9] = [SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGWINCH, SIGTSTP, SIGCONT];

/// Runs commands one after the other.
#[derive(Debug)]
pub(crate) struct Supervisor {
    incidents: Receiver<Incident>,
    sender: Sender<Incident>,
    signals: Handle,
    grace: Grace,
    /// The signal by which somebody wanted an end while no command was running.
    ended_by: Cell<Option<i32>>,
}

/// What became of a start.
#[derive(Debug)]
pub(crate) struct Observation {
    pub(crate) end: End,
    pub(crate) interruption: Interruption,
    pub(crate) footprint: Footprint,
    pub(crate) transcript: Arc<Mutex<Transcript>>,
    pub(crate) seconds: f64,
}

impl Supervisor {
    /// Takes over the signals of this process, and all processes that the command may leave behind.
    pub(crate) fn new(grace: Grace) -> Result<Self, KeepError> {
        let system = |what| move |error| KeepError::System { what, error };
        rustix::process::set_child_subreaper(Some(getpid()))
            .map_err(io::Error::from)
            .map_err(system("processes left behind cannot be taken over"))?;
        let (sender, incidents) = mpsc::channel();
        // What was set to be ignored, as `nohup` does, stays so, for the command too.
        let ignored = ignored_signals();
        let caught = CAUGHT.iter().filter(|signal| ignored >> (**signal - 1) & 1 == 0);
        let mut signals = Signals::new(caught).map_err(system("signals cannot be caught"))?;
        // A log that grows too large costs the log and nothing else.
        survive_file_size_limit().map_err(system("signals cannot be caught"))?;
        let handle = signals.handle();
        let to = sender.clone();
        thread::spawn(move || {
            signals.forever().take_while(|signal| to.send(Incident::Signal(*signal)).is_ok()).count()
        });
        Ok(Self { incidents, sender, signals: handle, grace, ended_by: Cell::new(None) })
    }

    /// The signal by which somebody wanted an end while no command was running, now or at an earlier look.
    pub(crate) fn ended_by(&self) -> Option<i32> {
        for incident in self.incidents.try_iter() {
            match incident {
                Incident::InterruptKey => self.ended_by.set(Some(SIGINT)),
                Incident::Signal(signal) if ENDS.contains(&signal) => self.ended_by.set(Some(signal)),
                Incident::Signal(SIGTSTP) => suspend_ourselves(),
                _ => {}
            }
        }
        self.ended_by.get()
    }

    /// Starts a command and stays with it until no process of it is left.
    pub(crate) fn run(
        &mut self,
        launch: &Launch,
        log: io::Result<File>,
        journal: &Journal,
        notify: &mut dyn FnMut(&Notice),
    ) -> Result<Observation, KeepError> {
        let transcript = Arc::new(Mutex::new(Transcript::new(log)));
        let outlet = Outlet { transcript: transcript.clone(), incidents: self.sender.clone() };
        let begun = Instant::now();
        let child = Child::start(launch, &outlet)?;
        self.reap();
        let pid = child.process.as_raw_nonzero().get().unsigned_abs();
        let probe = ProbeThread::start(pid, {
            let (journal, transcript) = (journal.clone(), transcript.clone());
            move |sample| journal.sampled(sample, || last_step(&transcript))
        });
        let (end, interruption) = Attendant::attend(&child, self.grace, &self.incidents, notify)?;
        let seconds = begun.elapsed().as_secs_f64();
        drop(child);
        let footprint = probe.finish();
        Ok(Observation { end, interruption, footprint, transcript, seconds })
    }

    /// Waits for every process below us in a thread, until there is none.
    fn reap(&self) {
        let sender = self.sender.clone();
        thread::spawn(move || {
            loop {
                let incident = match rustix::process::wait(WaitOptions::empty()) {
                    Ok(Some((process, status))) => Incident::Exit(process, status),
                    Ok(None) | Err(rustix::io::Errno::INTR) => continue,
                    Err(_) => Incident::NoneLeft,
                };
                let gone = matches!(incident, Incident::NoneLeft);
                if sender.send(incident).is_err() || gone {
                    return;
                }
            }
        });
    }
}

/// The last step of what came so far.
fn last_step(transcript: &Mutex<Transcript>) -> Option<u64> {
    /// No line of a step is longer, and a look into all that is kept would hold up the output.
    const LOOKED_AT: usize = 16 << 10;
    let end = {
        let transcript = transcript.lock().unwrap_or_else(PoisonError::into_inner);
        let bytes = &transcript.tail.bytes;
        bytes[bytes.len().saturating_sub(LOOKED_AT)..].to_vec()
    };
    steps(&end).next_back()
}

impl Drop for Supervisor {
    fn drop(&mut self) {
        self.signals.close();
    }
}
