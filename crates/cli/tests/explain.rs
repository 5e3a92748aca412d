//! `lowtide explain` as a person meets it.

#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::fs;
use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use insta::assert_snapshot;
use serde_json::Value;
use tempfile::TempDir;

const NANOGPT: &str = include_str!("../../explain/tests/golden/nanogpt.log");
const OPENWEBTEXT: &str = include_str!("../../explain/tests/golden/train_openwebtext.py");
const FRAMES: &str = include_str!("../../explain/tests/golden/frames.log");

/// A folder that a person stands in.
struct Place(TempDir);

struct Ran {
    code: Option<i32>,
    stdout: String,
    stderr: String,
}

impl Place {
    fn new(files: &[(&str, &[u8])]) -> Self {
        let place = Self(tempfile::tempdir().unwrap());
        files.iter().for_each(|(name, bytes)| fs::write(place.path(name), bytes).unwrap());
        place
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn text(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap()
    }

    fn run_with(&self, words: &[&str], input: &[u8]) -> Ran {
        let mut command = Command::new(env!("CARGO_BIN_EXE_lowtide"));
        command.current_dir(self.0.path()).arg("explain").args(words);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        // A command that ends early does not read to the end.
        let _ = stdin.write_all(input);
        drop(stdin);
        let output = child.wait_with_output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        Ran { code: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) }
    }

    fn run(&self, words: &[&str]) -> Ran {
        self.run_with(words, b"")
    }

    #[track_caller]
    fn refuses(&self, words: &[&str]) -> String {
        let ran = self.run(words);
        assert_eq!((ran.code, &*ran.stdout), (Some(2), ""), "{}", ran.stderr);
        ran.stderr
    }
}

