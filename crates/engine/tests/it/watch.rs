//! `lowtide train --watch`: a page that comes and goes with the run.

use std::io::{BufRead, BufReader};
use std::net::{TcpListener, TcpStream};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use insta::assert_snapshot;
use serde_json::Value;

use crate::kit::Place;

const LONG: &str = "--set train.steps=100000 --set model.n_layer=1 --set eval.every=null --set save.every=null";

/// A run with its page.
struct Watched {
    child: Child,
    address: String,
}

impl Watched {
    /// Starts a run in a group of its own, as a terminal does, and waits until the page shows a step of it.
    fn start(place: &Place, words: &str) -> Watched {
        let mut command = place.command(&format!("train tiny.yaml --device cpu --watch=0 {words} {LONG}"));
        command.stdout(Stdio::null()).stderr(Stdio::piped()).process_group(0);
        let mut child = command.spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let line = lines.next().unwrap().unwrap();
        let address = line.strip_prefix("watch this run at http://").unwrap().trim_end_matches('/').to_owned();
        std::thread::spawn(move || lines.for_each(drop));
        let watched = Watched { child, address };
        watched.wait_for(|list| list["runs"][0]["figures"]["step"].as_u64() > Some(0));
        watched
    }

    /// What the page lists; `None` where nobody answers.
    fn list(&self) -> Option<Value> {
        serde_json::from_str(&lowtide_testkit::get(&self.address, "/api/runs").ok()?.1).ok()
    }

    #[track_caller]
    fn wait_for(&self, wanted: impl Fn(&Value) -> bool) -> Value {
        let begun = Instant::now();
        loop {
            match self.list() {
                Some(list) if wanted(&list) => return list,
                list => assert!(begun.elapsed() < Duration::from_secs(60), "never so: {list:?}"),
            }
            sleep(Duration::from_millis(50));
        }
    }

    #[track_caller]
    fn wait_until_nobody_answers(&self) {
        let begun = Instant::now();
        while self.list().is_some() {
            assert!(begun.elapsed() < Duration::from_secs(30), "the page is still there");
            sleep(Duration::from_millis(50));
        }
    }

    /// Sends a signal to the whole group.
    fn signal(&self, name: &str) {
        let kill = format!("kill -{name} -- -{}", self.child.id());
        assert!(Command::new("bash").args(["-c", &kill]).status().unwrap().success());
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn the_page_finds_its_run_and_ends_with_it() {
    let place = Place::new();
    // Runs that are there already, under names that could be the next.
    place.train("runs/tiny-1", "");
    let mut watched = Watched::start(&place, "");
    let list = watched.wait_for(|list| list["live"]["holders"].as_array().is_some_and(|holders| !holders.is_empty()));
    assert_eq!((list["runs"].as_array().unwrap().len(), &list["runs"][0]["name"]), (1, &"tiny-2".into()));
    let holders = list["live"]["holders"].as_array().unwrap();
    assert_eq!((holders.len(), &holders[0]["pid"]), (1, &watched.child.id().into()), "the page itself does not count");

    watched.signal("INT");
    assert_eq!(watched.child.wait().unwrap().code(), Some(130));
    // An open page is told the end.
    watched.wait_for(|list| list["runs"][0]["how"] == "interrupted");
    watched.wait_until_nobody_answers();
}

#[test]
fn a_killed_run_leaves_no_page_behind() {
    let place = Place::new();
    let mut watched = Watched::start(&place, "--out elsewhere");
    watched.child.kill().unwrap();
    watched.child.wait().unwrap();
    watched.wait_until_nobody_answers();
}

#[test]
fn a_series_is_shown_as_a_whole() {
    let place = Place::new();
    let words = "train scoring --device cpu --watch=0 --json --set train.steps=40 --set eval.every=20";
    let mut child = place.command(words).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let line = BufReader::new(child.stderr.take().unwrap()).lines().next().unwrap().unwrap();
    let address = line.strip_prefix("watch this run at http://").unwrap().trim_end_matches('/').to_owned();
    let mut watched = Watched { child, address };
    let mut events = watched.child.stdout.take().unwrap();
    std::thread::spawn(move || std::io::copy(&mut events, &mut std::io::sink()));
    let list = watched.wait_for(|list| list["runs"].as_array().is_some_and(|runs| runs.len() >= 2));
    assert_eq!(list["runs"][0]["name"], "lstm");
    assert_eq!(watched.child.wait().unwrap().code(), Some(0));
    watched.wait_until_nobody_answers();
}

#[test]
fn a_page_that_cannot_be_had_is_told_before_anything_is_written() {
    let place = Place::new();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let ran = place.ends(2, &format!("train tiny.yaml --device cpu --watch={port}"));
    assert_snapshot!(ran.stderr.replace(&port.to_string(), "PORT"), @r"
    error: cannot listen at 127.0.0.1:PORT: another program listens there
    hint: the run was not started; --watch alone takes the next free port
    ");
    assert!(!place.path("runs").exists());
    assert_snapshot!(place.ends(2, "train tiny.yaml --watch=none").stderr, @r"
    error: invalid value 'none' for '--watch[=<PORT>]': this is no port: write --watch=8000, or --watch alone for the first free one

    For more information, try '--help'.
    ");
}

#[test]
fn bad_input_ends_the_page_too() {
    let place = Place::new();
    let ran = place.ends(2, "train absent.yaml --device cpu --watch=0");
    let address = ran.stderr.lines().next().unwrap().strip_prefix("watch this run at http://").unwrap().to_owned();
    let begun = Instant::now();
    while TcpStream::connect(address.trim_end_matches('/')).is_ok() {
        assert!(begun.elapsed() < Duration::from_secs(30), "the page is still there");
        sleep(Duration::from_millis(50));
    }
}
