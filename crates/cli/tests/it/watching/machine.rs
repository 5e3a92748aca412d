//! The machine and processes, as `lowtide watch` shows them.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use insta::assert_snapshot;
use lowtide_testkit::{alone, wait_until};
use serde_json::Value;

use super::browser::Browser;
use super::kit::{Watching, Written, get};
use crate::kit::sandbox;

/// A process that holds 64 MiB and has a child, until its standard input ends.
struct Worker(Child);

impl Worker {
    fn start() -> Worker {
        Worker::of(&["import subprocess, sys\nheld = bytearray(64 << 20)\n\
            child = subprocess.Popen(['cat'])\nprint('ready', flush=True)\nsys.stdin.read()\nchild.wait()"])
    }

    /// A process that holds so many MiB, and a run as an engine does that trains it.
    fn training(run: &Path, mebibytes: u32) -> Worker {
        let script = "import fcntl, sys\nrun = open(sys.argv[1], 'a')\nfcntl.flock(run, fcntl.LOCK_EX)\n\
            held = bytearray(int(sys.argv[2]) << 20)\nprint('ready', flush=True)\nsys.stdin.read()";
        Worker::of(&[script, run.join("events.jsonl").to_str().unwrap(), &mebibytes.to_string()])
    }

    fn of(words: &[&str]) -> Worker {
        let (stdin, stdout) = (Stdio::piped(), Stdio::piped());
        let mut child = Command::new("python3").arg("-c").args(words).stdin(stdin).stdout(stdout).spawn().unwrap();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut String::new()).unwrap();
        Worker(child)
    }

    fn end(&mut self) {
        drop(self.0.stdin.take());
        self.0.wait().unwrap();
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.end();
    }
}

fn list(watching: &Watching) -> Value {
    serde_json::from_str(&get(watching.url(), "api/runs")).unwrap()
}

#[test]
fn any_process_is_watched_with_its_children_until_it_ends() {
    let place = sandbox();
    let mut worker = Worker::start();
    let watching = Watching::start(&place, &format!("--pid {}", worker.0.id()));
    assert_eq!(watching.told["pid"], worker.0.id());
    wait_until(|| list(&watching)["live"]["holders"].as_array().is_some_and(|holders| holders.len() == 2));
    let told = list(&watching);
    let process = &told["process"];
    assert_eq!((&process["is_running"], &process["pid"]), (&true.into(), &worker.0.id().into()));
    assert!(process["resident"].as_u64().unwrap() >= 64 << 20, "{process}");
    assert!(process["name"].as_str().unwrap().starts_with("python3"), "{process}");
    let data: Value = serde_json::from_str(&get(watching.url(), "api/process")).unwrap();
    assert!(data["host"]["process_resident"][0].as_u64().unwrap() >= 64 << 20, "{data}");
    let metrics = get(watching.url(), "metrics");
    assert!(metrics.contains(&format!("lowtide_process_resident_bytes{{pid=\"{}\"", worker.0.id())), "{metrics}");
    worker.end();
    wait_until(|| list(&watching)["process"]["is_running"] == false);
    let process = &list(&watching)["process"];
    assert!(process["state_text"].as_str().unwrap().starts_with("The process has ended, after "), "{process}");
}

