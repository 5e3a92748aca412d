//! The page of metrics, by the rules of Prometheus's own linter.

use std::collections::BTreeSet;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use lowtide_sensors::prometheus::{RunFigures, exposition};
use lowtide_sensors::{CardProcesses, Detail, Gpu, GpuMemory, GpuProcess, Reading, Sample};

/// A sample in which every figure is there, with names that need escaping.
fn full() -> (Sample, Detail) {
    let tree = crate::kit::Tree::new();
    tree.process(10, 1, "tr\"ai\\n", 2048)
        .process(11, 10, "worker", 1024)
        .write(
            "proc/pressure/memory",
            "some avg10=0 avg60=0 avg300=0 total=1500000\nfull avg10=0 avg60=0 avg300=0 total=5\n",
        )
        .write("proc/self/mountinfo", "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n")
        .write("proc/10/cgroup", "0::/job\n")
        .write("sys/fs/cgroup/job/memory.max", "100000\n")
        .write("sys/fs/cgroup/job/memory.current", "40000\n");
    let mut sampler = tree.sampler(Some(10));
    let (mut sample, mut detail) = (sampler.fast(1.0), sampler.slow(1.0));
    sample.gpus.cards = (0..2).map(card).collect();
    let process = |pid| GpuProcess {
        pid,
        name: Reading::Known("tr\"ai\\n".to_owned()),
        memory_bytes: Reading::Known(7),
        watched: true,
    };
    // The same process twice: a server refuses a page with the same series twice.
    let processes = Reading::Known(vec![process(10), process(10), process(12)]);
    detail.cards = vec![CardProcesses { index: 0, processes }];
    (sample, detail)
}

fn card(index: u32) -> Gpu {
    let memory = GpuMemory { total_bytes: 48 << 30, used_bytes: 41 << 30, free_bytes: 6 << 30, driver_bytes: 1 << 30 };
    Gpu {
        index,
        name: "Made \"Up\"\n9000".to_owned(),
        uuid: format!("GPU-{index}"),
        memory: Reading::Known(memory),
        utilisation_percent: Reading::Known(87),
        temperature_celsius: Reading::Known(64),
    }
}

fn run(name: &str) -> RunFigures {
    RunFigures {
        name: name.to_owned(),
        phase: Some("train".to_owned()),
        steps: Some(1000),
        loss: Some(f64::NAN),
        micro_batch: Some(4),
        line_bytes: Some(3 << 30),
        allocated_bytes: Some(1 << 30),
        reserved_bytes: Some(2 << 30),
        peak_allocated_bytes: Some(2 << 30),
        allocator_retries: Some(0),
        out_of_memory: Some(1),
        metrics: vec![("psnr".to_owned(), 31.5), ("ssim".to_owned(), 0.9)],
    }
}

fn full_page() -> String {
    let (sample, detail) = full();
    exposition(Some(&sample), Some(&detail), &[run("one"), run("t\\w\"o")])
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
    let page = full_page();
    assert_eq!(faults(&page), Vec::<String>::new());
    for line in [
        "lowtide_device_memory_used_bytes{gpu=\"0\"} 44023414784",
        "lowtide_device_utilization_ratio{gpu=\"1\"} 0.87",
        "lowtide_device_info{gpu=\"0\",name=\"Made \\\"Up\\\"\\n9000\",uuid=\"GPU-0\"} 1",
        "lowtide_process_resident_bytes{pid=\"10\",name=\"tr\\\"ai\\\\n\"} 2097152",
        "lowtide_children_processes{pid=\"10\",name=\"tr\\\"ai\\\\n\"} 1",
        "lowtide_machine_memory_stalled_seconds_total{tasks=\"some\"} 1.5",
        "lowtide_cgroup_memory_limit_bytes 100000",
        "lowtide_cgroup_memory_left_bytes 60000",
        "lowtide_device_process_memory_bytes{gpu=\"0\",pid=\"12\",name=\"tr\\\"ai\\\\n\"} 7",
        "lowtide_run_loss{run=\"one\"} NaN",
        "lowtide_run_evaluation{run=\"t\\\\w\\\"o\",metric=\"psnr\"} 31.5",
    ] {
        assert!(page.lines().any(|other| other == line), "{line} is not in\n{page}");
    }
}

#[test]
fn what_is_missing_has_no_series() {
    let tree = crate::kit::Tree::new();
    let page = exposition(Some(&tree.sampler(None).fast(0.0)), None, &[]);
    let families: Vec<&str> = page.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next()).collect();
    let machine = [
        "lowtide_machine_memory_total_bytes",
        "lowtide_machine_memory_available_bytes",
        "lowtide_machine_swap_total_bytes",
        "lowtide_machine_swap_used_bytes",
    ];
    assert_eq!(families, machine);
    assert_eq!(exposition(None, None, &[]), "");
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

/// Prometheus's own tool, where it is installed, or where `PROMTOOL` says.
#[test]
fn promtool_accepts_the_page() {
    let tool = std::env::var("PROMTOOL").unwrap_or_else(|_| "promtool".to_owned());
    let started = Command::new(Path::new(&tool))
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let Ok(mut child) = started else {
        assert!(std::env::var_os("PROMTOOL").is_none(), "{tool}, which PROMTOOL names, cannot be started");
        // To the terminal itself: what a passing test prints is not shown.
        let loud = "\n*** SKIPPED: metrics were NOT checked: there is no promtool; PROMTOOL=FILE names it ***\n\n";
        let terminal = std::fs::OpenOptions::new().append(true).open("/dev/tty");
        let _ = terminal.map(|mut terminal| terminal.write_all(loud.as_bytes()));
        eprint!("{loud}");
        return;
    };
    child.stdin.take().expect("a pipe").write_all(full_page().as_bytes()).expect("a page is written");
    let output = child.wait_with_output().expect("it ends");
    let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(output.status.success() && text.trim().is_empty(), "{text}");
}
