//! `lowtide explain` as a person meets it.

use std::ffi::OsStr;
use std::fs;
use std::io::Write;
use std::ops::Deref;
use std::os::unix::fs::MetadataExt;
use std::process::{Command, Stdio};

use insta::assert_snapshot;
use lowtide_testkit::{Printout, Sandbox};
use serde_json::Value;

use crate::kit::sandbox;

const NANOGPT: &str = include_str!("../../../explain/tests/golden/nanogpt.log");
const OPENWEBTEXT: &str = include_str!("../../../explain/tests/golden/train_openwebtext.py");
const RANKS: &str = include_str!("../../../explain/tests/ranks/two.log");
const FRAMES: &str = include_str!("../../../explain/tests/golden/frames.log");

/// A folder that a person stands in.
struct Place(Sandbox);

impl Deref for Place {
    type Target = Sandbox;

    fn deref(&self) -> &Sandbox {
        &self.0
    }
}

impl Place {
    fn new(files: &[(&str, &[u8])]) -> Self {
        let place = Self(sandbox());
        files.iter().for_each(|(name, bytes)| place.write(name, bytes));
        place
    }

    fn run_with(&self, words: &[&str], input: &[u8]) -> Printout {
        let mut command = self.command("explain");
        let mut child =
            command.args(words).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        // A command that ends early does not read to the end.
        let _ = stdin.write_all(input);
        drop(stdin);
        Printout::of(child.wait_with_output().unwrap())
    }

    fn run(&self, words: &[&str]) -> Printout {
        self.run_with(words, b"")
    }

    #[track_caller]
    fn refuses(&self, words: &[&str]) -> String {
        self.run(words).refusal()
    }

    /// Explains as ever, and says why nothing was written.
    #[track_caller]
    fn writes_nothing(&self, words: &[&str]) -> String {
        let told = self.run(words).stdout;
        let ran = self.run(&[words, &["--write"]].concat());
        assert_eq!((ran.code, &*ran.stdout), (Some(2), &*told), "{}", ran.stderr);
        ran.stderr
    }
}

