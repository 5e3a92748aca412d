//! Output, exit codes and the log.

use std::io::Read;
use std::os::unix::process::ExitStatusExt;
use std::process::{Output, Stdio};

use lowtide_testkit::Printout;
use serde_json::json;

use super::kit::{Place, own_err};

#[test]
fn streams_stay_two_and_the_exit_code_passes() {
    let place = Place::new();
    let ran = place.run(&["--", "sh", "-c", "echo out; echo err >&2; exit 7"]);
    assert_eq!((ran.code, ran.stdout.as_str(), own_err(&ran)), (Some(7), "out\n", vec!["err"]));
    let mut log: Vec<String> = place.text("runs/sh-1/start-1.log").lines().map(str::to_owned).collect();
    log.sort();
    assert_eq!(log, ["err", "out"]);
    let story = place.story("runs/sh-1");
    assert_eq!((&story["ending"], &story["exit_code"], &story["restarts"]), (&json!("failed"), &json!(7), &json!(0)));
}

#[test]
fn the_command_reads_our_input_and_says_what_it_said_alone() {
    let place = Place::with("in.txt", "a line\n");
    let mut command = place.command(&["-q", "--", "cat"]);
    let output = command.stdin(std::fs::File::open(place.path("in.txt")).unwrap()).output().unwrap();
    assert_eq!(
        (output.status.code(), output.stdout.as_slice(), output.stderr.as_slice()),
        (Some(0), &b"a line\n"[..], &b""[..])
    );
}

#[test]
fn the_allocator_is_set_unless_the_user_did() {
    let place = Place::new();
    let words = ["-q", "--", "sh", "-c", "echo $PYTORCH_CUDA_ALLOC_CONF; exec python3 -c ''"];
    assert_eq!(place.run(&words).stdout, "expandable_segments:True\n");
    let mut command = place.command(&words);
    let output = command.env("PYTORCH_ALLOC_CONF", "backend:native").output().unwrap();
    assert_eq!(output.stdout, b"\n");
    // Where nothing of ours sees which PyTorch there is, it might be one that ends by it.
    assert_eq!(place.run(&[&["--no-watch-memory"], &words[..]].concat()).stdout, "\n");
    assert_eq!(place.run(&["-q", "--", "sh", "-c", "echo $PYTORCH_CUDA_ALLOC_CONF"]).stdout, "\n");
}

#[test]
fn a_full_disk_costs_the_log_and_nothing_else() {
    let place = Place::new();
    // No file may be larger than a block, which those who ignore the signal for it see as an error.
    let limited = "trap '' XFSZ; ulimit -f 1; exec \"$@\"";
    let command = place.command(&["--out", "out", "--", "sh", "-c", "seq 2000; exit 7"]);
    let mut shell = std::process::Command::new("sh");
    shell.args(["-c", limited, "sh"]).arg(command.get_program()).args(command.get_args()).current_dir(place.path(""));
    let ran = Printout::of(shell.output().unwrap());
    assert_eq!((ran.code, ran.stdout.lines().count()), (Some(7), 2000), "{}", ran.stderr);
    let full = "File too large (os error 27)";
    assert!(ran.stderr.contains(&format!("lowtide: out/start-1.log is not whole: {full}\n")), "{}", ran.stderr);
    let lost = format!("lowtide: the story of this run is not kept: out/summary.json: {full}\n");
    assert!(ran.stderr.contains(&lost), "{}", ran.stderr);
}

/// A command as a shell starts it that has set something up before.
fn after(set_up: &str, place: &Place, words: &[&str]) -> Output {
    let command = place.command(words);
    let mut shell = std::process::Command::new("sh");
    shell.args(["-c", &format!("{set_up}; exec \"$@\""), "sh"]);
    shell.arg(command.get_program()).args(command.get_args()).current_dir(place.path(""));
    shell.output().unwrap()
}

#[test]
fn a_limit_of_file_sizes_costs_the_log_and_not_the_exit_code() {
    let place = Place::new();
    let ran = Printout::of(after("ulimit -f 1", &place, &["--out", "out", "--", "sh", "-c", "seq 2000; exit 7"]));
    assert_eq!((ran.code, ran.stdout.lines().count()), (Some(7), 2000), "{}", ran.stderr);
    let told = ["out/start-1.log is not whole", "the story of this run is not kept"];
    assert!(told.iter().all(|words| ran.stderr.matches(words).count() == 1), "{}", ran.stderr);
}

