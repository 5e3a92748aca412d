//! The folder of a run as the other commands read it: `report`, `watch`, `explain`.

use std::fs;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use lowtide_testkit::Printout;
use serde_json::Value;

use super::kit::Place;

/// Prints steps as trainers do, and runs out of memory above four samples at once.
const TRAIN: &str = r#"
import sys, time
settings = dict(word.lstrip("-").split("=") for word in sys.argv[1:])
for step in range(1, 4):
    print(f"step {step}: loss {1 / step:.4f}", flush=True)
    time.sleep(float(settings.get("pause", 0.2)))
    if step == 2 and int(settings["bs"]) > 4:
        sys.exit("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 6.14 GiB. GPU 0 has a total capacity of "
                 "11.69 GiB of which 2.68 GiB is free. Including non-PyTorch memory, this process has 9.01 GiB memory in "
                 "use. Of the allocated memory 8.56 GiB is allocated by PyTorch, and 224.90 MiB is reserved by PyTorch "
                 "but unallocated.")
print("\x1b[32mall is well\x1b[0m", flush=True)
"#;
const COMMAND: [&str; 5] = ["--rung", "--bs={micro} --accum={accum}", "--", "python3", "train.py"];

fn lowtide(place: &Place, text: &str) -> Printout {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lowtide"));
    let command = command.args(text.split_whitespace()).current_dir(place.path(".")).stdin(Stdio::null());
    Printout::of(command.output().unwrap())
}

/// What a report has inside.
fn data(page: &str) -> Value {
    let data = page.split(r#"id="data">"#).nth(1).and_then(|rest| rest.split("</script>").next()).unwrap();
    serde_json::from_str(data).unwrap()
}

#[test]
fn every_start_is_told_to_those_who_watch() {
    let place = Place::with("train.py", TRAIN);
    let ran = place.run(&[&COMMAND[..], &["--bs=8"]].concat());
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let events = place.text("runs/train-1/events.jsonl");
    let kinds: Vec<String> = events
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap()["event"].as_str().unwrap().to_owned())
        .filter(|kind| kind != "command_memory")
        .collect();
    let expected = ["command_started", "command_ended", "command_started", "command_ended", "stopped"];
    assert_eq!(kinds, expected, "{events}");
    assert!(events.contains("command_memory"), "{events}");

    let written = lowtide(&place, "report runs/train-1 --svg chart.svg");
    assert_eq!((written.code, &*written.stderr), (Some(0), ""));
    let report = data(&place.text("report.html"));
    let (row, run) = (&report["runs"][0], &report["data"][0]);
    assert_eq!((&row["state"], &row["how"]), (&"ended".into(), &"finished".into()));
    assert_eq!((&row["command"]["start"], &row["command"]["micro_batch"]), (&2.into(), &4.into()));
    assert_eq!((&row["figures"]["out_of_memory"], &row["figures"]["recovered"]), (&1.into(), &1.into()));
    assert_eq!(row["figures"]["step"], 3);
    // Without the colours that the command printed.
    assert_eq!(run["output"].as_array().unwrap().last().unwrap(), "all is well");
    let marks: Vec<&str> = run["marks"].as_array().unwrap().iter().map(|mark| mark["text"].as_str().unwrap()).collect();
    assert_eq!(marks[0], "The command was started with micro-batch 8 x 1: python3 train.py --bs=8");
    assert!(marks[1].starts_with("Start 1 ran out of memory after ") && marks[1].contains(" at step 2: "), "{marks:?}");
    assert_eq!(marks[2], "Start 2 with micro-batch 4 x 2: python3 train.py --bs=4 --accum=2");
    assert_eq!(marks[3], "The run finished after step 3.");
    let held = run["host"]["children_resident"].as_array().unwrap();
    assert!(held.iter().any(|bytes| bytes.as_u64().is_some_and(|bytes| bytes > 1 << 20)), "{held:?}");
    let svg = place.text("chart.svg");
    assert!(svg.contains("the command, in RAM") && svg.contains("1 out-of-memory error"), "{svg}");
}

#[test]
fn a_run_under_way_is_seen_to_be() {
    let place = Place::with("train.py", TRAIN);
    let mut running = place.command(&[&COMMAND[..], &["--bs=2", "--pause=30"]].concat());
    let mut running = running.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let seen = (0..200).find_map(|_| {
        sleep(Duration::from_millis(50));
        (lowtide(&place, "report runs/train-1").code == Some(0))
            .then(|| data(&place.text("report.html")))
            .filter(|report| report["data"][0]["output"][0] == "step 1: loss 1.0000")
    });
    let told = Command::new("kill").arg(running.id().to_string()).status().unwrap();
    running.wait().unwrap();
    assert!(told.success());
    assert_eq!(seen.expect("a report")["runs"][0]["state"], "running");
    assert_eq!(lowtide(&place, "report runs").code, Some(0));
    assert_eq!(data(&place.text("report.html"))["runs"][0]["how"], "interrupted");
}

#[test]
fn explain_finds_the_newest_run_by_itself() {
    let place = Place::with("train.py", TRAIN);
    let none = lowtide(&place, "explain");
    assert_eq!(none.code, Some(2));
    assert!(none.stderr.starts_with("error: no log is named, and no run of `lowtide run` is in runs/ here\nhint: "));
    place.run(&[&COMMAND[..], &["--bs=8"]].concat());
    for words in ["explain", "explain runs/train-1", "explain runs"] {
        let told = lowtide(&place, words);
        // The last start finished; what is to be explained is the one before it.
        assert_eq!(told.code, Some(0), "{}", told.stderr);
        assert!(told.stdout.contains("runs/train-1/start-1.log"), "{}", told.stdout);
    }
    fs::create_dir(place.path("empty")).unwrap();
    let refused = lowtide(&place, "explain empty");
    assert!(
        refused.stderr.starts_with("error: empty: no log of `lowtide run` is in this folder"),
        "{}",
        refused.stderr
    );
}
