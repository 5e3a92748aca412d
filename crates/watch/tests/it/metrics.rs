//! What Prometheus is told, by the rules of its own linter.

use std::collections::BTreeSet;
use std::env;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::process::{Command, Stdio};

use lowtide_core::Metrics;
use lowtide_sensors::{Cause, Gpus, Missing, Reading};
use lowtide_watch::Board;

use crate::kit::{GIB, Served, Written, at, detail, missing, sample};

/// Names the tool, which must then be there.
const VARIABLE: &str = "PROMTOOL";

/// Two runs of the same name, one of them under way, and the machine, with names that need escaping.
fn page() -> String {
    let place = tempfile::tempdir().unwrap();
    let folders = ["a/mi\\n\"e", "b/mi\\n\"e"].map(|name| place.path().join(name));
    folders.iter().for_each(|folder| fs::create_dir_all(folder).unwrap());
    let mut runs = folders.each_ref().map(|folder| Written::begin(folder, at(0.0)));
    runs[0].step(at(2.0), 2.0, 1);
    runs[0].memory(at(2.0), 2.0, 1);
    runs[0].evaluated(at(2.0), 2.0, 1, Metrics::from_iter([("psnr".to_owned(), 31.5), ("ssim".to_owned(), f64::NAN)]));
    let mut board = Board::open(&folders).unwrap();
    board.catch_up(at(3.0)).unwrap();
    let me = std::process::id();
    let (mut sample, mut detail) = (sample(me, 4 * GIB), detail(me));
    sample.gpus.cards[0].name = "Made \"Up\"\n9000".to_owned();
    let on_card = detail.cards[0].processes.known().unwrap();
    // The same process twice: a server refuses a page with the same series twice.
    detail.cards[0].processes = Reading::Known([on_card.as_slice(), on_card].concat());
    board.add(at(3.0), sample, Some(detail));
    let page = Served::new(board).get("/metrics");
    page.replace(&place.path().display().to_string(), "").replace(&format!("pid=\"{me}\""), "pid=\"10\"")
}

/// What `promtool check metrics` finds fault with, and what makes a server refuse a page.
fn faults(page: &str) -> Vec<String> {
    let mut faults = Vec::new();
    let (mut families, mut series) = (BTreeSet::new(), BTreeSet::new());
    let mut family = ("", "");
    let mut fault = |line: &str, what: &str| faults.push(format!("{what}: {line}"));
    let mut help = "";
    for line in page.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            let (name, text) = rest.split_once(' ').unwrap_or((rest, ""));
            help = name;
            if text.is_empty() {
                fault(line, "no help");
            }
            continue;
        }
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            family = rest.split_once(' ').unwrap_or((rest, ""));
            let (name, kind) = family;
            if help != name {
                fault(line, "no help");
            }
            if !families.insert(name) {
                fault(line, "a family twice");
            }
            if (kind == "counter") != name.ends_with("_total") {
                fault(line, "counters end in _total, and nothing else does");
            }
            if ["_count", "_sum", "_bucket", "_info_total"].iter().any(|end| name.ends_with(end)) {
                fault(line, "the end of a histogram");
            }
            if !name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_') {
                fault(line, "a name in capitals or with odd characters");
            }
            const UNITS: [&str; 12] = [
                "kilobytes",
                "megabytes",
                "gigabytes",
                "kib",
                "mib",
                "gb",
                "percent",
                "milliseconds",
                "ms",
                "us",
                "gauge",
                "counter",
            ];
            if name.split('_').any(|word| UNITS.contains(&word)) {
                fault(line, "no base unit, or a kind in the name");
            }
            continue;
        }
        let (name, value) = line.rsplit_once(' ').unwrap_or((line, ""));
        if value != "NaN" && value != "+Inf" && value.parse::<f64>().is_err() {
            fault(line, "no number");
        }
        if name.split('{').next() != Some(family.0) {
            fault(line, "a series outside of its family");
        }
        if !series.insert(name) {
            fault(line, "a series twice");
        }
    }
    faults
}

