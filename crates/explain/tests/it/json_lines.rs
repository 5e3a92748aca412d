//! A log that a logger or a collector put into lines of JSON is explained as the text it carries.

#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::fs;
use std::path::Path;

use lowtide_explain::{Cause, Context, Explanation, Investigation};
use serde_json::{Value, json};

fn explained(log: &str) -> Explanation {
    let mut investigation = Investigation::default();
    investigation.feed(log.as_bytes());
    investigation.finish(&Context::default())
}

fn cause(log: &str) -> Option<Cause> {
    explained(log).verdicts.first().map(|verdict| verdict.cause)
}

/// All stories and threads, by name.
fn logs() -> Vec<(String, String)> {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests");
    let folders = ["stories", "threads", "remedies"].map(|folder| fs::read_dir(tests.join(folder)).unwrap());
    let paths = folders.into_iter().flatten().map(|entry| entry.unwrap().path());
    let logs = paths.filter(|path| path.extension().is_some_and(|extension| extension == "log"));
    let mut logs: Vec<(String, String)> = logs
        .map(|path| (path.display().to_string(), String::from_utf8_lossy(&fs::read(&path).unwrap()).into_owned()))
        // What a progress bar wrote into one line is no line of a logger.
        .filter(|(_, log)| !log.contains('\r'))
        .collect();
    logs.sort();
    logs
}

/// How a line is put into an object; `usize` counts the lines.
type Form = fn(usize, &str) -> Value;

const FORMS: [(&str, Form); 7] = [
    (
        "structlog",
        |at, line| json!({"event": line, "level": "info", "timestamp": format!("2026-01-02T03:04:{:02}.123456Z", at % 60)}),
    ),
    ("zerolog", |at, line| json!({"level": "info", "time": 1_767_323_045 + at, "message": line})),
    (
        "docker",
        |_, line| json!({"log": format!("{line}\n"), "stream": "stderr", "time": "2026-01-02T03:04:05.123456789Z"}),
    ),
    ("loki", |_, line| json!({"labels": {"pod": "train-0"}, "line": line, "timestamp": "2026-01-02T03:04:05.1Z"})),
    ("fluentd", |_, line| json!({"log": line, "kubernetes": {"pod_name": "train-0", "labels": {"app": "train"}}})),
    (
        "python-json-logger",
        |at, line| json!({"asctime": format!("2026-01-02 03:04:{:02},123", at % 60), "levelname": "ERROR", "name": "train", "message": line}),
    ),
    (
        "docker of zap",
        |_, line| json!({"log": format!("{}\n", json!({"level": "info", "ts": 1.5, "msg": line})), "stream": "stdout", "time": "2026-01-02T03:04:05Z"}),
    ),
];

#[test]
fn objects_around_every_line_change_no_cause() {
    check_forms(2);
}

#[test]
#[ignore = "a minute for what others look at in turn: every form of every log"]
fn objects_of_every_form_change_no_cause() {
    check_forms(FORMS.len());
}

/// So many forms of each log, others of the next one.
fn check_forms(of_each: usize) {
    let logs: Vec<_> = logs().into_iter().map(|(story, log)| (story, cause(&log), log)).collect();
    assert!(logs.len() > 600, "{}", logs.len());
    let (mut tried, mut changed) = (0, Vec::new());
    for (at, (name, form)) in FORMS.into_iter().enumerate() {
        let in_turn = logs.iter().zip(at..).filter(|(_, turn)| turn % FORMS.len() < of_each);
        for ((story, before, log), _) in in_turn {
            let objects: String = log.lines().zip(0..).map(|(line, at)| format!("{}\n", form(at, line))).collect();
            // Longer ones are no posts, and read as they are.
            if objects.len() >= 64 << 10 {
                continue;
            }
            tried += 1;
            let after = cause(&objects);
            if *before != after {
                changed.push(format!("{name}, {story}: {after:?} instead of {before:?}"));
            }
        }
    }
    // A clock before every line hides what a terminal broke, now and then.
    assert!(changed.len() * 200 <= tried, "{} of {tried} {changed:#?}", changed.len());
}

