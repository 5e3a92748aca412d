//! Readers that go away.

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use crate::kit::Place;

#[test]
fn a_reader_of_events_that_goes_away_does_not_lose_the_run() {
    let place = Place::new();
    let mut command = place.command("train tiny.yaml --device cpu --out out --json --set train.steps=20");
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert!(line.contains("run_started"));
    assert_eq!(child.wait().unwrap().code(), Some(0));
    assert_eq!(place.summary("out")["steps"], 20);
}

#[test]
fn nor_does_one_of_the_words() {
    let place = Place::new();
    let mut child = place.command("train tiny.yaml --device cpu --out out").stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stderr.take());
    assert_eq!(child.wait().unwrap().code(), Some(0));
    assert_eq!(place.summary("out")["steps"], 4);
}
