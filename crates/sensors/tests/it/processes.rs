//! A process and its children, from made-up files.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use crate::kit::{Tree, stat};
use lowtide_sensors::{Cause, Children, Detail, Options, Reading, Sampler};

const MIB: u64 = 1 << 20;

/// `train` with a worker, its helper, and a stranger.
fn family() -> Tree {
    let tree = Tree::new();
    tree.process(10, 1, "train", 8192)
        .process(11, 10, "worker (1) x", 1024)
        .process(12, 11, "helper", 2048)
        .process(99, 1, "other", 4096);
    tree
}

fn pids(detail: &Detail) -> Vec<u32> {
    detail.processes.iter().map(|it| it.process.pid).collect()
}

#[test]
fn the_watched_process_and_those_below_it() {
    let tree = family();
    let mut sampler = tree.sampler(Some(10));
    let sample = sampler.fast(0.0);
    let process = sample.process.known().expect("it is there");
    assert_eq!((process.name.as_str(), process.pid, process.parent), ("train", 10, 1));
    assert_eq!((process.resident_bytes, process.peak_bytes, process.swap_bytes), (8 * MIB, 16 * MIB, 4096));
    assert_eq!(sample.children, Children { processes: 2, resident_bytes: 3 * MIB });

    let detail = sampler.slow(0.0);
    assert_eq!(pids(&detail), [10, 11, 12]);
    assert_eq!(detail.processes[1].process.name, "worker (1) x");
    assert_eq!(detail.processes[0].proportional_bytes, Reading::Known(4 * MIB));
}

#[test]
fn processes_besides_the_watched_one_have_samples_of_their_own() {
    let tree = family();
    tree.process(100, 99, "loader", 512);
    let mut sampler = tree.sampler(Some(10));
    sampler.watch_besides(&[99, 77]);
    let told = |sampler: &mut Sampler| -> Vec<(Option<u64>, Children)> {
        let others = sampler.fast(0.0).others;
        others.iter().map(|it| (it.process.known().map(|process| process.resident_bytes), it.children)).collect()
    };
    let below = |processes, resident_bytes| Children { processes, resident_bytes };
    assert_eq!(told(&mut sampler), [(Some(4 * MIB), below(1, MIB / 2)), (None, below(0, 0))]);
    assert_eq!(pids(&sampler.slow(0.0)), [10, 11, 12], "their shares are not read");
    // One ends, and a child of another is new: seen at once, and with the next lists.
    tree.process(101, 99, "loader", 512).remove("proc/10");
    assert!(sampler.fast(1.0).process.known().is_none());
    assert_eq!(told(&mut sampler)[0], (Some(4 * MIB), below(1, MIB / 2)));
    sampler.lists(1.0);
    assert_eq!(told(&mut sampler)[0], (Some(4 * MIB), below(2, MIB)));
    sampler.watch_besides(&[]);
    assert_eq!(told(&mut sampler), []);
}

#[test]
fn shares_are_kept_between_slow_samples_and_another_process_can_be_watched() {
    let tree = family();
    let mut sampler = tree.sampler(Some(10));
    let share = |detail: &Detail| detail.processes.iter().map(|it| it.proportional_bytes.known().copied()).collect();
    let before: Vec<Option<u64>> = share(&sampler.slow(0.0));
    tree.process(10, 1, "train", 4096).process(13, 10, "new", 512).remove("proc/12");
    let lists = sampler.lists(10.0);
    assert_eq!(pids(&lists), [10, 11, 13]);
    let kept: Vec<Option<u64>> = share(&lists);
    assert_eq!(kept, [before[0], before[1], Some(MIB / 4)], "those that are there keep theirs, new ones are read");
    assert_eq!(lists.processes[0].process.resident_bytes, 4 * MIB);
    let anew: Vec<Option<u64>> = share(&sampler.slow(20.0));
    assert_eq!(anew[0], Some(2 * MIB));
    sampler.watch(Some(99));
    assert_eq!(sampler.fast(21.0).process.known().map(|process| process.pid), Some(99));
    assert_eq!(pids(&sampler.slow(21.0)), [99]);
    sampler.watch(None);
    assert!(sampler.fast(22.0).process.known().is_none());
}

#[test]
fn who_samples_does_not_count_as_a_child() {
    let tree = family();
    let (root, nvml) = (tree.path().to_owned(), Some("/no/such/libnvidia-ml.so".into()));
    let options = Options { root, nvml, process: Some(10), leave_out: Some(12), ..Options::default() };
    let mut sampler = Sampler::new(options);
    assert_eq!(sampler.fast(0.0).children.processes, 1);
    assert_eq!(pids(&sampler.slow(0.0)), [10, 11]);
}

#[test]
fn lists_of_children_are_used_where_the_kernel_has_them() {
    let tree = family();
    // Started by a second thread; process 12 is not listed, which a look at every process would find.
    tree.write("proc/10/task/10/children", "").write("proc/10/task/15/children", "11 ");
    assert_eq!(pids(&tree.sampler(Some(10)).slow(0.0)), [10, 11]);
    tree.write("proc/11/task/11/children", "12 77 x");
    assert_eq!(pids(&tree.sampler(Some(10)).slow(0.0)), [10, 11, 12], "77 has ended, x is no process");
}