#[test]
fn the_full_page_has_no_faults() {
    let page = page();
    assert_eq!(faults(&page), Vec::<String>::new());
    for line in [
        r#"lowtide_device_memory_used_bytes{gpu="0"} 44023414784"#,
        r#"lowtide_device_utilization_ratio{gpu="0"} 0.87"#,
        r#"lowtide_device_info{gpu="0",name="Made \"Up\"\n9000",uuid="GPU-0"} 1"#,
        r#"lowtide_device_process_memory_bytes{gpu="0",pid="10",name="python3"} 32212254720"#,
        r#"lowtide_process_resident_bytes{pid="10",name="python3"} 4294967296"#,
        r#"lowtide_children_processes{pid="10",name="python3"} 8"#,
        r#"lowtide_machine_memory_stalled_seconds_total{tasks="some"} 0.000009"#,
        "lowtide_cgroup_memory_limit_bytes 34359738368",
        "lowtide_cgroup_memory_left_bytes 12884901888",
        r#"lowtide_run_steps_total{run="/a/mi\\n\"e"} 1"#,
        r#"lowtide_run_steps_total{run="/b/mi\\n\"e"} 0"#,
        r#"lowtide_run_memory_reserved_bytes{run="/a/mi\\n\"e"} 32212254720"#,
        r#"lowtide_run_memory_line_bytes{run="/b/mi\\n\"e"} 42949672960"#,
        r#"lowtide_run_allocator_retries_total{run="/a/mi\\n\"e"} 3"#,
        r#"lowtide_run_phase{run="/a/mi\\n\"e",phase="running"} 1"#,
        r#"lowtide_run_evaluation{run="/a/mi\\n\"e",metric="loss"} 1.5"#,
        r#"lowtide_run_evaluation{run="/a/mi\\n\"e",metric="psnr"} 31.5"#,
        r#"lowtide_run_evaluation{run="/a/mi\\n\"e",metric="ssim"} NaN"#,
    ] {
        assert!(page.lines().any(|other| other == line), "{line} is not in\n{page}");
    }
    assert!(!page.contains("lowtide_run_memory_reserved_bytes{run=\"/b/"), "nothing is no zero");
}

#[test]
fn what_is_missing_has_no_series() {
    let mut board = Board::default();
    assert_eq!(Served::new(Board::default()).get("/metrics"), "");
    let mut sample = sample(10, GIB);
    sample.gpus = Gpus { cards: Vec::new(), missing: Some(Missing { cause: Cause::Absent, detail: String::new() }) };
    sample.process = missing(Cause::Absent, "");
    sample.cgroup = missing(Cause::Absent, "");
    if let Reading::Known(machine) = &mut sample.machine {
        machine.pressure = missing(Cause::Absent, "");
    }
    board.add(at(0.0), sample, None);
    let page = Served::new(board).get("/metrics");
    let families: Vec<&str> = page.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next()).collect();
    let machine = [
        "lowtide_machine_memory_total_bytes",
        "lowtide_machine_memory_available_bytes",
        "lowtide_machine_swap_total_bytes",
        "lowtide_machine_swap_used_bytes",
    ];
    assert_eq!(families, machine);
}

#[test]
fn the_checks_above_find_faults() {
    let good = "# HELP a_total A.\n# TYPE a_total counter\na_total 1\n";
    assert_eq!(faults(good), Vec::<String>::new());
    for (from, to) in
        [("# HELP a_total A.\n", ""), (" A.", ""), ("counter", "gauge"), ("_total", "_ms"), (" 1", " one")]
    {
        assert_ne!(faults(&good.replace(from, to)), Vec::<String>::new(), "{from} -> {to}");
    }
    assert_eq!(faults(&format!("{good}a_total 2\n")), ["a series twice: a_total 2"]);
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
