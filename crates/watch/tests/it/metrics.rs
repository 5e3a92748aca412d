//! What Prometheus is told.

use std::collections::BTreeSet;
use std::env;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::process::{Command, Stdio};

use lowtide_watch::Board;

use crate::kit::{GIB, Served, Written, at, detail, sample};

/// Names the tool, which must then be there.
const VARIABLE: &str = "PROMTOOL";

/// Two runs of the same name, one of them under way, and the machine.
fn page() -> String {
    let place = tempfile::tempdir().unwrap();
    let folders = ["a/mine", "b/mine"].map(|name| place.path().join(name));
    folders.iter().for_each(|folder| fs::create_dir_all(folder).unwrap());
    let mut runs = folders.each_ref().map(|folder| Written::begin(folder, at(0.0)));
    runs[0].step(at(2.0), 2.0, 1);
    runs[0].memory(at(2.0), 2.0, 1);
    let mut board = Board::open(&folders).unwrap();
    board.catch_up(at(3.0)).unwrap();
    let me = std::process::id();
    board.add(at(3.0), sample(me, 4 * GIB), Some(detail(me)));
    let page = Served::new(board).get("/metrics");
    page.replace(&place.path().display().to_string(), "").replace(&format!("pid=\"{me}\""), "pid=\"10\"")
}

#[test]
fn every_series_belongs_to_a_family_with_help_and_is_there_once() {
    let page = page();
    let (mut help, mut family) = ("", "");
    let (mut families, mut all) = (BTreeSet::new(), BTreeSet::new());
    for line in page.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            (help, _) = rest.split_once(' ').unwrap();
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            let kind;
            (family, kind) = rest.split_once(' ').unwrap();
            assert_eq!((help, kind == "counter"), (family, family.ends_with("_total")), "{line}");
            assert!(families.insert(family), "twice: {line}");
        } else {
            let (series, value) = line.rsplit_once(' ').unwrap();
            assert_eq!(series.split('{').next(), Some(family), "{line}");
            assert!(value.parse::<f64>().is_ok() && all.insert(series), "{line}");
        }
    }
    for line in [
        "lowtide_device_memory_used_bytes{gpu=\"0\"} 44023414784",
        "lowtide_device_process_memory_bytes{gpu=\"0\",pid=\"10\",name=\"python3\"} 32212254720",
        "lowtide_process_resident_bytes{pid=\"10\",name=\"python3\"} 4294967296",
        "lowtide_cgroup_memory_limit_bytes 34359738368",
        "lowtide_run_steps_total{run=\"/a/mine\"} 1",
        "lowtide_run_steps_total{run=\"/b/mine\"} 0",
        "lowtide_run_memory_reserved_bytes{run=\"/a/mine\"} 32212254720",
        "lowtide_run_memory_line_bytes{run=\"/b/mine\"} 42949672960",
        "lowtide_run_allocator_retries_total{run=\"/a/mine\"} 3",
        "lowtide_run_phase{run=\"/a/mine\",phase=\"running\"} 1",
    ] {
        assert!(page.lines().any(|other| other == line), "{line} is not in\n{page}");
    }
    assert!(!page.contains("lowtide_run_memory_reserved_bytes{run=\"/b/mine\"}"), "nothing is no zero");
}

#[test]
fn promtool_accepts_it() {
    let tool = env::var(VARIABLE).unwrap_or_else(|_| "promtool".to_owned());
    let (stdin, stdout) = (Stdio::piped(), Stdio::piped());
    let started =
        Command::new(&tool).args(["check", "metrics"]).stdin(stdin).stdout(stdout).stderr(Stdio::piped()).spawn();
    let Ok(mut child) = started else {
        assert!(env::var_os(VARIABLE).is_none(), "{tool}, which {VARIABLE} names, cannot be started");
        // To the terminal itself: what a passing test prints is not shown.
        let loud =
            format!("\n*** SKIPPED: /metrics was NOT checked: there is no promtool; {VARIABLE} names it ***\n\n");
        let terminal = OpenOptions::new().append(true).open("/dev/tty");
        let _ = terminal.map(|mut terminal| terminal.write_all(loud.as_bytes()));
        eprint!("{loud}");
        return;
    };
    child.stdin.take().unwrap().write_all(page().as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(output.status.success() && text.trim().is_empty(), "{text}");
}
