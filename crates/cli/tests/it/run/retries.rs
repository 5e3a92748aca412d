//! Commands that run out of memory, and what is done about it.

use std::io::{Read, Write};
use std::process::Stdio;

use lowtide_testkit::Printout;
use serde_json::json;

use super::kit::Place;

/// Trains nothing, but takes memory as training does: so much for every sample of a micro-batch, within a limit of
/// its own.
const TRAIN: &str = r#"
import resource, sys
settings = dict(word.lstrip("-").split("=") for word in sys.argv[1:])
micro, accum = int(settings["bs"]), int(settings.get("accum", 1))
limit = int(settings.get("limit", 700)) << 20
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
samples = 0
for step in range(3):
    print("step", step, flush=True)
    for piece in range(accum):
        activations = bytearray(micro * (32 << 20))
        samples += micro
print("samples", samples, flush=True)
"#;
const RETRY: [&str; 2] = ["--retry-with", "--bs={micro} --accum={accum}"];

fn train(place: &Place, options: &[&str], words: &[&str]) -> Printout {
    place.run(&[&RETRY, options, &["--", "python3", "train.py"], words].concat())
}

#[test]
fn it_finishes_with_a_smaller_micro_batch_and_the_same_effective_batch() {
    let place = Place::with("train.py", TRAIN);
    let ran = train(&place, &[], &["--bs=32"]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    // 3 steps of 32 samples, whatever the pieces.
    assert!(ran.stdout.ends_with("samples 96\n"), "{}", ran.stdout);
    let story = place.story("runs/train-1");
    assert_eq!((&story["ending"], &story["effective_batch"]), (&json!("finished"), &json!(32)));
    let starts = story["starts"].as_array().unwrap();
    let outcomes: Vec<_> = starts.iter().map(|start| start["outcome"].as_str().unwrap()).collect();
    assert_eq!(outcomes, ["out_of_memory", "out_of_memory", "finished"]);
    assert_eq!(starts[2]["batch"], json!({"micro": 8, "accum": 4}));
    assert_eq!(starts[0]["line"], "MemoryError");
    assert!(place.text("runs/train-1/start-3.log").ends_with("samples 96\n"));
    assert!(ran.stderr.contains("finished after 2 restarts, effective batch 32 throughout"), "{}", ran.stderr);
}

/// Ends as PyTorch does on a small card, whose words have figures.
const ON_A_CARD: &str = r#"
import sys
sys.exit("""torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 6.14 GiB. GPU 0 has a total capacity of 11.69 GiB \
of which 2.68 GiB is free. Including non-PyTorch memory, this process has 9.01 GiB memory in use. Of the allocated memory \
8.56 GiB is allocated by PyTorch, and 224.90 MiB is reserved by PyTorch but unallocated.""")
"#;

#[test]
fn it_says_why_memory_ran_out_and_where_more_is_said() {
    let place = Place::with("train.py", ON_A_CARD);
    let ran = place.run(&["--", "python3", "train.py"]);
    assert_eq!(ran.code, Some(3), "{}", ran.stderr);
    assert!(ran.stderr.contains("cause: the step needs more memory than there is ("), "{}", ran.stderr);
    assert!(ran.stderr.contains("more: lowtide explain runs/train-1/start-1.log"), "{}", ran.stderr);
}

#[test]
fn the_environment_and_a_configuration_can_be_changed_too() {
    let script = "import os, sys\nmicro = int(os.environ.get('BS', 4))\nprint(micro, os.environ.get('ACC', 1))\n\
                  if micro > 2: raise MemoryError\n";
    let place = Place::with("env.py", script);
    let ran = place.run(&["--retry-env", "BS={micro} ACC={accum}", "--batch", "4", "--", "python3", "env.py"]);
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(0), "4 1\n2 2\n"));
    assert!(ran.stderr.contains("accumulation 2 x 2: BS=2 ACC=2 python3 env.py\n"), "{}", ran.stderr);

    let script =
        "import sys\ntext = open(sys.argv[1]).read()\nprint(text, end='')\nif 'bs: 8' in text: raise MemoryError\n";
    let place = Place::with("conf.py", script);
    std::fs::write(place.path("c.yaml"), "train:\n  bs: 8 # samples\n  acc: 1\n").unwrap();
    let retry = "train.bs={micro} train.acc={accum}";
    let ran = place.run(&["--config", "c.yaml", "--retry-config", retry, "--", "python3", "conf.py", "c.yaml"]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert!(ran.stdout.ends_with("train:\n  bs: 4 # samples\n  acc: 2\n"), "{}", ran.stdout);
    let copy = "lowtide:   runs/conf-1/retry-1.yaml is c.yaml with train.bs=4 train.acc=2\n";
    assert!(ran.stderr.contains(copy), "{}", ran.stderr);
    assert_eq!(place.text("c.yaml"), "train:\n  bs: 8 # samples\n  acc: 1\n");
}

