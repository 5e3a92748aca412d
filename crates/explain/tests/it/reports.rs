//! What processes wrote down themselves: it names the line that asked, and who holds most.

use lowtide_explain::{Context, MemoryReport, MemorySnapshot, TensorGroup, Verdict, explain};

/// As PyTorch writes it where it kept a history, for two cards.
const SNAPSHOT: &[u8] = include_bytes!("../reports/history.pickle");
/// A script that shows errors in its own way: no stack is in its log.
const LOG: &str = "step 3 loss 2.1\nmy own words: CUDA out of memory. Tried to allocate 3.00 GiB. GPU 0 has a total capacity of \
                   79.10 GiB of which 1.10 GiB is free. Process 7 has 78.00 GiB memory in use. Of the allocated memory 77.00 GiB \
                   is allocated by PyTorch, and 500.00 MiB is reserved by PyTorch but unallocated.\n";

fn frame(file: &str, line: u64, function: &str, code: &str) -> String {
    format!(r#"{{"file": "{file}", "line": {line}, "function": "{function}", "code": "{code}"}}"#)
}

/// A report whose asking thread has these frames and whose main thread those.
fn report(device: &str, asked: u64, asking: &[String], main: &[String]) -> MemoryReport {
    let variable = frame("/home/u/model.py", 70, "forward", "x = self.attention(x)");
    let text = format!(
        r#"{{"schema": 1, "device": "{device}", "asked_bytes": {asked}, "error": "OutOfMemoryError: ...", "allocated_bytes": 1000000000,
        "snapshot": "s.pickle", "threads": [{{"name": "a", "asks": true, "main": false, "frames": [{}]}},
        {{"name": "MainThread", "asks": false, "main": true, "frames": [{}]}}],
        "holders": [{{"kind": "parameters", "bytes": 100000000, "count": 3}}, {{"kind": "optimizer state", "bytes": 200000000, "count": 6}}],
        "variables": [{{"name": "scores", "shape": [8, 12, 1024], "dtype": "float32", "bytes": 50000000, {}]}}"#,
        asking.join(", "),
        main.join(", "),
        variable.strip_prefix('{').expect("a list of variables"),
    );
    MemoryReport::read(&text).expect("a report")
}

fn forward() -> [String; 3] {
    [
        frame("/home/u/train.py", 40, "<module>", "loss = model(x)"),
        frame("/home/u/model.py", 77, "forward", "scores = query @ key"),
        frame("/env/lib/python3.12/site-packages/torch/nn/functional.py", 5, "linear", ""),
    ]
}

fn explained(log: &str, reports: Vec<MemoryReport>) -> Verdict {
    explain(log.as_bytes(), &Context { reports, ..Context::default() }).remove(0)
}

fn told(groups: &[TensorGroup]) -> Vec<String> {
    let place = |group: &TensorGroup| {
        let code = group.place.as_ref()?;
        Some(format!(" {}:{}", code.file, code.line?))
    };
    groups
        .iter()
        .map(|group| {
            let name = group.name.as_deref().unwrap_or_default();
            format!("{} {} {name}{}", group.bytes, group.count, place(group).unwrap_or_default())
        })
        .collect()
}

#[test]
fn the_line_that_asked_is_named() {
    let plain = explained(LOG, Vec::new());
    assert_eq!((plain.code, plain.culprit), (None, None));
    let verdict = explained(LOG, vec![report("cuda:0", 3 << 30, &forward(), &[])]);
    let code = verdict.code.expect("a line");
    assert_eq!((&*code.file, code.line, &*code.function), ("/home/u/model.py", Some(77), "forward"));
    assert_eq!(verdict.culprit.expect("a culprit").name, "`scores`");
    assert_eq!(verdict.step, Some(3));
}

#[test]
fn backward_is_of_the_thread_that_started_it() {
    let main = [frame("/home/u/train.py", 41, "<module>", "loss.backward()")];
    let library = [frame("/env/lib/python3.12/site-packages/torch/autograd/function.py", 9, "apply", "")];
    for asking in [&library[..], &[]] {
        let verdict = explained(LOG, vec![report("cuda:0", 3 << 30, asking, &main)]);
        assert_eq!(verdict.code.expect("a line").line, Some(41));
        assert_eq!(verdict.culprit.expect("a culprit").name, "gradients of activations");
    }
}

#[test]
fn a_report_of_another_error_is_left_out() {
    for (device, asked) in [("cuda:1", 3 << 30), ("cuda:0", 2 << 30), ("cpu", 3 << 30)] {
        let verdict = explained(LOG, vec![report(device, asked, &forward(), &[])]);
        assert_eq!((verdict.code, verdict.tensors), (None, Vec::new()), "{device} {asked}");
    }
    let second = vec![report("cuda:0", 2 << 30, &[], &[]), report("cuda:0", 3 << 30, &forward(), &[])];
    assert_eq!(explained(LOG, second).code.and_then(|code| code.line), Some(77));
    let host = "RuntimeError: [enforce fail at alloc_cpu.cpp:127] err == 0. DefaultCPUAllocator: can't allocate memory: you tried to \
                allocate 4294967296 bytes. Error code 12 (Cannot allocate memory)\n";
    let verdict = explained(host, vec![report("cpu", 4 << 30, &forward(), &[])]);
    assert_eq!(verdict.code.and_then(|code| code.line), Some(77));
}

#[test]
fn who_holds_most_without_a_history() {
    let verdict = explained(LOG, vec![report("cuda:0", 3 << 30, &forward(), &[])]);
    assert_eq!(
        told(&verdict.tensors),
        [
            "667.57 MiB 0 kept for backward, or by a library",
            "190.73 MiB 6 optimizer state",
            "95.37 MiB 3 parameters",
            "47.68 MiB 1 `scores` /home/u/model.py:70",
        ]
    );
}

#[test]
fn who_holds_most_by_the_line_that_made_it() {
    let snapshot = || MemorySnapshot::read(SNAPSHOT).expect("a snapshot");
    let on = |device: &str| {
        let log = LOG.replace("GPU 0", &format!("GPU {}", &device[5..]));
        told(&explained(&log, vec![report(device, 3 << 30, &[], &[]).with_snapshot(snapshot())]).tensors)
    };
    assert_eq!(
        on("cuda:0"),
        [
            "22.00 MiB 2  /home/u/model.py:77",
            "4.00 MiB 1 made before the history began",
            "4.00 MiB 1  /home/u/train.py:12"
        ]
    );
    assert_eq!(on("cuda:1"), ["1.00 MiB 1  /home/u/train.py:12"]);
}

#[test]
fn damaged_snapshots_and_other_texts_are_refused() {
    for length in 0..SNAPSHOT.len() {
        assert!(MemorySnapshot::read(&SNAPSHOT[..length]).is_err(), "{length}");
    }
    let mut bytes = SNAPSHOT.to_vec();
    for at in 0..bytes.len() {
        bytes[at] ^= 0x11;
        if let Ok(snapshot) = MemorySnapshot::read(&bytes[..]) {
            let _ = snapshot.groups(0);
        }
        bytes[at] ^= 0x11;
    }
    assert_eq!(
        MemorySnapshot::read(&b"\x80\x04}."[..]).unwrap_err().to_string(),
        "this is no memory snapshot: it has no `segments`"
    );
    for text in ["", "{}", "[]", "null", r#"{"schema": 2, "device": "cuda:0"}"#, r#"{"schema": 1}"#] {
        assert_eq!(MemoryReport::read(text), None, "{text}");
    }
}

#[test]
fn crumbs_that_an_ended_process_still_held_are_not_named() {
    let log =
        |asked: u64| format!("DefaultCPUAllocator: can't allocate memory: you tried to allocate {asked} bytes.\n");
    for (asked, expected) in [(200_000_000, 2), (3 << 30, 0)] {
        let verdict = explained(&log(asked), vec![report("cpu", asked, &forward(), &[])]);
        let kinds = verdict.tensors.iter().filter(|group| group.place.is_none());
        assert_eq!(kinds.filter(|group| group.count > 1).count(), expected, "{asked}");
        assert!(verdict.tensors.iter().any(|group| group.name.as_deref() == Some("`scores`")), "{asked}");
    }
}
