//! The machine's memory, from made-up files.

use crate::kit::Tree;
use lowtide_sensors::{Cause, Missing, Reading, Sample, Stall};

fn sample(tree: &Tree) -> Sample {
    tree.sampler(None).fast(7.0)
}

fn missing<T>(reading: &Reading<T>) -> (Cause, &str) {
    let missing: &Missing = reading.missing().expect("nothing to read");
    (missing.cause, &missing.detail)
}

#[test]
fn memory_and_swap_are_bytes() {
    let tree = Tree::new();
    tree.write("proc/meminfo", "MemTotal: 1000 kB\nMemAvailable: 600 kB\nSwapTotal: 50 kB\nSwapFree: 20 kB\n");
    let machine = sample(&tree).machine.known().cloned().expect("a machine");
    assert_eq!((machine.total_bytes, machine.available_bytes), (1_024_000, 614_400));
    assert_eq!((machine.swap_total_bytes, machine.swap_used_bytes), (51_200, 30_720));
    assert_eq!(machine.used_bytes(), 409_600);
}

#[test]
fn a_machine_without_swap_and_pressure_is_normal() {
    let tree = Tree::new();
    let sample = sample(&tree);
    let machine = sample.machine.known().expect("a machine");
    assert_eq!((machine.total_bytes, machine.swap_total_bytes, machine.swap_used_bytes), (64 << 30, 0, 0));
    assert_eq!(missing(&machine.pressure), (Cause::Absent, "/proc/pressure/memory is not there"));
    assert_eq!(sample.time, 7.0);
}

#[test]
fn pressure_is_read() {
    let tree = Tree::new();
    tree.write(
        "proc/pressure/memory",
        "some avg10=1.50 avg60=0.25 avg300=0.07 total=27272120\n\
         full avg10=0.50 avg60=0.10 avg300=0.06 total=13247130\n",
    );
    let sample = sample(&tree);
    let pressure = sample.machine.known().and_then(|machine| machine.pressure.known()).expect("pressure");
    let some = Stall { last_10s_percent: 1.5, last_60s_percent: 0.25, total_microseconds: 27_272_120 };
    let full = Stall { last_10s_percent: 0.5, last_60s_percent: 0.1, total_microseconds: 13_247_130 };
    assert_eq!((pressure.some, pressure.full), (some, full));
}

#[test]
fn malformed_numbers_are_missing_with_their_place() {
    for text in
        ["some avg10=x avg60=0 total=1\nfull avg10=0 avg60=0 total=1\n", "some avg10=nan avg60=0 total=1", "", "\u{0}"]
    {
        let tree = Tree::new();
        tree.write("proc/pressure/memory", text);
        let sample = sample(&tree);
        assert_eq!(missing(&sample.machine.known().expect("a machine").pressure).0, Cause::Malformed, "{text:?}");
    }
    for text in
        ["MemTotal: many kB\nMemAvailable: 1 kB\n", "MemTotal: 99999999999999999999 kB\n", "MemTotal: -1 kB\n", ""]
    {
        let tree = Tree::new();
        tree.write("proc/meminfo", text);
        let sample = sample(&tree);
        assert_eq!(
            missing(&sample.machine),
            (Cause::Malformed, "/proc/meminfo: MemTotal is no number of kB"),
            "{text:?}"
        );
    }
    let tree = Tree::new();
    tree.write("proc/meminfo", "MemTotal: 18014398509481984 kB\nMemAvailable: 1 kB\n");
    assert_eq!(missing(&sample(&tree).machine).0, Cause::Malformed, "more bytes than a number holds");
}

#[test]
fn nothing_at_all_gives_reasons_for_everything() {
    let tree = Tree::new();
    tree.remove("proc");
    let mut sampler = tree.sampler(Some(4));
    let sample = sampler.fast(0.0);
    assert_eq!(missing(&sample.machine), (Cause::Absent, "/proc/meminfo is not there"));
    assert_eq!(missing(&sample.process), (Cause::Ended, "process 4 is not there"));
    assert_eq!(missing(&sample.cgroup), (Cause::Absent, "/proc/self/mountinfo is not there"));
    assert!(sampler.slow(0.0).processes.is_empty());
}

#[test]
fn a_sample_is_the_same_after_json() {
    let tree = Tree::new();
    tree.process(10, 1, "train", 2048);
    let mut sampler = tree.sampler(Some(10));
    let (sample, detail) = (sampler.fast(1.5), sampler.slow(1.5));
    let text = serde_json::to_string(&sample).expect("plain figures");
    assert_eq!(serde_json::from_str::<Sample>(&text).expect("the same form"), sample);
    assert!(text.contains(r#""resident_bytes":2097152"#), "{text}");
    assert!(
        text.contains(r#""pressure":{"missing":"absent","detail":"/proc/pressure/memory is not there"}"#),
        "{text}"
    );
    let text = serde_json::to_string(&detail).expect("plain figures");
    assert_eq!(serde_json::from_str::<lowtide_sensors::Detail>(&text).expect("the same form"), detail);
}