#[test]
fn a_restart_goes_on_from_the_newest_checkpoint() {
    let script = "import sys\nprint(sys.argv[1:])\nopen('ckpt-7.pt', 'w').write('whole')\n\
                  open('ckpt-8.pt', 'wb').write(b'PK\\x03\\x04 cut short')\n\
                  if '--bs=4' in sys.argv: raise MemoryError\n";
    let place = Place::with("train.py", script);
    std::fs::File::create(place.path("ckpt-9.pt")).unwrap().set_modified(std::time::UNIX_EPOCH).unwrap();
    let resume = ["--resume-with", "--from={checkpoint}", "--checkpoint-glob", "ckpt-*.pt"];
    let ran = train(&place, &resume, &["--bs=4"]);
    assert_eq!(ran.stdout, "['--bs=4']\n['--bs=2', '--accum=2', '--from=ckpt-7.pt']\n", "{}", ran.stderr);
    assert_eq!(place.story("runs/train-1")["starts"][1]["resumed_from"], "ckpt-7.pt");
    assert!(
        ran.stderr.contains("lowtide: start 2 resumes from ckpt-7.pt with micro-batch x accumulation 2 x 2: "),
        "{}",
        ran.stderr
    );
    let resume = ["--forget", "--resume-with", "--from={checkpoint}", "--checkpoint-glob", "none-*.pt"];
    let ran = train(&place, &resume, &["--bs=4"]);
    let beginning = "lowtide: start 2 begins at step 0 (this run wrote no whole none-*.pt) with micro-batch";
    assert!(ran.stderr.contains(beginning), "{}", ran.stderr);
}

#[test]
fn the_smallest_micro_batch_is_tried_twice_and_the_story_told() {
    let place = Place::with("train.py", TRAIN);
    let ran = train(&place, &[], &["--bs=2", "--limit=40"]);
    assert_eq!(ran.code, Some(3), "{}", ran.stderr);
    let story = place.story("runs/train-1");
    assert_eq!((&story["ending"], &story["restarts"]), (&json!("last_rung"), &json!(2)));
    assert!(ran.stderr.contains("lowtide:   start 3: 1 x 2, "), "{}", ran.stderr);
    assert!(!ran.stderr.contains("throughout"), "{}", ran.stderr);
    let ran = train(&place, &["--max-restarts", "0"], &["--bs=2", "--limit=40"]);
    assert_eq!((ran.code, &place.story("runs/train-2")["ending"]), (Some(3), &json!("too_many_restarts")));
    assert!(
        ran.stderr.starts_with("lowtide: micro-batch x accumulation 2 x 1: no retry (--max-restarts 0)"),
        "{}",
        ran.stderr
    );
}

#[test]
fn another_failure_is_not_tried_again() {
    let place = Place::with(
        "train.py",
        "import sys\nprint('hint: lower batch_size if you see CUDA out of memory')\nsys.exit(5)\n",
    );
    let ran = train(&place, &[], &["--bs=4"]);
    assert_eq!(ran.code, Some(5), "{}", ran.stderr);
    assert_eq!(place.story("runs/train-1")["starts"].as_array().unwrap().len(), 1);
    // An error that the script got over, before it failed for another reason.
    let script = "try:\n    raise MemoryError('over')\nexcept MemoryError:\n    import traceback\n    \
                  traceback.print_exc()\n\
                  raise ValueError('no such split')\n";
    let place = Place::with("train.py", script);
    assert_eq!(train(&place, &[], &["--bs=4"]).code, Some(1));
    assert_eq!(place.story("runs/train-1")["ending"], "failed");
}