#[test]
fn the_command_meets_the_limit_of_file_sizes_as_it_would_alone() {
    let place = Place::new();
    let ran = after("ulimit -f 1", &place, &["-q", "--out", "a", "--", "sh", "-c", "exec seq 2000 > file"]);
    assert_eq!(ran.status.signal(), Some(25), "{ran:?}");
    // Who set the signal to be ignored meant the command.
    let ran = after("trap '' XFSZ; ulimit -f 1", &place, &["-q", "--out", "b", "--", "sh", "-c", "seq 2000 > file"]);
    assert_eq!(ran.status.code(), Some(1), "{ran:?}");
}

#[test]
fn nobody_who_reads_costs_no_exit_code() {
    let place = Place::new();
    for closed in [">&-", "2>&-", ">&- 2>&-", "2>/dev/full"] {
        let ran = after(&format!("exec {closed}"), &place, &["--", "sh", "-c", "exit 7"]);
        assert_eq!(ran.status.code(), Some(7), "{closed}");
    }
}

#[test]
fn the_story_as_json_costs_no_exit_code() {
    let place = Place::new();
    let ran = place.run(&["-q", "--json", "-", "--", "sh", "-c", "echo said; exit 7"]);
    let (said, story) = ran.stdout.split_once('\n').unwrap();
    let story: serde_json::Value = serde_json::from_str(story).unwrap();
    assert_eq!((ran.code, said, &story["exit_code"]), (Some(7), "said", &json!(7)));
    // The folder goes away while the command runs.
    std::fs::create_dir(place.path("told")).unwrap();
    let ran = place.run(&["-q", "--json", "told/story.json", "--", "sh", "-c", "rm -r told; exit 7"]);
    let lost = "lowtide: the story is not written: told/story.json: No such file or directory (os error 2)\n";
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(7), lost));
}

#[test]
fn words_about_memory_are_no_kill() {
    let place = Place::new();
    let ran = place.run(&["-q", "--", "sh", "-c", "echo Out of memory, giving up; exit 1"]);
    let told = "lowtide: `Out of memory, giving up` alone does not show that memory ran out: not started again\n";
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(1), told));
}

#[test]
fn many_at_once_have_a_folder_each() {
    let place = Place::new();
    let start = |number: i32| {
        let script = format!("sleep 0.2; echo {number}");
        place.command(&["-q", "--", "sh", "-c", &script]).stdout(Stdio::null()).spawn().unwrap()
    };
    let children: Vec<_> = (1..=4).map(start).collect();
    for mut child in children {
        assert!(child.wait().unwrap().success());
    }
    let mut logs: Vec<String> = (1..=4).map(|number| place.text(&format!("runs/sh-{number}/start-1.log"))).collect();
    logs.sort();
    assert_eq!(logs, ["1\n", "2\n", "3\n", "4\n"]);
}

#[test]
fn a_reader_that_goes_away_ends_the_command() {
    let place = Place::new();
    let mut child = place.command(&["-q", "--", "yes"]).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut some = [0; 10];
    child.stdout.take().unwrap().read_exact(&mut some).unwrap();
    // The pipe is closed here: `yes` ends by SIGPIPE.
    assert_eq!(child.wait().unwrap().signal(), Some(13));
}

#[test]
fn a_gigabyte_passes_in_flat_memory() {
    let place = Place::new();
    // The peak of lowtide itself, told by its child when all has passed but what pipes hold.
    let script = "head -c 1000000000 /dev/zero; grep VmHWM /proc/$PPID/status >&2";
    let mut command = place.command(&["-q", "--", "sh", "-c", script]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut out = child.stdout.take().unwrap();
    let mut buffer = vec![0; 1 << 20];
    let mut passed = 0;
    loop {
        match out.read(&mut buffer).unwrap() {
            0 => break,
            size => passed += size,
        }
    }
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), passed), (Some(0), 1_000_000_000));
    let log = place.path("runs/sh-1/start-1.log");
    let told = String::from_utf8(output.stderr).unwrap();
    assert_eq!(log.metadata().unwrap().len(), 1_000_000_000 + told.len() as u64);
    let peak: u64 = told.split_whitespace().nth(1).unwrap().parse().unwrap();
    // The library of a card's driver takes some tens of megabytes where there is one.
    assert!(peak < 100 << 10, "lowtide took {peak} kB");
}
