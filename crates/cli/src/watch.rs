//! `lowtide watch`: a page that shows runs while they go.

use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, SystemTime};

use clap::Args;
use lowtide_watch::{Board, Server, Source, newest_in};
use serde_json::json;
use signal_hook::consts::{SIGINT, SIGTERM};

use crate::output::{Failure, print, report};

/// Where runs are unless `--out` says otherwise.
const RUNS: &str = "runs";
/// How often a run's events are looked at.
const TICK: Duration = Duration::from_millis(200);

/// Watch runs in a browser: memory against the line, every out-of-memory error and its answer, the loss.
///
/// Serves one page that asks for nothing from elsewhere. It can be started before, while and after a run goes, and in no
/// way disturbs it. A folder of several runs shows them side by side. Ctrl-C ends it.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  lowtide watch                           the newest run in runs/
  lowtide watch runs/mine                 one run
  lowtide watch runs/a runs/b             two runs, compared; a folder of runs will do too
  lowtide watch runs/mine --host 0.0.0.0  for other machines as well; the address then has a token

Exit codes:
  0    ended by Ctrl-C
  2    bad input: no run is there, or the port cannot be used")]
pub(crate) struct WatchArgs {
    /// Folders of runs or of series [default: the newest in runs/].
    #[arg(value_name = "RUN_DIR")]
    folders: Vec<PathBuf>,

    /// The port [default: the first free one from 7823 on].
    #[arg(long, value_name = "N")]
    port: Option<u16>,

    /// The address to listen at. For one that other machines can reach a token is made, without which nothing is shown.
    #[arg(long, value_name = "ADDR", default_value_t = IpAddr::V4(Ipv4Addr::LOCALHOST))]
    host: IpAddr,

    /// Print where the page is as JSON.
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &WatchArgs) -> ExitCode {
    report(watch(args))
}

fn watch(args: &WatchArgs) -> Result<(), Failure> {
    let folders = chosen(&args.folders)?;
    let mut board = Board::open(&folders, live())?;
    // What may not be read is told before an address is.
    board.look(SystemTime::now())?;
    let server = Server::listen(args.host, args.port)?;
    let end = ending_flag()?;
    announce(args, &server, &folders)?;
    let board = Arc::new(Mutex::new(board));
    thread::scope(|scope| {
        scope.spawn(|| server.serve(&board, &end));
        follow(&board, &end);
    });
    Ok(())
}

/// The folders that were asked for, or the newest of the usual place.
pub(crate) fn chosen(folders: &[PathBuf]) -> Result<Vec<PathBuf>, Failure> {
    if !folders.is_empty() {
        return Ok(folders.to_vec());
    }
    let newest = newest_in(RUNS.as_ref()).ok_or_else(|| {
        let hint = "name the folder of a run; `lowtide train` says at its end which it is";
        Failure::bad_input(format!("no run is in {RUNS}/ here"), Some(hint.to_owned()))
    })?;
    Ok(vec![newest])
}

/// Live figures of the machine: the one place where they join what a run writes of itself.
pub(crate) fn live() -> Source {
    Source::none()
}

/// A flag that Ctrl-C and SIGTERM set.
pub(crate) fn ending_flag() -> Result<Arc<AtomicBool>, Failure> {
    let end = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        // A second signal ends the process at once.
        let twice = signal_hook::flag::register_conditional_shutdown(signal, 130, end.clone());
        let once = signal_hook::flag::register(signal, end.clone());
        twice.and(once).map_err(|error| Failure::bad_input(format!("signals cannot be caught: {error}"), None))?;
    }
    Ok(end)
}

fn announce(args: &WatchArgs, server: &Server, folders: &[PathBuf]) -> Result<(), Failure> {
    let url = server.url();
    if args.json {
        let folders: Vec<String> = folders.iter().map(|folder| folder.display().to_string()).collect();
        let address = server.address();
        let told = json!({ "url": url, "host": address.ip().to_string(), "port": address.port(), "folders": folders });
        return print(&format!("{told}\n"));
    }
    print(&format!("{url}\nCtrl-C ends this page, not the run.\n"))
}

/// Keeps the runs new until the end.
fn follow(board: &Mutex<Board>, end: &AtomicBool) {
    while !end.load(Ordering::Relaxed) {
        // What cannot be read for a moment is tried again; what was read before stays on the page.
        let more = board.lock().unwrap_or_else(PoisonError::into_inner).look(SystemTime::now()).unwrap_or(false);
        if !more {
            thread::sleep(TICK);
        }
    }
}