#[test]
fn an_error_that_is_only_shown_is_not_tried_again() {
    let shown = [
        r#"{"level":"info","msg":"will retry on CUDA out of memory"}"#,
        "usage: train.py [--bs N]\n  RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB  lower --bs",
        "FAQ: what to do where you get CUDA out of memory. Tried to allocate 2.00 GiB (GPU 0; 8.00 GiB total capacity)",
        "bs: 4  # 8 gives CUDA out of memory. Tried to allocate 2.00 GiB",
        "old.log:12:torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB",
        "> torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB",
        "[ 812.1] oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null),task=python,pid=812,uid=0\n\
         [ 812.2] Out of memory: Killed process 812 (python) total-vm:9kB, anon-rss:8kB, file-rss:0kB, shmem-rss:0kB",
    ];
    for text in shown {
        let place = Place::with("train.py", "import sys\nprint(open('text').read())\nsys.exit(6)\n");
        place.write("text", text);
        let ran = train(&place, &[], &["--bs=4"]);
        assert_eq!(
            (ran.code, &place.story("runs/train-1")["restarts"]),
            (Some(6), &json!(0)),
            "{text}: {}",
            ran.stderr
        );
    }
}

#[test]
fn an_error_of_another_kind_that_quotes_one_is_not_tried_again() {
    let old = "Traceback (most recent call last):\n  File \"/x/t.py\", line 3\n    f()\n\
               torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n";
    for (script, code) in [
        ("raise FileNotFoundError('runs/oom-CUDA out of memory/x.log')", 1),
        ("raise ValueError(\"on_oom is none of ['skip', 'CUDA out of memory']\")", 1),
        ("print(\"settings: on_oom='RuntimeError: CUDA out of memory' retries=3\")\nraise ValueError('row 7')", 1),
        (
            "print('WARNING: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.')\nraise SystemExit(1)",
            1,
        ),
        ("print(open('text').read())\nraise KeyError('x')", 1),
        ("print('the previous run ended with:')\nprint(open('text').read())\nraise SystemExit(1)", 1),
        ("print(open('text').read())\nraise SystemExit(9)", 9),
    ] {
        let place = Place::with("train.py", script);
        place.write("text", old);
        let ran = train(&place, &[], &["--bs=4"]);
        let restarts = &place.story("runs/train-1")["restarts"];
        assert_eq!((ran.code, restarts), (Some(code), &json!(0)), "{script}: {}", ran.stderr);
    }
    // One that the script caught and logged, before it ended by a code of its own.
    let script = "import logging, sys\nif '--bs=4' in sys.argv:\n    try: raise MemoryError\n    \
                  except MemoryError: logging.exception('training failed'); sys.exit(5)\n";
    let place = Place::with("train.py", script);
    assert_eq!(train(&place, &[], &["--bs=4"]).code, Some(0));
}

/// Reads all of its input, and runs out of memory above two samples at once.
const READER: &str = "import sys\nprint(len(sys.stdin.read()), flush=True)\n\
                      if '--bs=2' not in sys.argv: raise MemoryError\n";

#[test]
fn a_file_is_read_again_by_a_retry() {
    let place = Place::with("train.py", READER);
    place.write("in.txt", "0123456789");
    // As far as whoever was before it has read, and no further.
    let line = "{ head -c 4 > /dev/null; \"$@\"; } < in.txt";
    let retry = ["run", RETRY[0], RETRY[1], "--", "python3", "train.py", "--bs=4"];
    let mut command = std::process::Command::new("sh");
    command.args(["-c", line, "sh", env!("CARGO_BIN_EXE_lowtide")]).args(retry);
    let ran = Printout::of(command.current_dir(place.path("")).output().unwrap());
    let (first, second) = ran.stdout.trim_end().split_once('\n').unwrap();
    assert_eq!((ran.code, first), (Some(0), second), "{}", ran.stderr);
    assert!(
        ran.stderr.contains("lowtide: standard input is a file: the next start reads it again\n"),
        "{}",
        ran.stderr
    );
}

