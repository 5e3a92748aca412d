//! `lowtide train`: the engine, and the page that `--watch` starts with a run and that ends with it.
//!
//! This process turns into the engine, so signals and exit codes are the run's own. The page is a process below it, in
//! a group of its own: Ctrl-C is for the run alone. It watches its parent, and ends when that has. With `--ranks` this process
//! stays, and the engines are below it (`ranks.rs`).

use std::env;
use std::ffi::OsString;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

use lowtide_args::TrainArgs;
use lowtide_settings::{RanksSettings, SettingsError, read};
use serde_json::Value;

use crate::engine::become_engine;
use crate::output::{Failure, report, to_stderr};
use crate::ranks;
use crate::suggestion::script;

const FLAG: &str = "--watch";
const RANKS: &str = "--ranks";

/// The port that the page is to have; the first free one where none was named.
type Port = Option<u16>;

/// Trains: starts a page beside the run where one is asked for, then replaces this process by the engine.
pub(crate) fn run(args: &TrainArgs, words: &[OsString]) -> ExitCode {
    if let Err(failure) = prepare(args, words) {
        return report(Err(failure));
    }
    match args.ranks {
        Some(count) => ranks::train(count, timeout(args), &without_own(words)),
        None => become_engine("train", &without_own(words)),
    }
}

/// How long ranks wait for each other, as far as that is known here.
fn timeout(args: &TrainArgs) -> Duration {
    let path = args.config.as_deref().filter(|path| path.is_file());
    let loaded = path.and_then(|path| args.settings(path, &read(path).ok()?).ok());
    Duration::from_secs(loaded.map_or_else(RanksSettings::default, |loaded| loaded.settings.ranks).timeout)
}

fn prepare(args: &TrainArgs, words: &[OsString]) -> Result<(), Failure> {
    if let Some(failure) = script(words) {
        return Err(failure);
    }
    check(args)?;
    args.watch.map_or(Ok(()), start)
}

/// Says at once what is wrong with settings, for which the engine would take a moment longer. What is in the place of a
/// configuration may be a pipe, to be read once, or the name of a model, which only an engine knows.
fn check(args: &TrainArgs) -> Result<(), SettingsError> {
    match args.config.as_deref().filter(|path| path.is_file()) {
        Some(path) => args.settings(path, &read(path)?).map(drop),
        None => args.overrides().map(drop),
    }
}

/// The words for the engine, of which neither the page nor the number of processes is a concern.
fn without_own(words: &[OsString]) -> Vec<OsString> {
    let end = words.iter().position(|word| word == "--").unwrap_or(words.len());
    let (options, rest) = words.split_at(end);
    let mut kept = Vec::new();
    let mut options = options.iter();
    while let Some(word) = options.next() {
        let bytes = word.as_encoded_bytes();
        if word == RANKS {
            // Its number is a word of its own.
            options.next();
        } else if word != FLAG && !bytes.starts_with(b"--watch=") && !bytes.starts_with(b"--ranks=") {
            kept.push(word.clone());
        }
    }
    kept.extend(rest.iter().cloned());
    kept
}

/// Starts the page beside this process, and says where it is.
fn start(port: Port) -> Result<(), Failure> {
    let refused = |what: String| Failure::bad_input(what, None);
    let program = env::current_exe().map_err(|error| refused(format!("cannot tell where this program is: {error}")))?;
    let mut command = Command::new(program);
    command.args(["watch", "--json", "--with-parent", &std::process::id().to_string()]);
    if let Some(port) = port {
        command.args(["--port", &port.to_string()]);
    }
    // Nothing of this run's is left open in the page, so that who reads the run's output to its end does not wait.
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
    let mut child = command.spawn().map_err(|error| refused(format!("the page cannot be started: {error}")))?;
    let mut line = String::new();
    let read = child.stdout.take().map(|out| BufReader::new(out).read_line(&mut line));
    let told: Value = serde_json::from_str(&line).unwrap_or_default();
    if let (Some(Ok(_)), Some(url)) = (read, told["url"].as_str()) {
        // Standard output may be for events alone.
        to_stderr(&format!("watch this run at {url}"));
        return Ok(());
    }
    let mut why = String::new();
    let _ = child.stderr.take().map(|mut out| out.read_to_string(&mut why));
    let _ = child.wait();
    let why = why.lines().find_map(|line| line.strip_prefix("error: ")).unwrap_or("the page did not start").to_owned();
    Err(Failure::bad_input(why, Some("the run was not started; --watch alone takes the next free port".to_owned())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_for_the_front_alone_is_taken_out() {
        let check = |text: &str, expect: &str| {
            let words: Vec<OsString> = text.split_whitespace().map(OsString::from).collect();
            let rest: Vec<OsString> = expect.split_whitespace().map(OsString::from).collect();
            assert_eq!(without_own(&words), rest, "{text}");
        };
        check("a.yaml --limit 3GiB", "a.yaml --limit 3GiB");
        check("a.yaml --watch --json", "a.yaml --json");
        check("--watch=8000 a.yaml", "a.yaml");
        check("a.yaml --set watch.seconds=1", "a.yaml --set watch.seconds=1");
        check("--watch -- --watch --ranks 2", "-- --watch --ranks 2");
        check("--ranks 2 a.yaml --ranks=4 --json", "a.yaml --json");
        check("a.yaml --set x=1 --ranks 2", "a.yaml --set x=1");
    }
}