#[test]
fn the_whole_story() {
    let place = Place::new(&[("train.log", FRAMES.as_bytes())]);
    let ran = place.run(&["train.log"]);
    assert_eq!((ran.code, &*ran.stderr), (Some(0), ""));
    assert_snapshot!(ran.stdout, @r"
    train.log, line 15: GPU 0 ran out of memory, in evaluation, after step 1000, at 2025-10-24 19:41:00

    what      It asked for 15.82 GiB: whole frames, 2048 x 1080 x 1920 in fp32
              src/models/vrt.py, line 702, in forward: x = self.conv_after_body(x)
    why       The step needs more memory than there is (95 % sure)
              Also: much is reserved and idle, in pieces
              Asked for 15.82 GiB; 6.17 GiB were free and 3.95 GiB reserved but not handed out, 10.12
              GiB together: 5.70 GiB too few
              36.79 GiB in tensors, 471.04 MiB outside of the allocator and 15.82 GiB more are 53.07
              GiB; the device has 47.40 GiB
    memory    of 47.40 GiB: 36.79 GiB tensors of this process, 3.95 GiB idle in its allocator, 471.04
              MiB this process outside its allocator, 6.17 GiB free
    do now    Evaluate on crops as training does, or in overlapping tiles whose outputs are put together
              (sliding-window inference): metrics of the whole picture in the memory of one tile
    or        Evaluate fewer samples at once, or fewer candidates for each; and move outputs to the CPU
              before the next batch (.detach().cpu())
    more      --all shows 7 more pieces of advice
    ");
}

#[test]
fn of_ranks_the_first_to_run_out_is_named() {
    let place = Place::new(&[("torchrun.log", RANKS.as_bytes())]);
    let shown = place.run(&["torchrun.log"]).stdout;
    assert_snapshot!(shown, @r"
    torchrun.log, line 20: GPU 1 ran out of memory, in training, after step 3

    what      It asked for 2.25 GiB: gradients of activations
              /home/me/train.py, line 16, in backward: raise
              torch.OutOfMemoryError(MESSAGE.format(gpu=dist.get_rank()))
    ranks     Rank 1 ran out of memory first, as the launcher saw it
              What rank 0 reported follows from it, a lost peer (line 31: RuntimeError:
              [/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:547] Connection closed by peer
              [127.0.0.1]:13743)
    why       The step needs more memory than there is (75 % sure)
              Asked for 2.25 GiB; 1.41 GiB were free and 812.30 MiB reserved but not handed out, 2.20
              GiB together: 47.86 MiB too few
              20.95 GiB in tensors, 467.70 MiB outside of the allocator and 2.25 GiB more are 23.66 GiB;
              the device has 23.64 GiB
    memory    of 23.64 GiB: 20.95 GiB tensors of this process, 812.30 MiB idle in its allocator, 467.70
              MiB this process outside its allocator, 1.41 GiB free
    do now    Halve the micro-batch and double gradient accumulation; the effective batch stays the same
    or        Smaller inputs (crops, a lower resolution, fewer frames or points, shorter texts); where
              that is not enough, a smaller model (fewer layers or channels), or a card with more memory
              [changes the numbers]
    more      --all shows 4 more pieces of advice
    ");
    let full = place.run(&["torchrun.log", "--all"]).stdout;
    assert!(full.contains("\nranks     Rank 1 ran out of memory first"), "{full}");
    let verdicts: Value = serde_json::from_str(&place.run(&["torchrun.log", "--json"]).stdout).unwrap();
    assert_eq!(
        (&verdicts[0]["ranks"]["first"], &verdicts[0]["ranks"]["consequences"][0]["rank"]),
        (&1.into(), &0.into())
    );
    let html = place.run(&["torchrun.log", "--html", "why.html"]);
    assert_eq!(html.code, Some(0));
    assert!(place.text("why.html").contains("Rank 1 ran out of memory first"));
}

#[test]
fn all_that_is_known_is_shown_when_asked() {
    let place = Place::new(&[("train.log", NANOGPT.as_bytes()), ("train_owt.py", OPENWEBTEXT.as_bytes())]);
    let short = place.run(&["train.log", "--config", "train_owt.py"]).stdout;
    let full = place.run(&["train.log", "--config", "train_owt.py", "--all"]).stdout;
    for words in ["\na step    parameters", "\nbesides   ", "\nadvice    1. ", "8. A smaller model"] {
        assert!(full.contains(words) && !short.contains(words), "{words}\n{full}");
    }
    // What everything keeps is not said of each.
    assert!(!full.contains("same effective batch"), "{full}");
}

#[test]
fn a_page_that_asks_nobody_and_escapes_all() {
    let log =
        NANOGPT.replace("logits, loss = model(X, Y)", "f('&lt;/pre&gt;<script>alert(1)</script>', \"&\")\u{202e}");
    let place = Place::new(&[("<b>.log", log.as_bytes()), ("train_owt.py", OPENWEBTEXT.as_bytes())]);
    let ran = place.run(&["<b>.log", "--config", "train_owt.py", "--html", "why.html"]);
    assert_eq!((ran.code, &*ran.stderr), (Some(0), ""));
    let page = place.text("why.html");
    for foreign in ["<script", "src=", "url(", "@import", "<link", "<b>.log", "\u{202e}", "href="] {
        assert!(!page.contains(foreign), "{foreign}");
    }
    // Addresses stand in quoted messages alone.
    assert_eq!(page.matches("http").count(), NANOGPT.lines().last().unwrap().matches("http").count());
    for part in [
        "GPU 0 ran out of memory</h1>",
        "<i class=\"tensors\" style=\"width:",
        "other processes <b>1.97 GiB</b>",
        "asked for <b>6.14 GiB</b>",
        "f(&#39;&lt;/pre&gt;&lt;script&gt;alert(1)&lt;/script&gt;&#39;, &quot;&amp;&quot;)",
        "<span class=\"added\">+batch_size = 4</span>",
    ] {
        assert!(page.contains(part), "{part}\n{page}");
    }
    let refused = place.run(&["<b>.log", "--html", "nowhere/why.html"]);
    assert_eq!(refused.code, Some(2));
}

#[test]
fn the_files_that_a_command_names_are_read() {
    let script = "batch_size = 12\ngradient_accumulation_steps = 5 * 8\nexec(open('configurator.py').read())\n";
    let place = Place::new(&[
        ("train.log", NANOGPT.as_bytes()),
        ("train.py", script.as_bytes()),
        ("owt.py", OPENWEBTEXT.as_bytes()),
    ]);
    let ran = place.run(&["train.log", "--command", "python -u train.py owt.py"]);
    assert_eq!(&*ran.stderr, "");
    let patch = ran.stdout.split_once("patch of ").unwrap().1;
    assert!(patch.starts_with("owt.py") && patch.contains("+gradient_accumulation_steps = 16\n"), "{patch}");
    assert_eq!(place.run(&["train.log", "--command", "python train.py owt.py", "--write"]).code, Some(0));
    assert!(place.text("owt.py").contains("batch_size = 4\n"));
    let missing = place.run(&["train.log", "--command", "python train.py --config=none.yaml"]);
    assert_eq!(missing.stderr, "note: none.yaml, which the command names, cannot be read from here\n");
}

#[test]
fn a_script_of_the_shell_that_a_command_runs_is_read_and_changed() {
    let script = "#!/bin/bash\nset -e\nBATCH=64\npython train.py \\\n  --batch-size $BATCH \\\n  --accum 2 --lr 1e-4\n";
    let python =
        "import argparse\np = argparse.ArgumentParser()\np.add_argument('--batch-size', type=int, default=8)\n";
    let log = "python train.py\nRuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB (GPU 0; 23.65 GiB total capacity; 21.00 GiB \
        already allocated; 1.20 GiB free; 21.50 GiB reserved in total by PyTorch)\n";
    let place =
        Place::new(&[("train.log", log.as_bytes()), ("run.sh", script.as_bytes()), ("train.py", python.as_bytes())]);
    let ran = place.run(&["train.log", "--command", "bash run.sh", "--write"]);
    assert_eq!(ran.code, Some(0), "{}{}", ran.stdout, ran.stderr);
    let expected = script.replace("BATCH=64", "BATCH=32").replace("--accum 2", "--accum 4");
    assert_eq!(place.text("run.sh"), expected, "{}", ran.stdout);
    assert_eq!(place.text("train.py"), python);
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
    assert_eq!(fs::read_dir(place.folder()).unwrap().count(), 2);

    // The configuration is no longer the one of the log.
    let told = place.writes_nothing(&["train.log", "--config", "train_owt.py"]);
    assert!(told.contains("another run"), "{told}");
    assert_eq!(place.text("train_owt.py"), patched);
}

#[test]
fn a_patch_that_is_not_enough_alone_stands_on_the_page_with_its_advice() {
    let model = r#"{"model_type": "llama", "hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": 32,
        "num_attention_heads": 32, "vocab_size": 32000, "tie_word_embeddings": false}"#;
    let script =
        "python run.py --per_device_train_batch_size 4 --gradient_accumulation_steps 2 --max_seq_length 2048 --bf16\n";
    let log = "***** Running training *****\nCUDA out of memory. Tried to allocate 512.00 MiB. GPU 0 has a total capacity of \
        23.65 GiB of which 120.00 MiB is free. Including non-PyTorch memory, this process has 23.50 GiB memory in use. Of the \
        allocated memory 22.90 GiB is allocated by PyTorch, and 60.00 MiB is reserved by PyTorch but unallocated.\n";
    let files = [("train.log", log), ("config.json", model), ("run.sh", script)];
    let place = Place::new(&files.map(|(name, text)| (name, text.as_bytes())));
    let page = place.run(&["train.log", "--config", "config.json", "--config", "run.sh"]).stdout;
    let number = page.split_once("patch of run.sh, for advice ").unwrap().1.split_once(' ').unwrap().0;
    let section = page.split_once(&format!("\nadvice {number}  ")).unwrap().1.split_once("\n\n").unwrap().0;
    assert!(
        section.contains("Compute 1 sample at once instead of 4") && section.contains("(not enough alone)"),
        "{page}"
    );
    assert!(page.contains("+python run.py --per_device_train_batch_size 1 --gradient_accumulation_steps 8"), "{page}");
}

#[test]
fn a_file_changed_after_the_log_may_have_the_patch() {
    let place = Place::new(&[("train.log", NANOGPT.as_bytes()), ("config.py", OPENWEBTEXT.as_bytes())]);
    let says = |ran: &Printout| ran.stdout.contains("it may have the patch already");
    assert!(!says(&place.run(&["train.log", "--config", "config.py"])));
    let log = fs::File::options().write(true).open(place.path("train.log")).unwrap();
    log.set_modified(std::time::SystemTime::now() - std::time::Duration::from_secs(60)).unwrap();
    assert!(says(&place.run(&["train.log", "--config", "config.py"])));
}

/// Nothing in this log tells the batch.
const BARE: &str = "step 9 loss 2.1\nCUDA out of memory. Tried to allocate 3.00 GiB. GPU 0 has a total capacity of \
                    23.65 GiB of which 1.20 GiB is free. Of the allocated memory 21.60 GiB is allocated by PyTorch, \
                    and 411.00 MiB is reserved by PyTorch but unallocated.\n";

#[test]
fn a_patch_is_not_written_twice() {
    let text = "batch_size: 12\ngradient_accumulation_steps: 2\n";
    let place = Place::new(&[("train.log", BARE.as_bytes()), ("run.yaml", text.as_bytes())]);
    let words = ["train.log", "--config", "run.yaml"];
    let patched = "batch_size: 6\ngradient_accumulation_steps: 4\n";
    let ran = place.run_with(&["-", "--config", "run.yaml", "--write"], BARE.as_bytes());
    assert_eq!((ran.code, &*ran.stderr, &*place.text("run.yaml")), (Some(0), "", patched));
    if !keeps_attributes(&place.path("run.yaml")) {
        eprintln!("files have no attributes here: a second patch is not noticed");
        return;
    }
    assert_snapshot!(place.writes_nothing(&words), @r"
    error: run.yaml: the patch of this log was written into it before
    hint: nothing was written; run with the file as it is, or add --force
    ");
    assert_eq!(place.text("run.yaml"), patched);
    // Another event, another patch.
    fs::write(place.path("next.log"), BARE.replace("3.00 GiB", "2.50 GiB")).unwrap();
    assert_eq!(place.run(&["next.log", "--config", "run.yaml", "--write"]).code, Some(0));
    assert_eq!(place.text("run.yaml"), "batch_size: 3\ngradient_accumulation_steps: 8\n");
    assert_eq!(place.run(&["next.log", "--config", "run.yaml", "--write", "--force"]).code, Some(0));
    assert_eq!(place.text("run.yaml"), "batch_size: 1\ngradient_accumulation_steps: 24\n");
}

fn keeps_attributes(path: &std::path::Path) -> bool {
    let flags = rustix::fs::XattrFlags::empty();
    rustix::fs::setxattr(path, "user.lowtide.test", b"1", flags).is_ok()
}

#[test]
fn why_there_is_no_patch() {
    let place = Place::new(&[
        ("train.log", BARE.as_bytes()),
        ("one.yaml", b"batch_size: 1\ngradient_accumulation_steps: 8\n"),
        ("power.py", b"batch_size = 2**5\ngradient_accumulation_steps = 8\n"),
        ("float.json", b"{\"batch_size\": 32.0, \"gradient_accumulation_steps\": 1}"),
        ("auto.json", b"{\"train_micro_batch_size_per_gpu\": \"auto\", \"gradient_accumulation_steps\": \"auto\"}"),
        ("steps.py", b"batch_size = 12\ngrad_accum_steps = 480 // batch_size\n"),
    ]);
    let told: Vec<String> = ["one.yaml", "power.py", "float.json", "auto.json", "steps.py"]
        .iter()
        .map(|name| place.writes_nothing(&["train.log", "--config", name]))
        .map(|told| told.lines().next().unwrap_or_default().to_owned())
        .collect();
    assert_snapshot!(told.join("\n"), @r"
    error: no patch for the batch: one.yaml: batch_size is 1 already
    error: no patch for the batch: power.py, line 1: batch_size is `2**5`, no plain whole number
    error: no patch for the batch: float.json, line 1: batch_size is `32.0`, no plain whole number
    error: no patch for the batch: auto.json, line 1: train_micro_batch_size_per_gpu is `auto`, no plain whole number
    error: no patch for the batch: steps.py, line 2: grad_accum_steps is `480 // batch_size`, no plain whole number
    ");
    let ran = place.run(&["train.log", "--config", "steps.py"]);
    assert!(ran.stdout.contains("double gradient"), "{}", ran.stdout);
}

#[test]
fn a_printed_patch_applies_to_the_byte() {
    let text = "train:\r\n  x: 1\t# t\r\n  batch_size: 12\t# b\r\n  accum_steps: 2\r\n";
    let place = Place::new(&[("train.log", BARE.as_bytes()), ("run.yaml", text.as_bytes())]);
    let ran = place.run(&["train.log", "--config", "run.yaml"]);
    assert_eq!(
        ran.stdout.split_once("patch of ").unwrap().1,
        "run.yaml, for advice 1 (--write writes it)\n--- a/run.yaml\n+++ b/run.yaml\n@@ -1,4 +1,4 @@\n train:\r\n   \
         x: 1\t# t\r\n-  batch_size: 12\t# b\r\n+  batch_size: 6\t# b\r\n-  accum_steps: 2\r\n+  accum_steps: \
         4\r\n"
    );
}

#[test]
fn a_packed_log_is_named() {
    let place = Place::new(&[
        ("a.gz", b"\x1f\x8b\x08\0"),
        ("a.zst", b"\x28\xb5\x2f\xfd\0"),
        ("a.xz", b"\xfd7zXZ\0\0"),
        ("a.bz2", b"BZh91AY&SY"),
        ("a.zip", b"PK\x03\x04\0"),
        ("text", b"BZh is a text\n"),
    ]);
    for (name, reads) in
        [("a.gz", "zcat"), ("a.zst", "zstdcat"), ("a.xz", "xzcat"), ("a.bz2", "bzcat"), ("a.zip", "unzip")]
    {
        let told = place.refuses(&[name]);
        assert!(told.contains("compressed") && told.contains(&format!("hint: {reads}")), "{told}");
    }
    assert_eq!(place.run(&["text"]).code, Some(1));
}

#[test]
fn a_command_line_is_a_configuration_too() {
    let place = Place::new(&[("train.log", NANOGPT.as_bytes())]);
    let ran = place.run(&["train.log", "--command", "python train.py config/a.py --batch_size=64"]);
    assert!(
        ran.stdout.ends_with(
            "\ntype instead, for advice 1\n  python train.py config/a.py --batch_size=4 --gradient_accumulation_steps=16\n"
        ),
        "{}",
        ran.stdout
    );
    let told = place.writes_nothing(&["train.log", "--command", "python train.py --batch_size=64"]);
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
    let place = Place::new(&[("calm.log", calm.as_bytes()), ("empty.log", b"")]);
    for name in ["calm.log", "empty.log"] {
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
    error: broken.json, line 2: this is not JSON: EOF while parsing a value
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
    assert_snapshot!(place.writes_nothing(&["train.log", "--config", "kept.py"]), @r"
    error: kept.py: the file is read-only
    hint: nothing was written
    ");
    assert_eq!(place.text("kept.py"), OPENWEBTEXT);
    assert_snapshot!(place.writes_nothing(&["train.log"]), @r"
    error: there is no patch to write: no configuration was given
    hint: give the configuration of this run with --config
    ");
}

/// A place with a configuration that a patch is for, prepared by `sh`.
fn place_for_a_patch(set_up: &str) -> Place {
    let place = Place::new(&[("train.log", BARE.as_bytes()), ("run.yaml", b"batch_size: 12\naccum_steps: 2\n")]);
    let done = Command::new("sh").args(["-ec", set_up]).current_dir(place.folder()).status().unwrap();
    assert!(done.success(), "{set_up}");
    place
}

const WRITE: [&str; 4] = ["train.log", "--config", "run.yaml", "--write"];
const PATCHED: &str = "batch_size: 6\naccum_steps: 4\n";

#[test]
fn a_file_with_several_names_stays_one_file() {
    let place = place_for_a_patch("ln run.yaml other.yaml; chmod 640 run.yaml");
    let before = fs::metadata(place.path("run.yaml")).unwrap();
    assert_eq!(place.run(&WRITE).code, Some(0));
    assert_eq!((&*place.text("run.yaml"), &*place.text("other.yaml")), (PATCHED, PATCHED));
    let after = fs::metadata(place.path("run.yaml")).unwrap();
    assert_eq!((before.ino(), before.mode(), 2), (after.ino(), after.mode(), after.nlink()));
    assert_eq!(fs::read_dir(place.folder()).unwrap().count(), 3);
    // The mark is there as well: nothing is written twice.
    if keeps_attributes(&place.path("run.yaml")) {
        assert_eq!(place.run(&WRITE).code, Some(2));
    }
}

#[test]
fn a_link_stays_a_link_and_leads_to_the_patch() {
    let place = place_for_a_patch("mv run.yaml real.yaml; ln -s real.yaml run.yaml");
    assert_eq!(place.run(&WRITE).code, Some(0));
    assert!(fs::symlink_metadata(place.path("run.yaml")).unwrap().is_symlink());
    assert_eq!(place.text("real.yaml"), PATCHED);
}

#[test]
fn attributes_and_the_owner_stay() {
    let place = place_for_a_patch("chmod 604 run.yaml");
    let path = place.path("run.yaml");
    let is_root = fs::metadata("/proc/self").unwrap().uid() == 0;
    if is_root {
        std::os::unix::fs::chown(&path, Some(1234), Some(4321)).unwrap();
    }
    let before = fs::metadata(&path).unwrap();
    let set = |name: &str, value: &str| {
        let words =
            [OsStr::new("-c"), OsStr::new(SET_ATTRIBUTE), path.as_os_str(), OsStr::new(name), OsStr::new(value)];
        Command::new("python3").args(words).status().is_ok_and(|status| status.success())
    };
    let has_attribute = set("user.note", "mine");
    assert_eq!(place.run(&WRITE).code, Some(0));
    assert_eq!(place.text("run.yaml"), PATCHED);
    let after = fs::metadata(&path).unwrap();
    assert_eq!((before.uid(), before.gid(), before.mode()), (after.uid(), after.gid(), after.mode()));
    if has_attribute {
        assert_eq!(before.ino(), after.ino(), "another file took its place, without its attributes");
    }
}

const SET_ATTRIBUTE: &str = "import os, sys; os.setxattr(sys.argv[1], sys.argv[2], sys.argv[3].encode())";

#[test]
fn what_an_interrupted_write_left_is_not_written_over() {
    let place = place_for_a_patch("ln run.yaml other.yaml; echo kept > run.yaml.before");
    assert_snapshot!(place.run(&WRITE).stderr.replace(&place.folder().display().to_string(), "PLACE"), @r"
    error: PLACE/run.yaml.before: a copy of what an interrupted write was to replace
    hint: nothing was written; compare the two, and remove the copy once the file is as it should be
    ");
    assert_eq!(
        (&*place.text("run.yaml.before"), &*place.text("run.yaml")),
        ("kept\n", "batch_size: 12\naccum_steps: 2\n")
    );
}

#[test]
fn a_patch_that_cannot_be_applied_from_the_screen_says_so() {
    let text = "x: 1 # \u{1b}[31m\nbatch_size: 12\naccum_steps: 2\n";
    let place = Place::new(&[("train.log", BARE.as_bytes()), ("run.yaml", text.as_bytes())]);
    let ran = place.run(&["train.log", "--config", "run.yaml"]);
    assert!(ran.stdout.contains(" x: 1 # \\u{1b}[31m\n"), "{}", ran.stdout);
    assert!(ran.stdout.ends_with("only --write can apply this patch\n"), "{}", ran.stdout);
    assert_eq!(place.run(&WRITE).code, Some(0));
    assert_eq!(place.text("run.yaml"), "x: 1 # \u{1b}[31m\nbatch_size: 6\naccum_steps: 4\n");
}

#[test]
fn a_bare_kill_is_told_as_unsurely_as_it_is_known() {
    let place = Place::new(&[("train.log", b"python train.py\nKilled\n")]);
    let told = place.run(&["train.log", "--html", "why.html"]).stdout;
    assert!(told.starts_with("train.log, line 2: a process was killed, perhaps for memory\n"), "{told}");
    assert!(told.contains("dmesg -T | grep -i 'killed process'"), "{told}");
    assert!(place.text("why.html").contains("<h1>A process was killed, perhaps for memory</h1>"));
}

#[test]
fn names_keep_their_letters_and_groups_are_named() {
    let words = |log: &str| Place::new(&[("train.log", log.as_bytes())]).run(&["train.log"]).stdout;
    let library = words("RuntimeError: cuDNN error: CUDNN_STATUS_ALLOC_FAILED\n");
    assert!(library.contains(" cuDNN asks the driver"), "{library}");
    let group = words("Memory cgroup out of memory: Killed process 77 (python3) total-vm:88kB, anon-rss:31kB\n");
    assert!(group.starts_with("train.log, line 1: the container or job ran out of memory\n"), "{group}");
    // A heap with a limit of its own fills whatever the machine has.
    let heap = words("FATAL ERROR: Reached heap limit Allocation failed - JavaScript heap out of memory\n");
    assert!(heap.starts_with("train.log, line 1: Node reached its heap limit\n"), "{heap}");
    assert!(!heap.contains("the machine ran out of memory"), "{heap}");
}

#[test]
fn a_snapshot_that_ran_out_of_memory() {
    let place = sandbox();
    place.write("capped.pickle.gz", include_bytes!("../../../sim/tests/traces/gpt__default__cap977.pickle.gz"));
    assert_snapshot!(place.says("explain --snapshot capped.pickle.gz"), @r"
    capped.pickle.gz: GPU 0 ran out of memory

    asked     128.00 MiB (event 2199, 4.8 s after the first)
    cause     fragmentation: live tensors held 759.53 MiB of the 894.00 MiB that could be reserved;
              134.47 MiB were not in use, but in pieces of at most 64.00 MiB
    culprit   216.00 MiB in 18 tensors of 12.00 MiB
    also      128.00 MiB in 2 tensors of 64.00 MiB
              84.00 MiB in 14 tensors of 6.00 MiB
              81.00 MiB in 36 tensors of 2.25 MiB
              64.00 MiB in 2 tensors of 32.00 MiB
              57.00 MiB in 19 tensors of 3.00 MiB
              54.00 MiB in 6 tensors of 9.00 MiB
              30.38 MiB in 18 tensors of 1.69 MiB
              13.50 MiB in 12 tensors of 1.13 MiB
              10.13 MiB in 18 tensors of 576.00 KiB
    settings  another setting alone would have saved the run (2 of 12 do):
              PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True
    more      lowtide replay capped.pickle.gz --html page.html
    ");
    let told: Value = serde_json::from_str(&place.says("explain --snapshot capped.pickle.gz --json")).unwrap();
    assert_eq!((&told[0]["cause"], &told[0]["asked"]["event"]), (&"fragmentation".into(), &2199.into()), "{told}");
    assert!(told[0]["saved_by"].as_array().unwrap().contains(&"expandable_segments:True".into()), "{told}");
}

#[test]
fn a_snapshot_without_an_error() {
    let place = sandbox();
    place.write("stacks.pickle.gz", include_bytes!("../../../sim/tests/traces/gpt_stacks.pickle.gz"));
    let printout = place.run("explain --snapshot stacks.pickle.gz");
    assert_eq!(printout.code, Some(1), "{}", printout.stdout);
    assert_snapshot!(printout.stdout, @r"
    no out-of-memory error in the history of stacks.pickle.gz

    GPU 0     live tensors hold 125.92 MiB at its end
              33.00 MiB in 2 tensors made in modules/linear.py, line 134, in forward
              32.00 MiB: made before the history began
              20.30 MiB in 52 tensors made in modules/module.py, line 1097, in <lambda>
              20.30 MiB in 52 tensors made in optim/adam.py, line 178, in _init_group
              20.30 MiB in 52 tensors made in optim/adam.py, line 182, in _init_group
              16.00 KiB made in lab/stacks.py, line 9
              512 bytes made in nn/functional.py, line 3504, in cross_entropy
    ");
}