#[test]
fn what_was_read_from_a_pipe_ends_the_retries() {
    let piped = |script: &str| {
        let place = Place::with("train.py", script);
        let words = [&RETRY[..], &["--", "python3", "train.py", "--bs=4"]].concat();
        let mut command = place.command(&words);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(b"0123456789").unwrap();
        let ran = Printout::of(child.wait_with_output().unwrap());
        (ran, place.story("runs/train-1")["ending"].clone())
    };
    let (ran, ending) = piped(READER);
    assert_eq!((ran.code, &*ran.stdout, ending), (Some(3), "10\n", json!("input_gone")), "{}", ran.stderr);
    assert!(ran.stderr.contains("hint: give it a file, which a retry reads again"), "{}", ran.stderr);
    // Nobody has read from it.
    let (ran, ending) = piped("import sys\nif '--bs=2' not in sys.argv: raise MemoryError\n");
    assert_eq!((ran.code, ending), (Some(0), json!("finished")), "{}", ran.stderr);
}

#[test]
fn weights_that_do_not_fit_are_not_tried_with_every_micro_batch() {
    let script = "import sys\n\
                  class Module:\n    def to(self, device):\n        raise RuntimeError('CUDA out of memory. Tried to \
                  allocate 786.00 MiB. GPU 0 has a total capacity of 7.79 GiB of which 512.00 MiB is free.')\n\
                  print(sys.argv[1:])\nmodel = Module()\nmodel.to('cuda')\n";
    let place = Place::with("train.py", script);
    let ran = train(&place, &[], &["--bs=32"]);
    assert_eq!(ran.code, Some(3), "{}", ran.stderr);
    let story = place.story("runs/train-1");
    assert_eq!((&story["ending"], &story["restarts"]), (&json!("same_on_every_rung"), &json!(1)), "{}", ran.stderr);
    assert_eq!(story["starts"][0]["phase"], "loading");
    assert!(ran.stderr.contains("hint: weights and the optimizer's state do not fit: LoRA"), "{}", ran.stderr);
}

#[test]
fn weights_that_do_not_fit_without_a_size_are_tried_twice_too() {
    let script = "class Model:\n    @staticmethod\n    def from_pretrained(name):\n        raise MemoryError\n\
                  model = Model.from_pretrained('large')\n";
    let place = Place::with("train.py", script);
    let ran = train(&place, &[], &["--bs=32"]);
    let story = place.story("runs/train-1");
    assert_eq!((&story["ending"], &story["restarts"]), (&json!("same_on_every_rung"), &json!(1)), "{}", ran.stderr);
    assert!(ran.stderr.contains("hint: weights and the optimizer's state do not fit: LoRA"), "{}", ran.stderr);
}

/// The same size whatever the micro-batch: after three of them a much smaller one and the smallest show whether any would help.
#[test]
fn a_request_that_does_not_shrink_is_not_tried_with_every_micro_batch() {
    let place = Place::with("train.py", &format!("print('step 3', flush=True)\n{ON_A_CARD}"));
    let ran = train(&place, &[], &["--bs=256"]);
    assert_eq!(ran.code, Some(3), "{}", ran.stderr);
    let story = place.story("runs/train-1");
    assert_eq!(story["ending"], "same_on_every_rung", "{}", ran.stderr);
    let micro: Vec<_> =
        story["starts"].as_array().unwrap().iter().map(|start| start["batch"]["micro"].clone()).collect();
    assert_eq!(micro, [256, 128, 64, 8, 1]);
    assert!(ran.stderr.contains("hint: every start asked for just as much: look whether"), "{}", ran.stderr);
    assert!(ran.stderr.contains("\nlowtide: hint: where it does, this makes room: "), "{}", ran.stderr);
    // Nothing but the place tells.
    let place = Place::with("train.py", "print('step 3', flush=True)\nraise MemoryError\n");
    let ran = train(&place, &[], &["--bs=256"]);
    let story = place.story("runs/train-1");
    assert_eq!((&story["ending"], &story["restarts"]), (&json!("same_on_every_rung"), &json!(5)), "{}", ran.stderr);
    assert!(ran.stderr.contains("hint: no start got any further: look whether"), "{}", ran.stderr);
}