#[test]
fn the_whole_story() {
    let place = Place::new(&[("train.log", FRAMES.as_bytes())]);
    let ran = place.run(&["train.log"]);
    assert_eq!((ran.code, &*ran.stderr), (Some(0), ""));
    assert_snapshot!(ran.stdout, @r"
    memory ran out at line 15 of train.log: device 0, in evaluation, after step 1000, at 2025-10-24 19:41:00

    cause     the step needs more memory than there is (95 % sure)
              also: much is reserved and idle, in pieces
    evidence  asked for 15.82 GiB; 6.17 GiB were free and 3.95 GiB reserved but not handed out, 10.12
              GiB together: 5.70 GiB too few
              36.79 GiB in use and 15.82 GiB more are 52.61 GiB, of 47.40 GiB on the device
              it happened in evaluation: the log says `[val]` shortly before
    culprit   whole frames, 2048 x 1080 x 1920 in fp32 = 15.82 GiB
              the size asked for is 2048 fp32 values (frames x channels) for each of 1920 x 1080 pixels
    advice    1. Evaluate on crops as training does, or cut whole frames into overlapping tiles and put
                 the outputs together: the figures of the whole frame in the memory of one tile
                 [same effective batch, model and numbers]
              2. Evaluate fewer samples at once, and turn outputs into plain numbers before the next
                 batch
                 [same effective batch, model and numbers]
              3. Give cached memory back before an evaluation and every few batches of it: gc.collect(),
                 then torch.cuda.empty_cache(); delete its outputs as soon as they are numbers
                 [same effective batch, model and numbers]
              4. Compute in bf16 (fp16 with a GradScaler where the card has no bf16) under
                 torch.autocast: about half the memory of activations
                 [changes numbers]
              5. Let reserved memory grow instead of lying in pieces: export
                 PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True (not enough alone)
                 [expected peak 52.61 GiB; same effective batch, model and numbers]
              6. Evaluate fewer batches, or more rarely; this saves time, the peak stays
                 [same effective batch, model and numbers]
              7. A smaller model, last of all
                 [changes model, numbers]
    ");
}

#[test]
fn a_patch_is_shown_and_written_only_when_told() {
    let place = Place::new(&[("train.log", NANOGPT.as_bytes()), ("train_owt.py", OPENWEBTEXT.as_bytes())]);
    let words = ["train.log", "--config", "train_owt.py"];
    let ran = place.run(&words);
    assert_eq!(ran.code, Some(0));
    assert!(ran.stdout.contains("-batch_size = 64\n+batch_size = 4\n"), "{}", ran.stdout);
    assert_eq!(place.text("train_owt.py"), OPENWEBTEXT);

    let ran = place.run(&["train.log", "--config", "train_owt.py", "--write"]);
    assert_eq!((ran.code, &*ran.stderr), (Some(0), ""));
    let patched = place.text("train_owt.py");
    assert!(
        patched.contains("batch_size = 4\n") && patched.contains("gradient_accumulation_steps = 16\n"),
        "{patched}"
    );
    assert_eq!(fs::read_dir(place.0.path()).unwrap().count(), 2);

    // The configuration is no longer the one of the log.
    let told = place.refuses(&["train.log", "--config", "train_owt.py", "--write"]);
    assert!(told.contains("another run"), "{told}");
    assert_eq!(place.text("train_owt.py"), patched);
}

#[test]
fn a_file_changed_after_the_log_may_have_the_patch() {
    let place = Place::new(&[("train.log", NANOGPT.as_bytes()), ("config.py", OPENWEBTEXT.as_bytes())]);
    let says = |ran: &Ran| ran.stdout.contains("it may have the patch already");
    assert!(!says(&place.run(&["train.log", "--config", "config.py"])));
    let log = fs::File::options().write(true).open(place.path("train.log")).unwrap();
    log.set_modified(std::time::SystemTime::now() - std::time::Duration::from_secs(60)).unwrap();
    assert!(says(&place.run(&["train.log", "--config", "config.py"])));
}

#[test]
fn a_command_line_is_a_configuration_too() {
    let place = Place::new(&[("train.log", NANOGPT.as_bytes())]);
    let ran = place.run(&["train.log", "--command", "python train.py config/a.py --batch_size=64"]);
    assert!(
        ran.stdout.contains("+python train.py config/a.py --batch_size=4 --gradient_accumulation_steps=16"),
        "{}",
        ran.stdout
    );
    let told = place.refuses(&["train.log", "--command", "python train.py --batch_size=64", "--write"]);
    assert!(told.contains("command line"), "{told}");
}

#[test]
fn json_is_a_list_last_event_first() {
    let log = format!("{NANOGPT}\n{}\n{FRAMES}", "step 7 loss 1.0\n".repeat(5000));
    let place = Place::new(&[]);
    let ran = place.run_with(&["-", "--json"], log.as_bytes());
    assert_eq!((ran.code, &*ran.stderr), (Some(0), ""));
    let list: Value = serde_json::from_str(&ran.stdout).unwrap();
    let tried: Vec<u64> = list.as_array().unwrap().iter().map(|event| event["tried_bytes"].as_u64().unwrap()).collect();
    assert_eq!(tried, [16_986_595_656, 6_592_774_799]);
    assert_eq!(list[0]["contributing"][0], "fragmentation");
}

#[test]
fn a_log_without_any() {
    let calm = "step 1 loss 2\nstep 2 loss 1\n";
    let rubbish: Vec<u8> = (0..200_000_u32).map(|number| (number.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    let place = Place::new(&[("calm.log", calm.as_bytes()), ("rubbish.bin", &rubbish), ("empty.log", b"")]);
    for name in ["calm.log", "rubbish.bin", "empty.log"] {
        let ran = place.run(&[name]);
        assert_eq!((ran.code, &*ran.stderr), (Some(1), ""), "{name}");
        assert_eq!(ran.stdout, format!("no out-of-memory error in {name}\n"));
        let ran = place.run(&[name, "--json"]);
        assert_eq!((ran.code, &*ran.stdout), (Some(1), "[]\n"), "{name}");
    }
    let ran = place.run_with(&["-"], b"x\nCUDA out of memory. Tried to allocate more than 1EB memory\n");
    assert_eq!(ran.code, Some(1));
    assert!(ran.stdout.contains("line 2: ") && ran.stdout.contains("a corrupted size"), "{}", ran.stdout);
}

#[test]
fn bad_input() {
    let place = Place::new(&[
        ("train.log", NANOGPT.as_bytes()),
        ("broken.yaml", b"a: [1\nb: 2\n"),
        ("broken.json", b"{\"a\": \n"),
        ("weights.py", &[0xff, 0xfe, 0x00]),
        ("empty.yaml", b"\n"),
        ("kept.py", OPENWEBTEXT.as_bytes()),
    ]);
    assert_snapshot!(place.refuses(&["nowhere.log"]), @"error: nowhere.log: No such file or directory (os error 2)");
    assert_snapshot!(place.refuses(&["train.log", "--config", "nowhere.py"]), @"error: nowhere.py: No such file or directory (os error 2)");
    assert_snapshot!(place.refuses(&["train.log", "--config", "broken.yaml"]), @r"
    error: broken.yaml, line 2: this is not YAML: illegal placement of ':' indicator
    hint: it is read by its ending: .py, .yaml, .json or .sh
    ");
    assert_snapshot!(place.refuses(&["train.log", "--config", "broken.json"]), @r"
    error: broken.json, line 2: this is not JSON: it ends too early
    hint: it is read by its ending: .py, .yaml, .json or .sh
    ");
    assert_snapshot!(place.refuses(&["train.log", "--config", "weights.py"]), @r"
    error: weights.py: this is not text
    hint: give the configuration of the run, not a checkpoint
    ");
    assert_snapshot!(place.refuses(&["train.log", "--config", "empty.yaml"]), @r"
    error: empty.yaml: no settings found in it
    hint: it is read by its ending: .py, .yaml, .json or .sh
    ");
    let mut permissions = fs::metadata(place.path("kept.py")).unwrap().permissions();
    permissions.set_readonly(true);
    fs::set_permissions(place.path("kept.py"), permissions).unwrap();
    assert_snapshot!(place.refuses(&["train.log", "--config", "kept.py", "--write"]), @r"
    error: kept.py: the file is read-only
    hint: nothing was written
    ");
    assert_eq!(place.text("kept.py"), OPENWEBTEXT);
    assert_snapshot!(place.refuses(&["train.log", "--write"]), @r"
    error: there is no patch to write
    hint: give the configuration of this run with --config
    ");
}