#[test]
fn the_line_is_that_of_the_file() {
    let log = concat!(
        r#"{"time":"2026-01-02T03:04:05Z","level":"info","msg":"started with\n2 ranks","step":1}"#,
        "\n",
        r#"{"time":"2026-01-02T03:05:05Z","level":"info","msg":"training","step":40,"loss":2.5}"#,
        "\n",
        r#"{"time":"2026-01-02T03:06:05Z","level":"error","msg":"step failed","exc_info":"Traceback (most recent call last):\n  File \"t.py\", line 3, in <module>\n    loss.backward()\ntorch.OutOfMemoryError: CUDA out of memory. Tried to allocate 3.00 GiB. GPU 0 has a total capacity of 23.70 GiB of which 1.10 GiB is free."}"#,
        "\n",
    );
    let verdict = explained(log).verdicts.remove(0);
    assert_eq!((verdict.line, verdict.step), (3, Some(40)));
    assert_eq!(verdict.time.as_deref(), Some("2026-01-02T03:06:05"));
    assert!(verdict.code.is_some(), "{verdict:?}");
}

const ERROR: &str = "Traceback (most recent call last):\n  File \"t.py\", line 3, in <module>\n    loss.backward()\n\
    torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 3.00 GiB. GPU 0 has a total capacity of 23.70 GiB of \
    which 1.10 GiB is free. Including non-PyTorch memory, this process has 22.50 GiB memory in use.";

/// Steps as objects, in more bytes than a post has where there are many.
fn steps(count: usize) -> String {
    let step = |step: usize| json!({"time": format!("2026-01-02T03:04:{:02}Z", step % 60), "level": "info", "msg": "training", "step": step});
    (0..count).map(|number| format!("{}\n", step(number))).collect()
}

/// A line of more than 64 KiB has its message and the stack beside it found, wherever in it they stand, in a short log and in a long one.
#[test]
fn a_message_in_a_very_long_object_is_found_with_its_stack() {
    for count in [40, 4000] {
        for (before, after) in [(0, 300), (150, 150), (300, 0), (600, 300)] {
            let ids = |kibibytes: usize| "31 7 ".repeat(kibibytes * 205);
            let object = format!(
                r#"{{"level":"error","ids":"{}","exc_info":{},"msg":"step failed","more":"{}"}}"#,
                ids(before),
                json!(ERROR),
                ids(after)
            );
            assert!(object.len() > 256 << 10);
            let explanation = explained(&format!("{}{object}\n", steps(count)));
            let verdict = &explanation.verdicts[0];
            let place = (verdict.line, verdict.cause, verdict.tried_bytes.map(lowtide_core::Bytes::get));
            assert_eq!(place, (count as u64 + 1, Cause::Need, Some(3 << 30)), "{count} {before} {after}");
            assert!(verdict.code.is_some() && verdict.phase.is_some(), "{count} {before} {after}: {verdict:?}");
            assert_eq!(explanation.events, 1);
        }
    }
}

/// A line longer than is read as an object is searched as it is: the message is found, and its stack where it stands near.
#[test]
fn a_message_in_an_object_of_megabytes_is_found() {
    let ids = "31 7 ".repeat(400_000);
    for object in [
        format!(r#"{{"level":"error","ids":"{ids}","exc_info":{}}}"#, json!(ERROR)),
        format!(r#"{{"level":"error","exc_info":{},"ids":"{ids}"}}"#, json!(ERROR)),
    ] {
        let verdict = explained(&format!("{}{object}\n", steps(40))).verdicts.remove(0);
        assert_eq!((verdict.line, verdict.cause), (41, Cause::Need));
    }
}

/// What only a line of its own tells is read out of the last objects of a log that is no post.
#[test]
fn the_end_of_a_long_log_of_objects_is_read() {
    let log = |line: &str| format!("{}{}\n", steps(4000), json!({"log": format!("{line}\n"), "stream": "stderr"}));
    let killed = explained(&log("Killed"));
    assert_eq!((killed.verdicts[0].line, killed.verdicts[0].cause), (4001, Cause::HostMemory));
    assert!(explained(&log("done")).verdicts.is_empty());
    let plan = json!({"level": "info", "msg": "will retry on CUDA out of memory", "ids": "7 ".repeat(60_000)});
    let explanation =
        explained(&format!("{}{plan}\n{}\n", steps(4000), json!({"level": "error", "msg": "KeyError: 'x'"})));
    assert!(explanation.verdicts.is_empty());
    assert_eq!(explanation.not_memory.map(|found| found.line), Some(4001));
}

#[test]
fn plans_at_a_level_below_errors_are_none() {
    let log = concat!(
        r#"{"level":"info","msg":"will retry on CUDA out of memory"}"#,
        "\n",
        r#"{"level":"error","msg":"KeyError: 'prompt'"}"#,
        "\n"
    );
    let explanation = explained(log);
    assert!(explanation.verdicts.is_empty());
    assert_eq!(explanation.not_memory.map(|found| found.line), Some(1));
}