#[test]
fn a_micro_batch_that_larger_ones_were_left_out_for_is_not_remembered() {
    let fails = |least: u64, size: &str| {
        format!(
            "import sys\nprint('step 3', flush=True)\nif int(sys.argv[1][5:]) > {least}:\n    \
             sys.exit('torch.OutOfMemoryError: CUDA out of memory. Tried to allocate {size}. GPU 0 has a total capacity of \
             79.10 GiB of which 16.00 MiB is free.')\n"
        )
    };
    let begins = ["256", "128", "64", "32", "16", "8"];
    for (size, micro, remembered) in
        [("512.00 MiB", &["256", "128", "64", "8"][..], false), ("20.00 MiB", &begins, true)]
    {
        let place = Place::with("train.py", &fails(8, size));
        let ran = train(&place, &[], &["--bs=256"]);
        assert_eq!(ran.code, Some(0), "{}", ran.stderr);
        let story = place.story("runs/train-1");
        let starts = story["starts"].as_array().unwrap().iter();
        assert_eq!(starts.map(|start| start["batch"]["micro"].to_string()).collect::<Vec<_>>(), micro);
        assert_eq!(place.path("runs/remembered.json").exists(), remembered, "{}", ran.stderr);
    }
}

#[test]
fn what_the_script_got_over_is_not_tried_again() {
    // Without a traceback at the end: only the steps tell.
    let script = "import sys\nprint('MemoryError: caught', file=sys.stderr)\n\
                  for step in range(50): print('step', step, file=sys.stderr)\nsys.exit('quota exceeded')\n";
    let place = Place::with("train.py", script);
    let ran = train(&place, &[], &["--bs=4"]);
    assert_eq!((ran.code, &place.story("runs/train-1")["ending"]), (Some(1), &json!("failed")), "{}", ran.stderr);
    // Caught and finished.
    let place = Place::with("train.py", "import sys\nprint('MemoryError: caught', file=sys.stderr)\n");
    assert_eq!(train(&place, &[], &["--bs=4"]).code, Some(0));
    assert_eq!(place.story("runs/train-1")["ending"], "finished");
}