#[test]
fn what_is_no_process_is_refused() {
    let place = sandbox();
    // Beyond the largest number that Linux gives.
    assert_snapshot!(place.refuses("watch --pid 4194305"), @r"
    error: there is no process 4194305
    hint: `ps aux` lists those that you may see, with their numbers
    ");
    assert_snapshot!(place.refuses("top --pid 0"), @r"
    error: there is no process 0
    hint: `ps aux` lists those that you may see, with their numbers
    ");
    let told = place.refuses("watch mine --pid 1");
    assert!(told.contains("cannot be used with"), "{told}");
}

/// As the user `nobody`, who may not see all of a process of root's.
#[test]
fn another_users_process_is_told_as_far_as_it_may_be_seen() {
    let place = sandbox();
    let worker = Worker::start();
    let id = Command::new("id").arg("-u").output().unwrap();
    if id.stdout != b"0\n" {
        eprintln!("skipped: only the administrator can become another user");
        return;
    }
    let mut command = place.command(&format!("watch --json --pid {}", worker.0.id()));
    let program = command.get_program().to_owned();
    let mut words: Vec<_> = vec!["--reuid=65534".into(), "--clear-groups".into(), program];
    words.extend(command.get_args().map(ToOwned::to_owned));
    command = Command::new("setpriv");
    command.args(words).current_dir("/").env("LD_LIBRARY_PATH", "");
    let Some(watching) = Watching::of(command) else {
        eprintln!("skipped: another user may not start this program where it lies");
        return;
    };
    wait_until(|| list(&watching)["live"]["notes"].to_string().contains("is another user's"));
    assert!(list(&watching)["process"]["resident"].as_u64().unwrap() >= 64 << 20);
}

#[test]
fn a_run_is_shown_with_its_process_and_the_machine() {
    let _alone = alone();
    let place = sandbox();
    let mut run = Written::begin(&place.path("mine"));
    run.lock();
    run.steps(3);
    let watching = Watching::start(&place, "mine");
    wait_until(|| list(&watching)["live"]["holders"].to_string().contains(&std::process::id().to_string()));
    let names: Vec<String> = list(&watching)["live"]["gauges"]
        .as_array()
        .unwrap()
        .iter()
        .map(|gauge| gauge["name"].as_str().unwrap().to_owned())
        .collect();
    assert!(names.contains(&"this run".to_owned()) && names.contains(&"host".to_owned()), "{names:?}");
    wait_until(|| {
        let data: Value = serde_json::from_str(&get(watching.url(), "api/run/0")).unwrap();
        data["host"]["process_resident"].as_array().is_some_and(|values| values.len() >= 2)
    });
    let by_process = Watching::start(&place, &format!("--pid {}", std::process::id()));
    let mine = fs::canonicalize(place.path("mine")).unwrap();
    assert_eq!(by_process.told["folders"], serde_json::json!([mine]), "the run that the process trains");
}

#[test]
fn every_live_run_has_samples_of_its_own_process() {
    let place = sandbox();
    let sizes = [("a", 48), ("b", 160)];
    let _workers = sizes.map(|(name, mebibytes)| {
        let folder = place.path(&format!("runs/{name}"));
        Written::begin(&folder).steps(3);
        Worker::training(&folder, mebibytes)
    });
    let watching = Watching::start(&place, "runs/a runs/b");
    let resident = |id: usize| {
        let data: Value = serde_json::from_str(&get(watching.url(), &format!("api/run/{id}"))).unwrap();
        let samples = data["host"]["process_resident"].as_array().cloned().unwrap_or_default();
        samples.iter().filter_map(Value::as_u64).collect::<Vec<u64>>()
    };
    wait_until(|| (0..2).all(|id| resident(id).len() >= 3));
    let most = [0, 1].map(|id| resident(id).into_iter().max().unwrap() >> 20);
    assert!((48..160).contains(&most[0]) && most[1] >= 160, "{most:?}");
    let told = list(&watching);
    let gauges = told["live"]["gauges"].as_array().unwrap();
    let used = |name: &str| {
        let gauge = gauges.iter().find(|gauge| gauge["name"] == name);
        gauge.and_then(|gauge| gauge["used"].as_u64()).unwrap_or_else(|| panic!("{name}: {told}"))
    };
    assert!(used("a") >> 20 >= 48 && used("b") >> 20 >= 160, "{told}");
    let metrics = get(watching.url(), "metrics");
    assert_eq!(metrics.matches("\nlowtide_process_resident_bytes{").count(), 2, "{metrics}");
}

#[test]
fn the_page_draws_a_process_and_says_when_it_ended() {
    for (width, scheme) in [(1200, "light"), (420, "dark")] {
        let Some(browser) = Browser::open(width, 1000, scheme) else { return };
        let place = sandbox();
        let mut worker = Worker::start();
        let watching = Watching::start(&place, &format!("--pid {}", worker.0.id()));
        browser.go(watching.url());
        browser.wait_for("Number(document.body.dataset.sampled) >= 3");
        browser.wait_for("document.getElementById('state').textContent === 'running'");
        browser.wait_for("document.querySelectorAll('#holders tr').length === 2");
        browser.wait_for(&super::page::has_colour("host", "--reserved"));
        assert_eq!(browser.value("document.getElementById('banner').hidden"), true);
        assert_eq!(browser.value("document.documentElement.scrollWidth <= window.innerWidth"), true);
        browser.value(
            "document.getElementById('host').dispatchEvent(new PointerEvent('pointermove', {clientX: 200, clientY: 400}))",
        );
        let tip = browser.value("document.getElementById('tip').textContent");
        assert!(tip.as_str().unwrap().contains("process, on the host"), "{tip}");
        worker.end();
        browser.wait_for("document.getElementById('state').textContent === 'ended'");
        let told = browser.value("document.getElementById('banner').textContent");
        assert!(told.as_str().unwrap().starts_with("The process has ended"), "{told}");
    }
}
