//! Commands that cannot be run, and words that cannot be understood.

use insta::assert_snapshot;
use serde_json::{Value, json};

use super::kit::Place;

#[test]
fn a_command_that_is_not_there_or_cannot_be_run() {
    let place = Place::with("plain", "no program\n");
    let ran = place.run(&["-q", "--", "no-such-command"]);
    assert_eq!(ran.code, Some(127));
    assert_snapshot!(ran.stderr, @r"
    error: no-such-command: no such command
    hint: the command stands after `--`, as it would be typed without lowtide
    ");
    let ran = place.run(&["-q", "--", "./plain"]);
    assert_eq!(ran.code, Some(126));
    assert_snapshot!(ran.stderr, @r"
    error: ./plain cannot be run: Permission denied (os error 13)
    hint: `chmod +x` it, or name the program that runs it: `-- python3 train.py`
    ");
    assert!(!place.path("runs/plain-1").exists());
    let ran = place.run(&["-q", "--", "CUDA_VISIBLE_DEVICES=0", "python3", "train.py"]);
    assert_eq!(ran.code, Some(127));
    assert_snapshot!(ran.stderr, @r"
    error: CUDA_VISIBLE_DEVICES=0: no such command
    hint: set a variable before lowtide, or with env: `-- env NAME=value python3 train.py`
    ");
}

#[test]
fn words_that_make_no_sense() {
    let place = Place::new();
    let told = |words: &[&str]| {
        let ran = place.run(words);
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(2), ""), "{}", ran.stderr);
        ran.stderr
    };
    assert_snapshot!(told(&["--retry-with", "--bs={micro}", "--", "true"]), @r"
    error: template `--bs={micro}`: {accum} is missing, without which the effective batch would change
    hint: for example: --retry-with '--batch_size={micro} --gradient_accumulation_steps={accum}'
    ");
    assert_snapshot!(told(&["--retry-with", "--bs={micro} --a={accum}", "--", "true"]), @r"
    error: the batch of this command is not known: --bs is not set
    hint: say it with --batch N, and --accum M where gradients are accumulated
    ");
    assert_snapshot!(told(&["--retry-with", "--bs={micro} --a={accum}", "--", "train", "--bs=auto"]), @r"
    error: the batch of this command is not known: --bs is `auto`, which is no number
    hint: say it with --batch N, and --accum M where gradients are accumulated
    ");
    assert_snapshot!(told(&["--retry-with", "--bs={micro} --a={accum}", "--batch", "32", "--", "train", "--bs", "16"]), @r"
    error: --batch says 32, and --bs is 16
    hint: leave our option out: what the command has is found by the template
    ");
    std::fs::write(place.path("c.yaml"), "bs: 4\n").unwrap();
    let config =
        |file: &str| told(&["--config", file, "--retry-config", "bs={micro} a={accum}", "--", "train", "c.yaml"]);
    assert_snapshot!(config("c.toml"), @r"
    error: c.toml: neither .py nor .yaml nor .json
    hint: --config takes a file that can be read here, .py, .yaml or .json; for others, --retry-with changes flags and --retry-env variables
    ");
    assert_snapshot!(config("none.yaml"), @r"
    error: none.yaml: cannot be read
    hint: --config takes a file that can be read here, .py, .yaml or .json; for others, --retry-with changes flags and --retry-env variables
    ");
    assert_snapshot!(config("c.yaml"), @r"
    error: c.yaml: has no a
    hint: name keys as they stand in the file: --retry-config 'batch_size={micro}'
    ");
    let other = ["--config", "c.yaml", "--retry-config", "bs={micro} a={accum}", "--", "train"];
    assert_snapshot!(told(&other), @r"
    error: c.yaml: the command line does not name this file
    hint: the command gets a copy in its place: name the file after `--` too, as the command takes it
    ");
    assert_snapshot!(told(&["--resume-with", "--r {checkpoint}", "--checkpoint-glob", "[", "--", "true"]), @r"
    error: --checkpoint-glob `[`: Pattern syntax error near position 0: invalid range pattern
    hint: for example: --checkpoint-glob 'out/*.pt'; * and ? stand for letters
    ");
    assert_snapshot!(told(&["--json", "none/story.json", "--", "true"]), @r"
    error: none/story.json: No such file or directory (os error 2)
    hint: --json names a file that can be written, or `-` for standard output
    ");
    let script = ["--", "bash", "-c", "python train.py"];
    assert_snapshot!(told(&[&["--batch", "4", "--retry-with", "--bs={micro} --a={accum}"], &script[..]].concat()), @r#"
    error: `bash -c` does not give its script what stands after it: python train.py
    hint: put lowtide inside: bash -c 'lowtide run -- python train.py'; or let the script take "$@"; or use --retry-env
    "#);
    assert!(!place.path("runs").exists());
}

#[test]
fn a_folder_that_cannot_be_had() {
    let place = Place::with("runs", "a file\n");
    let ran = place.run(&["-q", "--", "true"]);
    assert_eq!(ran.code, Some(2));
    assert_snapshot!(ran.stderr, @r"
    error: runs: File exists (os error 17)
    hint: --out names another folder for logs
    ");
}

#[test]
fn the_logs_of_another_run_are_kept() {
    let place = Place::new();
    let run = |words: &str| place.run(&["--out", "mine", "--", "echo", words]);
    assert_eq!(run("first").code, Some(0));
    let ran = run("second");
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(2), ""));
    assert_snapshot!(ran.stderr, @r"
    error: mine/events.jsonl: another run wrote it
    hint: --out names another folder for logs
    ");
    assert_eq!(place.text("mine/start-1.log"), "first\n");
}

#[test]
fn what_gives_no_retry_is_told() {
    let place = Place::with("train.py", "batch_size = 12\ngradient_accumulation_steps = 5\n# configurator.py\n");
    std::fs::write(place.path("shared.py"), "batch_size = 40 // world\n").unwrap();
    let told = |words: &[&str]| place.run(words).stderr.lines().next().unwrap_or_default().to_owned();
    assert_snapshot!(told(&["--", "python3", "train.py", "shared.py"]), @r"
    lowtide: no retry with a smaller micro-batch (nanogpt): shared.py, line 1: batch_size is `40 // world`, no plain whole number: --batch and --accum say it, --retry-with or --retry-config change it
    ");
    assert_snapshot!(told(&["--preset", "nanogpt", "--", "python3", "train.py", "shared.py"]), @r"
    error: the batch of this command is not known: shared.py, line 1: batch_size is `40 // world`, no plain whole number
    ");
    assert_snapshot!(told(&["--batch", "4", "--", "true"]), @r"
    lowtide: no retry with a smaller micro-batch: --batch is given, and nothing says how the command takes another: --retry-with, --retry-env or --retry-config
    ");
}

#[test]
fn what_would_be_done() {
    let place = Place::with("train.py", "batch_size = 12\ngradient_accumulation_steps = 5 * 8\n# configurator.py\n");
    let ran = place.run(&["--dry-run", "--", "torchrun", "--nproc_per_node=8", "train.py"]);
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""));
    assert_snapshot!(ran.stdout, @r"
    micro-batch x accumulation 12 x 40 (nanogpt), in a group of 8, 3 retries down to 1 x 480
    with PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True
      torchrun --nproc_per_node=8 train.py   # 12 x 40
      torchrun --nproc_per_node=8 train.py --batch_size=6 --gradient_accumulation_steps=80   # 6 x 80
      torchrun --nproc_per_node=8 train.py --batch_size=3 --gradient_accumulation_steps=160   # 3 x 160
      torchrun --nproc_per_node=8 train.py --batch_size=1 --gradient_accumulation_steps=480   # 1 x 480
    a restart begins at step 0: out_dir is not set; --resume-with and --checkpoint-glob say how
    at most 8 restarts; logs in runs/train-N/
    ");
    assert!(!place.path("runs").exists());
    let ran = place.run(&["--dry-run", "--out", "here/mine", "--", "true"]);
    assert!(ran.stdout.ends_with("; logs in here/mine/\n"), "{}", ran.stdout);
}

#[test]
fn what_would_be_done_with_a_file_and_a_checkpoint() {
    let place = Place::with("fit.yaml", "bs: 8\nacc: 1\n");
    let resume = ["--resume-with", "--from {checkpoint}", "--checkpoint-glob", "out/*.pt"];
    let retry = ["--config", "fit.yaml", "--retry-config", "bs={micro} acc={accum}", "--max-restarts", "1"];
    let words = ["--dry-run", "--json", "plan.json", "--", "python", "fit.py", "fit.yaml"];
    let ran = place.run(&[&resume[..], &retry, &words].concat());
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""));
    assert_snapshot!(ran.stdout, @r"
    micro-batch x accumulation 8 x 1 (bs, acc), 3 retries down to 1 x 8
    with PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True
      python fit.py fit.yaml   # 8 x 1
      python fit.py runs/fit-N/retry-1.yaml   # 4 x 2
        runs/fit-N/retry-1.yaml is fit.yaml with bs=4 acc=2
    a restart adds --from {checkpoint} where this run wrote a whole out/*.pt
    at most 1 restart, which leaves out the 2 smallest (--max-restarts); logs in runs/fit-N/
    ");
    let plan: Value = serde_json::from_str(&place.text("plan.json")).unwrap();
    assert_eq!((&plan["effective_batch"], &plan["max_restarts"]), (&json!(8), &json!(1)));
    assert_eq!(plan["resume"], json!({"with": "--from {checkpoint}", "checkpoints": ["out/*.pt"]}));
    assert_eq!(plan["starts"][1]["command"], json!(["python", "fit.py", "runs/fit-N/retry-1.yaml"]));
    assert_eq!(plan["starts"][1]["config_copy"]["changes"], json!(["bs=4", "acc=2"]));

    let ran = place.run(&["--dry-run", "--", "true"]);
    assert_snapshot!(ran.stdout, @r"
    no retry with a smaller micro-batch: it is not known where the batch is set; --retry-with or --retry-env says it
      true
    it is not started again; logs in runs/true-N/
    ");
}

#[test]
fn what_another_run_wrote_is_left_alone() {
    let place = Place::new();
    std::fs::create_dir(place.path("mine")).unwrap();
    std::fs::write(place.path("mine/summary.json"), "{}").unwrap();
    let ran = place.run(&["--out", "mine", "--", "true"]);
    assert_eq!((ran.code, place.text("mine/summary.json").as_str()), (Some(2), "{}"), "{}", ran.stderr);
}

/// A command that is gone when it is to be started again: what it said the first time stays.
#[test]
fn the_log_of_a_start_outlives_a_restart_that_cannot_be() {
    let place = Place::with("train.sh", "#!/bin/sh\nmv train.sh gone.sh\necho 'MemoryError' >&2\nexit 1\n");
    let made = std::process::Command::new("chmod").arg("+x").arg(place.path("train.sh")).status().unwrap();
    assert!(made.success());
    let retry = ["--retry-with", "--bs={micro} --accum={accum}"];
    let ran = place.run(&[&retry[..], &["--", "./train.sh", "--bs=4"]].concat());
    assert_eq!(ran.code, Some(3), "{}", ran.stderr);
    assert_eq!(place.text("runs/train-1/start-1.log"), "MemoryError\n");
    assert_eq!(place.story("runs/train-1")["starts"].as_array().unwrap().len(), 1);
}

#[test]
fn a_training_command_in_a_shell_script_is_pointed_to() {
    let place = Place::with("train.sh", "B=${BATCH:-8}\npython3 train.py --bs $B --accum ${ACCUM:-1}\n");
    place.write("train.py", "import sys\nif '8' in sys.argv: raise MemoryError\nprint(sys.argv[1:])\n");
    let ran = place.run(&["--", "bash", "train.sh"]);
    assert_eq!(ran.code, Some(3), "{}", ran.stderr);
    let typed = "lowtide: hint: in train.sh, let line 2 begin so, and flags are found: lowtide run -- python3 train.py --bs $B \
                 --accum ${ACCUM:-1}\nlowtide: or leave it as it is: lowtide run --retry-env 'BATCH={micro} ACCUM={accum}' --batch 8 \
                 --accum 1 -- bash train.sh\n";
    assert!(ran.stderr.contains(typed), "{}", ran.stderr);
    let template = ["--retry-env", "BATCH={micro} ACCUM={accum}", "--batch", "8", "--accum", "1"];
    let ran = place.run(&[&template[..], &["--", "bash", "train.sh"]].concat());
    assert_eq!((ran.code, &*ran.stdout), (Some(0), "['--bs', '4', '--accum', '2']\n"), "{}", ran.stderr);
}

#[test]
fn a_batch_in_a_named_file_of_settings_is_pointed_to() {
    let place =
        Place::with("train.py", "import sys\nif 'batch_size: 8' in open(sys.argv[2]).read(): raise MemoryError\n");
    place.write("c.yaml", "train:\n  batch_size: 8\n  accum: 1\n");
    place.write("only.json", "{\n  \"batch_size\": 8\n}");
    let told = |file: &str| {
        let ran = place.run(&["--dry-run", "--", "python3", "train.py", "-c", file]);
        ran.stdout.lines().next().unwrap_or_default().to_owned()
    };
    let words = "no retry with a smaller micro-batch: c.yaml, line 2: train.batch_size is 8; say it with --config c.yaml \
                 --retry-config 'train.batch_size={micro} train.accum={accum}'";
    assert_eq!(told("c.yaml"), words);
    let words = "no retry with a smaller micro-batch: only.json, line 2: batch_size is 8; say it with --config only.json \
                 --retry-config 'batch_size={micro} KEY={accum}'; KEY stands for its key for accumulation";
    assert_eq!(told("only.json"), words);
    let retry = ["--config", "c.yaml", "--retry-config", "train.batch_size={micro} train.accum={accum}"];
    let ran = place.run(&[&retry[..], &["--", "python3", "train.py", "-c", "c.yaml"]].concat());
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
}

#[test]
fn a_full_disk_is_not_about_memory() {
    let options = "import argparse\np = argparse.ArgumentParser()\np.add_argument('--bs', default=8)\np.add_argument('--accum', default=1)\n";
    let place = Place::with("train.py", &format!("{options}raise OSError(28, 'No space left on device', 'ckpt.pt')\n"));
    let ran = place.run(&["--", "python3", "train.py"]);
    assert_eq!(ran.code, Some(1), "{}", ran.stderr);
    let words = "lowtide: the disk is full or its quota is reached, which is not about memory: not started again\n";
    assert!(ran.stderr.contains(words) && !ran.stderr.contains("start 2"), "{}", ran.stderr);
}
