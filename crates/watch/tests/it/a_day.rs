//! Twenty-four hours of a run and of samples, in injected time.

use std::fs;
use std::path::Path;

use lowtide_watch::{Board, MOMENTS, POINTS, RESIDENT};
use serde_json::Value;

use crate::kit::{GIB, Served, Written, at, detail, sample};

const DAY: u64 = 24 * 3600;
/// What `lowtide watch` may take.
const MOST: u64 = 100 << 20;
/// The sample with the highest peak.
const PEAK: u64 = 70_001;

/// The most memory that this process ever had, in bytes.
fn peak() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
}

/// A step every two seconds, a note of memory every ten, two samples a second.
fn live_through(board: &mut Board, folder: &Path) {
    let me = std::process::id();
    let mut run = Written::begin(folder, at(0.0));
    for half in 1..=2 * DAY {
        let time = half as f64 / 2.0;
        if half % 4 == 0 {
            run.step(at(time), time, half / 4);
        }
        if half % 20 == 0 {
            run.memory(at(time), time, half / 4);
        }
        if half % 4 == 0 {
            board.look(at(time)).unwrap();
        }
        let resident = if half == PEAK { 15 * GIB } else { 4 * GIB + half % 1000 };
        board.add(at(time), sample(me, resident), (half % 20 == 0).then(|| detail(me)));
    }
}

#[test]
fn a_day_stays_small_and_nothing_is_written() {
    let folder = tempfile::tempdir().unwrap();
    Written::begin(folder.path(), at(0.0));
    fs::remove_file(folder.path().join("events.jsonl")).unwrap();
    fs::write(folder.path().join("config.yaml"), "").unwrap();
    let mut board = Board::open(&[folder.path().to_owned()]).unwrap();
    live_through(&mut board, folder.path());
    let run = &board.runs()[0];
    assert_eq!(run.figures().step, DAY / 2);
    assert!(run.timeline().points().len() <= POINTS && run.history().moments().len() <= MOMENTS);
    assert!(run.history().moments().len() > MOMENTS / 2, "{}", run.history().moments().len());
    assert_eq!(run.history().highest(RESIDENT).map(|bytes| bytes.get()), Some(15 * GIB));
    let last = run.history().moments().last().unwrap().time;
    assert!((last - DAY as f64).abs() < 120.0, "{last}");
    let peak = peak();
    assert!(peak < MOST, "{} MiB", peak >> 20);

    let served = Served::new(board);
    let whole = served.get("/api/run/0");
    assert!(whole.len() < 1 << 20, "{} bytes for a page that is opened", whole.len());
    let known: Value = serde_json::from_str(&whole).unwrap();
    let number = |key: &str| known[key]["time"].as_array().unwrap().len();
    let (points, moments, marks) = (number("points"), number("host"), known["marks"].as_array().unwrap().len());
    let generation = known["generation"].as_str().unwrap();
    let news =
        served.get(&format!("/api/run/0?generation={generation}&points={points}&marks={marks}&moments={moments}"));
    assert!(news.len() < 2048, "{} bytes for each second after: {news}", news.len());
    assert!(served.get("/api/runs").len() < 16 << 10 && served.get("/metrics").len() < 64 << 10);
    let mut names: Vec<_> = fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["config.yaml", "events.jsonl"]);
}
