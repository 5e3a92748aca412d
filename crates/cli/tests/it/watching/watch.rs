//! `lowtide watch`: what it says, and how it ends.

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use insta::assert_snapshot;

use super::kit::{Watching, Written};
use crate::kit::sandbox;

#[test]
fn what_is_no_run_is_refused() {
    let place = sandbox();
    fs::create_dir(place.path("empty")).unwrap();
    fs::write(place.path("file"), "").unwrap();
    assert_snapshot!(place.refuses("watch"), @r"
    error: no run is in runs/ here
    hint: name the folder of a run; `lowtide train` says at its end which it is
    ");
    assert_snapshot!(place.refuses("watch absent"), @r"
    error: absent: there is no such folder
    hint: `lowtide train` says at its end which folder the run is in; `runs/` is where they are by default
    ");
    assert_snapshot!(place.refuses("watch empty"), @r"
    error: empty: no run is in this folder: neither events.jsonl nor config.yaml is there
    hint: `lowtide train` says at its end which folder the run is in; `runs/` is where they are by default
    ");
    assert_snapshot!(place.refuses("watch file"), @r"
    error: file: this is a file, not the folder of a run
    hint: `lowtide train` says at its end which folder the run is in; `runs/` is where they are by default
    ");
}

#[test]
fn a_port_in_use_is_refused_only_where_it_was_asked_for() {
    let place = sandbox();
    Written::begin(&place.path("runs/mine"));
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let told = place.refuses(&format!("watch --port {port}")).replace(&port.to_string(), "PORT");
    assert_snapshot!(told, @r"
    error: cannot listen at 127.0.0.1:PORT: another program listens there
    hint: without --port the next free port is taken
    ");
    let (one, other) = (Watching::start(&place, ""), Watching::start(&place, ""));
    assert_ne!(one.told["port"], other.told["port"]);
    assert_eq!(one.told["folders"], serde_json::json!(["runs/mine"]));
}

#[test]
fn what_may_not_be_read_is_refused() {
    let place = sandbox();
    Written::begin(&place.path("mine"));
    let events = place.path("mine/events.jsonl");
    fs::set_permissions(&events, fs::Permissions::from_mode(0o000)).unwrap();
    if fs::File::open(&events).is_ok() {
        eprintln!("skipped: the administrator may read everything");
        return;
    }
    assert_snapshot!(place.refuses("watch mine"), @"error: mine: Permission denied (os error 13)");
}

#[test]
fn other_machines_need_a_token() {
    let place = sandbox();
    Written::begin(&place.path("mine"));
    let watching = Watching::start(&place, "mine --host 0.0.0.0");
    assert!(watching.url().contains("/?token="), "{}", watching.told);
    let watching = Watching::start(&place, "mine --host ::1 --port 0");
    assert!(watching.url().starts_with("http://[::1]:") && watching.url().ends_with('/'), "{}", watching.told);
}

#[test]
fn a_signal_ends_it_well() {
    let place = sandbox();
    Written::begin(&place.path("mine"));
    for signal in ["-INT", "-TERM"] {
        let mut watching = Watching::start(&place, "mine");
        Command::new("kill").args([signal, &watching.child.id().to_string()]).status().unwrap();
        assert_eq!(watching.child.wait().unwrap().code(), Some(0), "{signal}");
    }
}
