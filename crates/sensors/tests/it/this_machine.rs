//! The machine that the tests run on gives plausible numbers.

use std::process::{Child, Command, Stdio};

use lowtide_sensors::{Options, Sampler};

/// Ends with the test.
struct Sleeper(Child);

impl Drop for Sleeper {
    fn drop(&mut self) {
        self.0.kill().and_then(|()| self.0.wait()).expect("a child that was started here");
    }
}

#[test]
fn what_this_process_holds_is_seen() {
    let held = std::hint::black_box(vec![1_u8; 200 << 20]);
    let child = Sleeper(Command::new("sleep").arg("600").stdin(Stdio::null()).spawn().expect("sleep"));
    let mut sampler = Sampler::new(Options { process: Some(std::process::id()), ..Options::default() });
    let (sample, detail) = (sampler.fast(0.0), sampler.slow(0.0));

    let machine = sample.machine.known().expect("a machine");
    assert!(machine.available_bytes <= machine.total_bytes && machine.total_bytes > 200 << 20, "{machine:?}");
    let process = sample.process.known().expect("this process");
    assert!(process.resident_bytes >= 200 << 20 && process.resident_bytes <= machine.total_bytes, "{process:?}");
    assert!(process.peak_bytes >= process.resident_bytes, "{process:?}");
    assert!(sample.children.processes >= 1 && sample.children.resident_bytes > 0, "{:?}", sample.children);
    if let Some(limit) = sample.cgroup.known().and_then(|group| group.limit_bytes) {
        assert!(limit >= 200 << 20, "{limit}");
    }
    let pids: Vec<u32> = detail.processes.iter().map(|it| it.process.pid).collect();
    assert_eq!(pids[0], std::process::id());
    assert!(pids.contains(&child.0.id()), "{pids:?}");
    let share = detail.processes[0].proportional_bytes.known().expect("the own share may be read");
    assert!(*share >= 200 << 20, "{share}");
    drop(held);
}

#[test]
fn a_process_that_ends_is_noticed() {
    let child = Sleeper(Command::new("sleep").arg("600").stdin(Stdio::null()).spawn().expect("sleep"));
    let mut sampler = Sampler::new(Options { process: Some(child.0.id()), ..Options::default() });
    assert!(sampler.fast(0.0).process.known().is_some());
    drop(child);
    assert!(sampler.fast(1.0).process.known().is_none());
}
