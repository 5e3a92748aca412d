//! A sample in words, on the clock of a run, and of a process that ends.

use lowtide_core::Bytes;
use lowtide_sensors::{Cause, Gpus, Missing};
use lowtide_watch::{Board, HOST_USED, MachineStatus, ON_CARDS, RESIDENT};

use crate::kit::{GIB, Written, at, detail, missing, sample};

fn nameless(_: u32) -> (String, Option<Bytes>) {
    ("this run".to_owned(), None)
}

fn told(live: &MachineStatus) -> String {
    let gauge = |it: &lowtide_watch::Gauge| {
        let of = it.of.map_or(String::new(), |of| format!(" of {of}"));
        format!("{}: {}{of}; {}", it.name, it.used, it.note.as_deref().unwrap_or("-"))
    };
    let holder = |it: &lowtide_watch::Holder| format!("{:?} {} {:?} {:?}", it.card, it.pid, it.name, it.used);
    let gauges = live.gauges.iter().map(gauge);
    let holders = live.on_cards.iter().chain(&live.holders).map(holder);
    gauges.chain(holders).chain(live.notes.iter().cloned()).collect::<Vec<String>>().join("\n")
}

#[test]
fn a_sample_in_words() {
    let live = MachineStatus::of(&sample(10, 6 * GIB), Some(&detail(10)), |_| {
        ("this run".to_owned(), Some(Bytes::from_gib(16)))
    });
    insta::assert_snapshot!(told(&live), @r#"
    GPU 0: 42.00 GiB of 48.00 GiB; 6.00 GiB free, 87 % busy, 64 °C, Made Up 9000
    this run: 6.00 GiB of 16.00 GiB; python3, process 10, peak 9.00 GiB, 8 children with 2.00 GiB
    limit of its group: 20.00 GiB of 32.00 GiB; 5.00 GiB of it page cache that is given back first
    host: 24.00 GiB of 64.00 GiB; 40.00 GiB free, work waits for memory 2.5 % of the time
    swap: 1.00 GiB of 8.00 GiB; -
    Some(0) 10 "python3" Some(Bytes(32212254720))
    Some(0) 77 "" Some(Bytes(11811160064))
    None 10 "python3" Some(Bytes(3221225472))
    None 11 "pt_data_worker" Some(Bytes(536870912))
    "#);
    assert_eq!(live.host_limit, Some(Bytes::from_gib(32)));
}

#[test]
fn what_cannot_be_had_is_told_and_nothing_is_normal() {
    let mut sample = sample(10, 6 * GIB);
    sample.gpus = Gpus { cards: Vec::new(), missing: Some(Missing { cause: Cause::Absent, detail: "no".to_owned() }) };
    sample.cgroup = missing(Cause::Absent, "none");
    let mut detail = detail(10);
    detail.processes[0].proportional_bytes = missing(Cause::Denied, "permission denied");
    insta::assert_snapshot!(told(&MachineStatus::of(&sample, Some(&detail), nameless)), @r#"
    this run: 6.00 GiB; python3, process 10, peak 9.00 GiB, 8 children with 2.00 GiB
    host: 24.00 GiB of 64.00 GiB; 40.00 GiB free, work waits for memory 2.5 % of the time
    swap: 1.00 GiB of 8.00 GiB; -
    Some(0) 10 "python3" Some(Bytes(32212254720))
    Some(0) 77 "" Some(Bytes(11811160064))
    None 10 "python3" Some(Bytes(6442450944))
    None 11 "pt_data_worker" Some(Bytes(536870912))
    No NVIDIA card is here.
    Process 10 is another user's: what it shares with others cannot be told apart, so pages count as its own.
    "#);
    sample.gpus.missing = Some(Missing { cause: Cause::Denied, detail: "this user may not talk to it".to_owned() });
    sample.machine = missing(Cause::Absent, "/proc/meminfo: no such file");
    sample.process = missing(Cause::NotAsked, "no process is watched");
    insta::assert_snapshot!(told(&MachineStatus::of(&sample, None, nameless)), @r#"
    Cards cannot be seen: this user may not talk to it.
    The memory of the machine cannot be read: /proc/meminfo: no such file.
    "#);
}

#[test]
fn a_run_has_samples_on_its_own_clock() {
    let folder = tempfile::tempdir().unwrap();
    let me = std::process::id();
    let mut run = Written::begin(folder.path(), at(0.0));
    run.step(at(100.0), 100.0, 1);
    run.memory(at(110.0), 110.0, 1);
    let mut board = Board::open(&[folder.path().to_owned()]).unwrap();
    // Before the events are read, nobody knows where on that clock a sample lies.
    board.add(at(112.0), sample(me, GIB), None);
    board.catch_up(at(113.0)).unwrap();
    assert_eq!(board.processes(), [me]);
    board.add(at(113.0), sample(me, 4 * GIB), Some(detail(me)));
    assert_eq!(board.live().gauges[1].of, Some(Bytes::from_gib(16)), "the host limit");
    let free = board.runs()[0].free().map(|free| (free.bytes.get() / GIB, free.place.as_str()));
    assert_eq!(free, Some((6, "on GPU 0")), "as the driver says");
    // Another process's.
    board.add(at(114.0), sample(me + 1, 5 * GIB), None);
    let history = board.runs()[0].history();
    let curve = |name| history.curve(name).map(|(time, bytes)| (time, bytes.get() / GIB)).collect::<Vec<_>>();
    assert_eq!(curve(RESIDENT), [(110.0, 3), (113.0, 4)]);
    // Of the group, without the page cache.
    assert_eq!(curve(HOST_USED), [(110.0, 14), (113.0, 15)]);
    assert_eq!(curve(ON_CARDS), [(113.0, 30)]);
    assert_eq!(curve("gpu0_used"), [(113.0, 42)]);
    assert_eq!(board.live().gauges[1].of, None, "a process that is nobody's");
}

#[test]
fn a_process_is_watched_to_its_end() {
    let mut board = Board::of_process(10, at(0.0));
    assert_eq!((board.processes(), board.monitor().unwrap().name()), (vec![10], "process 10".to_owned()));
    board.add(at(1.0), sample(10, 4 * GIB), Some(detail(10)));
    board.add(at(61.0), sample(10, 3 * GIB), None);
    let row = board.monitor().unwrap().row();
    assert_eq!((row.name.as_str(), row.is_running, row.time), ("python3 (10)", true, 61.0));
    let gib = |bytes: Option<Bytes>| bytes.map(|bytes| bytes.get() / GIB);
    assert_eq!((gib(row.resident), gib(row.peak), gib(row.on_cards)), (Some(5), Some(9), Some(30)));
    let mut gone = sample(10, 0);
    gone.process = missing(Cause::Ended, "process 10 is not there");
    board.add(at(200.0), gone, None);
    board.add(at(300.0), sample(10, GIB), None);
    let monitor = board.monitor().unwrap();
    assert!(monitor.has_ended());
    assert_eq!(
        monitor.state_text(),
        "The process has ended, after 61 seconds of watching; its peak was 9.00 GiB in RAM."
    );
    assert_eq!(monitor.history().moments().len(), 2);
}
