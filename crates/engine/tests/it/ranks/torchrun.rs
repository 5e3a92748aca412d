//! torchrun itself as the one that starts ranks, and starts them again. `LOWTIDE_TORCH_PYTHON` names a Python that has it.

use std::env;
use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use lowtide_testkit::Printout;

use super::kit::{BUSY, engines, free_port, kill};
use crate::kit::{Place, lowtide};

fn torchrun(place: &Place, options: &str, words: &str) -> Command {
    let python = PathBuf::from(env::var_os("LOWTIDE_TORCH_PYTHON").expect("LOWTIDE_TORCH_PYTHON names a Python"));
    let mut command = Command::new(python.with_file_name("torchrun"));
    let port = free_port().to_string();
    command.args(["--nnodes=1", "--rdzv-backend=static", "--master-addr=127.0.0.1", "--master-port", &port]);
    command.args(options.split_whitespace()).arg("--no-python").arg(lowtide()).args(words.split_whitespace());
    command.current_dir(place.path("")).env("OMP_NUM_THREADS", "1");
    command
}

#[test]
#[ignore = "needs LOWTIDE_TORCH_PYTHON"]
fn two_ranks_of_torchrun_are_those_of_lowtide() {
    let place = Place::new();
    place.train("own", &format!("{BUSY} --ranks 2"));
    let words = format!("train tiny.yaml --device cpu --out out {BUSY}");
    let ran = Printout::of(torchrun(&place, "--nproc-per-node=2", &words).output().unwrap());
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert_eq!(place.hash("out"), place.hash("own"));
}

#[test]
#[ignore = "needs LOWTIDE_TORCH_PYTHON"]
fn a_killed_rank_is_started_again_and_goes_on_from_the_checkpoint() {
    let place = Place::new();
    let long = "--set train.steps=300 --set save.every=20 --set eval.every=null";
    place.train("whole", &format!("{long} --ranks 2"));
    let words = format!("train tiny.yaml --device cpu --out out {long}");
    let mut command = torchrun(&place, "--nproc-per-node=2 --max-restarts=1 --monitor-interval=0.1", &words);
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let is_saved = || place.path("out/checkpoints/00000040").is_dir();
    while !is_saved() {
        assert!(child.try_wait().unwrap().is_none(), "it ended before");
        thread::sleep(Duration::from_millis(5));
    }
    let victim = engines(child.id()).into_iter().find(|pid| variable(*pid, "RANK").as_deref() == Some("1")).unwrap();
    kill("KILL", victim);
    let ran = Printout::of(child.wait_with_output().unwrap());
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let starts: Vec<_> = place.events("out").into_iter().filter_map(started).collect();
    assert_eq!(starts.len(), 2, "{starts:?}");
    assert!(starts[1].is_some_and(|step| step >= 40), "{starts:?}");
    assert_eq!(place.hash("out"), place.hash("whole"));
}

fn started(event: lowtide_core::Event) -> Option<Option<u64>> {
    match event {
        lowtide_core::Event::RunStarted { resumed_at, .. } => Some(resumed_at.map(lowtide_core::Step::get)),
        _ => None,
    }
}

/// A variable of a process.
fn variable(pid: u32, name: &str) -> Option<String> {
    let all = fs::read(format!("/proc/{pid}/environ")).ok()?;
    let all = String::from_utf8_lossy(&all).into_owned();
    all.split('\0').find_map(|entry| Some(entry.strip_prefix(name)?.strip_prefix('=')?.to_owned()))
}
