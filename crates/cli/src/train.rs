//! `lowtide train`: the engine, and the page that `--watch` starts with a run and that ends with it.
//!
//! This process turns into the engine, so signals and exit codes are the run's own. The page is a process below it, in
//! a group of its own: Ctrl-C is for the run alone. It watches its parent, and ends when that has.

use std::env;
use std::ffi::OsString;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode, Stdio};

use lowtide_config::command::{is_python, quoted};
use serde_json::Value;

use crate::engine::become_engine;
use crate::output::{Failure, report, to_stderr};

const FLAG: &str = "--watch";

/// The port that the page is to have; the first free one where none was named.
type Port = Option<u16>;

/// Trains: starts a page beside the run where one is asked for, then replaces this process by the engine.
pub(crate) fn run(args: &[OsString]) -> ExitCode {
    if let Some(failure) = script(args) {
        return report(Err(failure));
    }
    let started = page_port(args).and_then(|(port, args)| port.map_or(Ok(()), start).map(|()| args));
    match started {
        Ok(args) => become_engine("train", &args),
        Err(failure) => report(Err(failure)),
    }
}

/// A Python script in the place of a configuration, which is for `lowtide run`.
fn script(args: &[OsString]) -> Option<Failure> {
    let first = args.iter().position(|word| !word.as_encoded_bytes().starts_with(b"-"))?;
    let is_interpreter = args[first].to_str().is_some_and(|word| word.starts_with("python"));
    if !is_interpreter && !is_python(&args[first]) {
        return None;
    }
    let text = format!("{}: lowtide train takes a configuration of its own, in YAML", args[first].display());
    let python = if is_interpreter { "" } else { "python " };
    let hint = format!("for a training script of yours: lowtide run -- {python}{}", quoted(&args[first..]));
    Some(Failure::bad_input(text, Some(hint)))
}

/// Whether a page is asked for, and the words without that.
fn page_port(args: &[OsString]) -> Result<(Option<Port>, Vec<OsString>), Failure> {
    let mut port = None;
    let mut rest = Vec::new();
    for arg in args {
        match arg.to_str().and_then(|text| text.strip_prefix(FLAG)) {
            Some("") => port = Some(None),
            Some(value) if value.starts_with('=') => port = Some(Some(number(&value[1..])?)),
            _ => rest.push(arg.clone()),
        }
    }
    Ok((port, rest))
}

fn number(text: &str) -> Result<u16, Failure> {
    text.parse().map_err(|_| {
        let hint = "--watch alone takes the first free port from 7823 on";
        Failure::bad_input(format!("{FLAG}={text}: this is no port"), Some(hint.to_owned()))
    })
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

    fn words(text: &str) -> Vec<OsString> {
        text.split_whitespace().map(OsString::from).collect()
    }

    #[test]
    fn the_flag_is_taken_out() {
        let check = |text: &str, port: Option<Port>, rest: &str| {
            assert_eq!(page_port(&words(text)).unwrap(), (port, words(rest)), "{text}");
        };
        check("a.yaml --line 3GiB", None, "a.yaml --line 3GiB");
        check("a.yaml --watch --json", Some(None), "a.yaml --json");
        check("--watch=8000 a.yaml", Some(Some(8000)), "a.yaml");
        check("a.yaml --watcher --set watch.seconds=1", None, "a.yaml --watcher --set watch.seconds=1");
        assert_eq!(page_port(&words("a.yaml --watch=x")).unwrap_err().text, "--watch=x: this is no port");
        assert!(page_port(&words("--watch=")).is_err());
    }
}