#[test]
fn steps_that_python_held_back_were_before_the_error() {
    // Into a pipe, Python writes its output when it ends, after what it said on the other stream.
    let script = "import sys, time\nfor step in range(50): print('step', step)\n\
                  if '--bs=4' in sys.argv:\n    print('MemoryError: caught', file=sys.stderr)\n    \
                  time.sleep(0.5)\n    sys.exit(1)\n";
    let place = Place::with("train.py", script);
    let ran = train(&place, &[], &["--bs=4"]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let log = place.text("runs/train-1/start-1.log");
    assert!(log.find("MemoryError") < log.find("step 0"), "{log}");
    assert_eq!(place.story("runs/train-1")["restarts"], 1);
}

#[test]
fn steps_that_waited_for_a_slow_reader_were_before_the_error() {
    // More than our reader's pipe takes, less than the one between the script and us.
    let script = "import sys\nif '--bs=4' not in sys.argv: sys.exit()\n\
                  for step in range(40_000): print('step', step, 'loss 2.0', flush=True)\nraise MemoryError\n";
    let place = Place::with("train.py", script);
    let words = [&RETRY[..], &["--", "python3", "train.py", "--bs=4"]].concat();
    let errors = std::fs::File::create(place.path("errors")).unwrap();
    let mut child = place.command(&words).stdout(Stdio::piped()).stderr(errors).spawn().unwrap();
    for _ in 0..3000 {
        if place.text("errors").contains("\nMemoryError\n") {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    let mut out = String::new();
    child.stdout.take().unwrap().read_to_string(&mut out).unwrap();
    assert_eq!((child.wait().unwrap().code(), out.lines().count()), (Some(0), 40_000));
    let log = place.text("runs/train-1/start-1.log");
    assert!(log.find("MemoryError") < log.find("step 39000"));
    assert_eq!(place.story("runs/train-1")["restarts"], 1);
}

#[test]
fn steps_on_another_stream_long_after_the_error_got_over_it() {
    // A pipe that never runs empty, as of a busy machine, leaves open what was written when.
    let script = "import sys, time\nprint('MemoryError: caught', file=sys.stderr, flush=True)\ntime.sleep(0.5)\n\
                  for step in range(3000):\n    print('step', step, flush=True)\n    \
                  if step == 1000: time.sleep(0.5)\nsys.exit(5)\n";
    let place = Place::with("train.py", script);
    let ran = train(&place, &[], &["--bs=4"]);
    assert_eq!((ran.code, &place.story("runs/train-1")["ending"]), (Some(5), &json!("failed")), "{}", ran.stderr);
}

#[test]
fn a_retry_that_changes_nothing_is_told() {
    let place = Place::with("train.py", ON_A_CARD);
    let ran = train(&place, &[], &["--bs=2"]);
    assert_eq!(ran.code, Some(3));
    assert!(
        ran.stderr.contains("hint: every start asked for just as much: look whether the command takes"),
        "{}",
        ran.stderr
    );
}

#[test]
fn a_retry_that_changes_the_batch_is_told() {
    // It takes one half of what a retry changes.
    let script = "import sys\nmicro = int(sys.argv[1].split('=')[1])\n\
                  print(f'tokens per iteration will be: {micro * 1024:,}')\n";
    let place = Place::with("train.py", &format!("{script}if micro > 4: raise MemoryError\n"));
    let ran = train(&place, &[], &["--bs=8"]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let told = "lowtide:   the effective batch did not stay the same: start 1 reported 8192 tokens for a step, \
                start 2 reported 4096 tokens for a step\n";
    assert!(ran.stderr.contains(told) && !ran.stderr.contains("throughout"), "{}", ran.stderr);
    assert_eq!(place.story("runs/train-1")["effective_batch"], json!(null));

    let place = Place::with("train.py", &format!("{script}raise MemoryError\n"));
    let ran = train(&place, &[], &["--bs=8"]);
    assert_eq!(
        (ran.code, &place.story("runs/train-1")["ending"]),
        (Some(3), &json!("batch_changed")),
        "{}",
        ran.stderr
    );
    assert_eq!(place.story("runs/train-1")["restarts"], 1);
}

#[test]
fn a_kill_that_nothing_explains_is_not_tried_again() {
    let place = Place::new();
    let ran = place.run(&["--retry-env", "BS={micro} ACC={accum}", "--batch", "4", "--", "sh", "-c", "kill -KILL $$"]);
    assert_eq!(place.story("runs/sh-1")["exit_code"], 137);
    assert!(ran.stderr.contains("nothing shows that memory was the reason"), "{}", ran.stderr);
    assert_eq!(place.story("runs/sh-1")["starts"][0]["end"], json!({"signal": 9}));
}

#[test]
fn what_happened_is_told_also_where_no_further_start_can_be_made() {
    // The script takes away the folder in which its next configuration would be.
    let script = "import shutil\nshutil.rmtree('mine')\nraise MemoryError\n";
    let place = Place::with("train.py", script);
    std::fs::write(place.path("c.yaml"), "bs: 8\nacc: 1\n").unwrap();
    let config = ["--config", "c.yaml", "--retry-config", "bs={micro} acc={accum}", "--out", "mine"];
    let ran = place.run(&[&config[..], &["--", "python3", "train.py", "c.yaml"]].concat());
    assert_eq!(ran.code, Some(3), "{}", ran.stderr);
    assert!(ran.stderr.contains("start 1: 8 x 1, ") && !ran.stderr.contains("start 2"), "{}", ran.stderr);
    let gone = "error: mine/retry-1.yaml: No such file or directory (os error 2)\n";
    assert!(ran.stderr.contains(gone), "{}", ran.stderr);
}

#[test]
fn a_folder_with_a_colon_has_no_retry_by_a_copy_and_says_so_at_once() {
    let script = "import mine\nfrom transformers import TrainingArguments\n\
                  args = TrainingArguments('made', per_device_train_batch_size=8)\nprint('imported', flush=True)\nraise MemoryError\n";
    let place = Place::with("train.py", script);
    place.write("transformers.py", "class TrainingArguments:\n    def __init__(self, *words, **named): pass\n");
    place.write("src/mine.py", "");
    let mut command = place.command(&["--out", "at 10:20", "--", "python3", "train.py"]);
    let ran = Printout::of(command.env("PYTHONPATH", "src").output().unwrap());
    assert_eq!((ran.code, &*ran.stdout), (Some(3), "imported\n"), "{}", ran.stderr);
    let why = "at 10:20/retry-3.start: PYTHONPATH cannot name a folder with a colon in its path, so that no changed copy of \
               the script can be run";
    assert!(ran.stderr.contains(&format!("lowtide: warning: there will be no retry: {why}\n")), "{}", ran.stderr);
    assert!(ran.stderr.contains("hint: --out names another folder for the run, such as /tmp/NAME\n"), "{}", ran.stderr);
    assert!(!ran.stderr.contains("was not taken"), "{}", ran.stderr);
}
