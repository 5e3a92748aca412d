//! `lowtide train --ranks N`: as many engines on this machine, which train together.
//!
//! They are told who they are by torchrun's variables. Each is in a process group of its own, so that Ctrl-C comes to this
//! process alone, which passes every signal on once. If this process is killed, the system tells the engines, and they end. When one of them fails, the others notice by themselves and say so; one that
//! does not is ended after the time that ranks wait for each other.

use std::env;
use std::ffi::OsString;
use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::num::NonZeroU32;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{self, Child, Command, ExitCode, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use lowtide_keep::ignored_signals;
use rustix::process::{Pid, Signal, kill_process};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1};
use signal_hook::iterator::Signals;

use crate::engine::training;
use crate::output::{Failure, report, to_stderr};

/// Between two looks at the engines.
const PAUSE: Duration = Duration::from_millis(20);
/// Beyond the time that ranks wait for each other, to say so and to save.
const GRACE: Duration = Duration::from_secs(30);
/// Tells engines who started them, and with whom they end.
const PARENT_VARIABLE: &str = "LOWTIDE_RANKS_PARENT";
/// By which a person chooses the number of threads for themselves.
const THREADS: &str = "OMP_NUM_THREADS";

/// Trains on so many engines; ends as the first one that failed.
pub(crate) fn train(count: NonZeroU32, timeout: Duration, words: &[OsString]) -> ExitCode {
    let listened = listen();
    match listened.and_then(|signals| Ok((start(count, words)?, signals))) {
        Ok((engines, signals)) => ExitCode::from(wait(engines, signals, timeout + GRACE)),
        Err(failure) => report(Err(failure)),
    }
}

fn listen() -> Result<Signals, Failure> {
    let hangup = Some(SIGHUP).filter(|signal| ignored_signals() >> (signal - 1) & 1 == 0);
    let signals = Signals::new([SIGINT, SIGTERM, SIGUSR1].into_iter().chain(hangup));
    signals.map_err(|error| Failure::bad_input(format!("cannot listen to signals: {error}"), None))
}

fn start(count: NonZeroU32, words: &[OsString]) -> Result<Vec<Child>, Failure> {
    let cannot =
        |error: io::Error| Failure { text: format!("cannot start {count} engines: {error}"), hint: None, code: 1 };
    let port = free_port().map_err(cannot)?;
    let mut engines: Vec<Child> = Vec::new();
    for rank in 0..count.get() {
        let mut command = training(words)?;
        tell(&mut command, rank, count, port);
        match command.spawn() {
            Ok(engine) => engines.push(engine),
            Err(error) => {
                engines.iter_mut().for_each(|engine| drop(engine.kill().and_then(|()| engine.wait())));
                return Err(cannot(error));
            }
        }
    }
    Ok(engines)
}

/// A port that nobody listens on at present.
fn free_port() -> io::Result<u16> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port())
}

/// Tells an engine who it is.
fn tell(command: &mut Command, rank: u32, count: NonZeroU32, port: u16) {
    let (rank_text, world) = (rank.to_string(), count.to_string());
    command.envs([
        ("RANK", &rank_text),
        ("LOCAL_RANK", &rank_text),
        ("WORLD_SIZE", &world),
        ("LOCAL_WORLD_SIZE", &world),
    ]);
    command.env(PARENT_VARIABLE, process::id().to_string());
    command.env("MASTER_ADDR", Ipv4Addr::LOCALHOST.to_string()).env("MASTER_PORT", port.to_string());
    for variable in ["TORCHELASTIC_USE_AGENT_STORE", "TORCHELASTIC_RESTART_COUNT", "TORCHELASTIC_RUN_ID"] {
        command.env_remove(variable);
    }
    if env::var_os(THREADS).is_none() {
        let cores = thread::available_parallelism().map_or(1, usize::from);
        command.env(THREADS, (cores / count.get() as usize).max(1).to_string());
    }
    if rank > 0 {
        command.stdin(Stdio::null());
    }
    command.process_group(0);
}

/// Passes signals on until all have ended.
fn wait(mut engines: Vec<Child>, mut signals: Signals, patience: Duration) -> u8 {
    let mut ended: Option<(u8, Instant)> = None;
    loop {
        for signal in signals.pending() {
            let Some(signal) = Signal::from_named_raw(signal) else { continue };
            for engine in engines.iter().filter_map(pid) {
                // It may have ended meanwhile.
                let _ = kill_process(engine, signal);
            }
        }
        engines.retain_mut(|engine| {
            let Ok(Some(status)) = engine.try_wait() else { return true };
            let code = code(status);
            if code != 0 && ended.is_none() {
                ended = Some((code, Instant::now()));
            }
            false
        });
        if engines.is_empty() {
            return ended.map_or(0, |(code, _)| code);
        }
        if ended.is_some_and(|(_, when)| when.elapsed() > patience) {
            to_stderr("error: a rank ended, and others did not notice: they are ended now");
            engines.iter_mut().for_each(|engine| drop(engine.kill().and_then(|()| engine.wait())));
        }
        thread::sleep(PAUSE);
    }
}

fn pid(engine: &Child) -> Option<Pid> {
    Pid::from_raw(i32::try_from(engine.id()).ok()?)
}

/// The code that a shell has for it.
fn code(status: ExitStatus) -> u8 {
    let code = status.code().or(status.signal().map(|signal| 128 + signal)).unwrap_or(1);
    u8::try_from(code).unwrap_or(1)
}
