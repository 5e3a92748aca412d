//! `lowtide watch`: a page that shows runs, or any process, while they go.
//!
//! The page of `train --watch` is a child of the engine. The front starts it, waits for its address and turns into the
//! engine, so signals and exit codes stay the run's. The page is in a process group of its own, out of reach of Ctrl-C,
//! and ends when its parent has, a moment later where a browser still asks. Which folder the run is in it reads from
//! the files that its parent has open, not from arguments.

use std::os::unix::process::parent_id;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use lowtide_args::WatchArgs;
use lowtide_watch::{Board, Server, WatchError};
use serde_json::json;

use super::process_run::run_folder;
use super::sampling::Sampling;
use super::target::open_board;
use crate::output::{Failure, print, print_json, printable, report};
use crate::stop_flag::stop_flag;

/// How often a run's events are looked at.
const TICK: Duration = Duration::from_millis(500);
/// A page that asked within this time is open in a browser.
const OPEN: Duration = Duration::from_secs(6);
/// How long such a page may still ask for the end of the run that it was started with.
const LINGER: Duration = Duration::from_millis(2500);
/// How long a port may stay taken that the page of the run before lingers at.
const PORT_PATIENCE: Duration = Duration::from_secs(5);

pub(crate) fn run(args: &WatchArgs) -> ExitCode {
    report(match args.with_parent {
        Some(parent) => watch_with(args, parent),
        None => watch(args),
    })
}

fn watch(args: &WatchArgs) -> Result<(), Failure> {
    let (mut board, folders) = open_board(args.pid, &args.folders)?;
    // What may not be read is told before an address is.
    board.look(SystemTime::now())?;
    let server = Server::listen(args.host, args.port)?;
    let end = stop_flag()?;
    announce(args, &server, &folders)?;
    let mut is_told = args.json;
    serve(&server, board, &end, |board| {
        // The page stays, so that what the process came to can be looked at.
        if let Some(monitor) = board.monitor().filter(|monitor| monitor.has_ended() && !is_told) {
            is_told = true;
            let _ = print(&format!("{}: {}\n", printable(&monitor.name()), monitor.state_text()));
        }
    });
    Ok(())
}

/// Shows the run of the process that started this one, from before it begins to a moment after it ended.
fn watch_with(args: &WatchArgs, parent: u32) -> Result<(), Failure> {
    let server = listen_patiently(args)?;
    announce(args, &server, &[])?;
    let end = stop_flag()?;
    let mut is_found = false;
    let mut gone: Option<Instant> = None;
    serve(&server, Board::default(), &end, |board| {
        // The folder is there once the run has checked its settings.
        if !is_found && let Some(folder) = run_folder(parent) {
            is_found = board.join(&folder).is_ok();
        }
        if gone.is_none() && parent_id() != parent {
            gone = Some(Instant::now());
        }
        let linger = if server.idle().is_some_and(|idle| idle < OPEN) { LINGER } else { Duration::ZERO };
        if gone.is_some_and(|gone| gone.elapsed() >= linger) {
            end.store(true, Ordering::Relaxed);
        }
    });
    Ok(())
}

fn listen_patiently(args: &WatchArgs) -> Result<Server, WatchError> {
    let begun = Instant::now();
    loop {
        match Server::listen(args.host, args.port) {
            Err(error) if error.is_port_in_use() && begun.elapsed() < PORT_PATIENCE => thread::sleep(TICK),
            result => return result,
        }
    }
}

fn announce(args: &WatchArgs, server: &Server, folders: &[PathBuf]) -> Result<(), Failure> {
    let url = server.url();
    if args.json {
        let folders: Vec<String> = folders.iter().map(|folder| folder.display().to_string()).collect();
        let (address, pid) = (server.address(), args.pid);
        let (host, port) = (address.ip().to_string(), address.port());
        let told = json!({ "url": url, "host": host, "port": port, "folders": folders, "pid": pid });
        return print_json(&format!("{told}\n"));
    }
    let what = if args.pid.is_some() { "process" } else { "run" };
    print(&format!("{url}\nCtrl-C ends this page, not the {what}.\n"))
}

/// Answers, and keeps what is shown new, until the end.
fn serve(server: &Server, board: Board, end: &AtomicBool, mut also: impl FnMut(&mut Board)) {
    let board = Arc::new(Mutex::new(board));
    thread::scope(|scope| {
        scope.spawn(|| server.serve(&board, end));
        let mut sampling = Sampling::new();
        while !end.load(Ordering::Relaxed) {
            if !refresh(&board, &mut sampling, &mut also) {
                thread::sleep(TICK);
            }
        }
    });
}

/// Reads what is new; whether there is more at once.
fn refresh(board: &Mutex<Board>, sampling: &mut Sampling, also: &mut impl FnMut(&mut Board)) -> bool {
    let now = SystemTime::now();
    // What cannot be read for a moment is tried again; what was read before stays on the page.
    let more = locked(board).look(now).unwrap_or(false);
    let processes = locked(board).processes();
    // A slow sample takes some time, in which pages are answered.
    if let Some((sample, detail)) = sampling.take(processes) {
        locked(board).add(now, sample, detail);
    }
    also(&mut locked(board));
    more
}

fn locked(board: &Mutex<Board>) -> MutexGuard<'_, Board> {
    board.lock().unwrap_or_else(PoisonError::into_inner)
}
