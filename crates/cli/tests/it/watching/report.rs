//! `lowtide report`: files that are written.

use std::fs;

use insta::assert_snapshot;

use super::kit::Written;
use crate::kit::sandbox;

#[test]
fn a_run_is_written_down() {
    let place = sandbox();
    let mut run = Written::begin(&place.path("mine"));
    run.steps(4);
    run.run_out();
    run.steps(1);
    run.finish();
    let printout = place.run("report mine --svg mine.svg --png mine.png");
    assert_eq!((&*printout.stderr, &*printout.stdout), ("", "report.html\nmine.svg\nmine.png\n"));
    let page = fs::read_to_string(place.path("report.html")).unwrap();
    assert!(page.starts_with("<!doctype html>") && page.contains("\\u003cscript>document.title"));
    let png = fs::read(place.path("mine.png")).unwrap();
    // The size stands in its head.
    assert!(png.starts_with(b"\x89PNG\r\n\x1a\n") && png[16..24] == [0, 0, 7, 128, 0, 0, 3, 192], "{:?}", &png[..24]);
    let svg = fs::read_to_string(place.path("mine.svg")).unwrap();
    let told: Vec<&str> = svg.lines().filter(|line| line.contains("<title>") || line.contains("y=\"26.0\"")).collect();
    assert_snapshot!(told.join("\n"));
}

#[test]
fn the_newest_run_is_taken_where_none_is_named() {
    let place = sandbox();
    Written::begin(&place.path("runs/mine")).finish();
    let printout = place.run("report");
    let note = "note: this is the newest run, runs/mine\n";
    assert_eq!((&*printout.stderr, &*printout.stdout), (note, "report.html\n"));
}

#[test]
fn what_cannot_be_written_is_told() {
    let place = sandbox();
    Written::begin(&place.path("mine"));
    let told = place.refuses("report mine --out absent/report.html");
    assert_snapshot!(told, @"error: absent/report.html: No such file or directory (os error 2)");
    assert_snapshot!(place.refuses("report absent"), @r"
    error: absent: there is no such folder
    hint: `lowtide train` says at its end which folder the run is in; `runs/` is where they are by default
    ");
}