#[test]
fn processes_that_vanish_between_two_reads_are_left_out() {
    let tree = family();
    let mut sampler = tree.sampler(Some(10));
    assert_eq!(sampler.fast(0.0).children.processes, 2);
    tree.remove("proc/12");
    assert_eq!(sampler.fast(1.0).children, Children { processes: 1, resident_bytes: MIB });
    // There when processes are listed, gone when its figures are read.
    tree.remove("proc/11/status");
    assert_eq!(pids(&sampler.slow(2.0)), [10]);
    // Gone before its share is read.
    tree.remove("proc/10/smaps_rollup");
    let detail = sampler.slow(3.0);
    assert_eq!(detail.processes[0].proportional_bytes.missing().map(|missing| missing.cause), Some(Cause::Ended));
    tree.remove("proc/10/status");
    assert_eq!(sampler.fast(4.0).process.missing().map(|missing| missing.cause), Some(Cause::Ended));
}

#[test]
fn the_end_of_the_watched_process_is_a_value() {
    let tree = family();
    let mut sampler = tree.sampler(Some(10));
    tree.remove("proc/10");
    let sample = sampler.fast(0.0);
    assert_eq!(sample.process.missing().map(ToString::to_string).as_deref(), Some("process 10 is not there"));
    assert_eq!((sample.children, sampler.slow(1.0).processes.len()), (Children::default(), 0));
}

#[test]
fn a_later_process_with_the_same_number_is_not_taken_for_the_watched_one() {
    let tree = family();
    let mut sampler = tree.sampler(Some(10));
    tree.process(10, 1, "thief", 100).write("proc/10/stat", &stat(10, 1, "thief", 123_456));
    assert_eq!(sampler.fast(0.0).process.missing().map(|missing| missing.cause), Some(Cause::Ended));
    assert!(sampler.slow(0.0).processes.is_empty());
}

#[test]
fn a_process_that_nobody_waited_for_has_ended() {
    let tree = family();
    let mut sampler = tree.sampler(Some(10));
    tree.write("proc/10/status", "Name:\ttrain\nState:\tZ (zombie)\nPPid:\t1\n");
    assert_eq!(sampler.fast(0.0).process.missing().map(|missing| missing.cause), Some(Cause::Ended));
}

#[test]
fn a_new_child_is_found_by_the_next_slow_sample() {
    let tree = family();
    let mut sampler = tree.sampler(Some(10));
    tree.process(13, 10, "late", 1024);
    assert_eq!(sampler.fast(0.0).children.processes, 2);
    sampler.slow(1.0);
    assert_eq!(sampler.fast(2.0).children.processes, 3);
}

#[test]
fn malformed_numbers_are_missing_with_their_place() {
    let tree = family();
    let mut sampler = tree.sampler(Some(10));
    tree.write("proc/10/status", "Name:\ttrain\nVmRSS:\tlots kB\n");
    let sample = sampler.fast(0.0);
    let text = sample.process.missing().map(ToString::to_string);
    assert_eq!(text.as_deref(), Some("/proc/10/status: VmRSS is no number of kB: lots kB"));
    tree.process(10, 1, "train", 8192).write("proc/11/statm", "1 many").write("proc/12/statm", "");
    assert_eq!(sampler.fast(1.0).children, Children::default());
    tree.write("proc/10/smaps_rollup", "Pss: 1 MB\n");
    assert_eq!(sampler.slow(2.0).processes[0].proportional_bytes.missing().map(|it| it.cause), Some(Cause::Malformed));
    tree.write("proc/10/stat", "10 train S");
    assert_eq!(sampler.fast(3.0).process.missing().map(|missing| missing.cause), Some(Cause::Malformed));
}

#[test]
fn a_share_that_may_not_be_read_is_a_value() {
    let tree = family();
    let path = tree.path().join("proc/10/smaps_rollup");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o000)).expect("it is ours");
    if fs::read(&path).is_ok() {
        eprintln!("skipped: this user may read any file");
        return;
    }
    let detail = tree.sampler(Some(10)).slow(0.0);
    let missing = detail.processes[0].proportional_bytes.missing().expect("denied");
    assert_eq!(
        (missing.cause, missing.detail.as_str()),
        (Cause::Denied, "/proc/10/smaps_rollup may not be read by this user",)
    );
}

#[test]
fn a_process_that_holds_much_is_not_asked_for_its_share() {
    let tree = family();
    tree.process(10, 1, "train", (1 << 20) + 4);
    let detail = tree.sampler(Some(10)).slow(0.0);
    let causes: Vec<Option<Cause>> =
        detail.processes.iter().map(|it| it.proportional_bytes.missing().map(|missing| missing.cause)).collect();
    assert_eq!(causes, [Some(Cause::NotAsked), None, None]);
    tree.process(10, 1, "train", 1 << 20);
    assert_eq!(tree.sampler(Some(10)).slow(0.0).processes[0].proportional_bytes, Reading::Known(1 << 29));
}

#[test]
fn parents_in_a_circle_end() {
    let tree = family();
    tree.process(11, 12, "one", 1024).process(12, 11, "two", 1024).process(10, 10, "own parent", 1024);
    assert_eq!(pids(&tree.sampler(Some(11)).slow(0.0)), [11, 12]);
    assert_eq!(pids(&tree.sampler(Some(10)).slow(0.0)), [10]);
}
