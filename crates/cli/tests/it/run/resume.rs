//! Restarts that resume from checkpoints, checkpoints that are kept safe, and what is remembered.

use std::fs;
use std::time::{Duration, SystemTime};

use lowtide_testkit::Printout;
use serde_json::json;

use super::kit::Place;

const CONFIGURATOR: &str = include_str!("scripts/configurator.py");

/// A folder with nanoGPT's options and loop.
fn nanogpt() -> Place {
    let place = Place::with("train.py", include_str!("scripts/nanogpt.py"));
    place.write("configurator.py", CONFIGURATOR);
    place
}

#[track_caller]
fn says(ran: &Printout, words: &str) {
    assert!(ran.stderr.contains(words), "{words}\n--- not in\n{}", ran.stderr);
}

fn iterations(ran: &Printout) -> Vec<&str> {
    let number = |line: &'_ str| line.strip_prefix("iter ").is_some();
    ran.stdout.lines().filter(|line| number(line)).map(|line| line.split([' ', ':']).nth(1).unwrap()).collect()
}

#[test]
fn nanogpt_resumes_at_the_step_of_its_checkpoint() {
    let place = nanogpt();
    place.write("small.py", "out_dir = 'out-small'\nbatch_size = 16\n");
    let ran = place.run(&["--", "python3", "train.py", "small.py", "--fits=8"]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert_eq!(iterations(&ran).join(" "), "0 1 2 3 4 5 4 5 6 7 8 9");
    says(
        &ran,
        "lowtide: start 2 resumes from out-small/ckpt.pt at step 4 with micro-batch x accumulation 8 x 2: python3 train.py \
         small.py --fits=8 --batch_size=8 --gradient_accumulation_steps=2 --init_from=resume\n",
    );
    says(&ran, "lowtide:   nanoGPT restores weights, optimizer and step, but not the random state: ");
    let story = place.story("runs/train-1");
    assert_eq!((&story["ending"], &story["effective_batch"]), (&json!("finished"), &json!(16)));
    let second = &story["starts"][1];
    assert_eq!((&second["resumed_from"], &second["resumed_step"]), (&json!("out-small/ckpt.pt"), &json!(4)));
}

#[test]
fn a_file_of_settings_behind_ours_does_not_undo_it() {
    let place = nanogpt();
    place.write("c.py", "init_from = 'scratch'\n");
    let ran = place.run(&["--", "python3", "train.py", "--init_from=scratch", "c.py", "--batch_size=8"]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert_eq!(iterations(&ran).join(" "), "0 1 2 3 4 5 4 5 6 7 8 9");
}

#[test]
fn a_checkpoint_from_before_the_run_is_copied_and_not_used() {
    let place = nanogpt();
    fs::create_dir(place.path("out")).unwrap();
    let old = b"PK\x03\x04 another run's PK\x05\x06\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0";
    fs::write(place.path("out/ckpt.pt"), old).unwrap();
    let file = fs::File::options().append(true).open(place.path("out/ckpt.pt")).unwrap();
    file.set_modified(SystemTime::now() - Duration::from_secs(3600)).unwrap();
    let words = ["--", "python3", "train.py", "--batch_size=4"];
    let ran = place.run(&words);
    assert_eq!((ran.code, iterations(&ran)[0]), (Some(0), "0"), "{}", ran.stderr);
    says(
        &ran,
        "lowtide: warning: the next start begins at step 0 and may write over out/ckpt.pt: it was copied to \
         runs/train-1/before-start-1/ckpt.pt (41 bytes of disk); `--init_from=resume` resumes from it instead\n",
    );
    assert_eq!(fs::read(place.path("runs/train-1/before-start-1/ckpt.pt")).unwrap(), old);
    assert_ne!(fs::read(place.path("out/ckpt.pt")).unwrap(), old);
    // What the command itself resumes from is in no danger.
    let ran = place.run(&[&words[..], &["--init_from=resume"]].concat());
    assert_eq!((ran.code, iterations(&ran)[0]), (Some(0), "8"), "{}", ran.stderr);
    assert!(!ran.stderr.contains("warning"), "{}", ran.stderr);
}

#[test]
fn without_resuming_the_checkpoint_of_the_last_start_is_copied() {
    let place = nanogpt();
    let ran = place.run(&["--no-resume", "--", "python3", "train.py"]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert_eq!(iterations(&ran).join(" "), "0 1 2 3 4 5 0 1 2 3 4 5 6 7 8 9");
    says(&ran, "may write over out/ckpt.pt: it was copied to runs/train-1/before-start-2/ckpt.pt (");
    says(&ran, "lowtide: start 2 begins at step 0 (--no-resume) with micro-batch x accumulation 4 x 2: ");
    assert!(place.path("runs/train-1/before-start-2/ckpt.pt").exists());
}

#[test]
fn a_checkpoint_that_was_cut_short_is_not_resumed_from() {
    let place = Place::with(
        "train.py",
        &include_str!("scripts/nanogpt.py").replace(
            "'3\\n')",
            "'3\\n')\n            if batch_size > 4: open(os.path.join(out_dir, 'ckpt.pt'), 'r+').truncate(40)",
        ),
    );
    place.write("configurator.py", CONFIGURATOR);
    let ran = place.run(&["--", "python3", "train.py"]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert_eq!(iterations(&ran).join(" "), "0 1 2 3 4 5 0 1 2 3 4 5 6 7 8 9");
    says(&ran, "lowtide: start 2 begins at step 0 (this run wrote no whole out/ckpt.pt) with micro-batch");
    says(&ran, "lowtide:   out/ckpt.pt was cut short or is damaged\n");
}

/// Writes checkpoints as folders, the last one cut short, and says which one it resumes from and what that remembers.
const FOLDERS: &str = r#"
import argparse, json, os
parser = argparse.ArgumentParser()
parser.add_argument("--per_device_train_batch_size", type=int, default=8)
parser.add_argument("--gradient_accumulation_steps", type=int, default=1)
parser.add_argument("--output_dir", default="out")
parser.add_argument("--resume_from_checkpoint", default=None)
args = parser.parse_args()
step = 0
if args.resume_from_checkpoint:
    with open(os.path.join(args.resume_from_checkpoint, "trainer_state.json")) as file:
        state = json.load(file)
    step = state["global_step"]
    # As transformers 4.36 to 5.1 have it.
    micro = state["train_batch_size"] or args.per_device_train_batch_size
    print("resumed", args.resume_from_checkpoint, step, "with", micro, "x", args.gradient_accumulation_steps)
while step < 6:
    step += 1
    print("step", step, flush=True)
    if step == 5 and args.per_device_train_batch_size > 4:
        raise MemoryError
    folder = os.path.join(args.output_dir, f"checkpoint-{step}")
    os.makedirs(folder, exist_ok=True)
    state = {"global_step": step, "train_batch_size": args.per_device_train_batch_size, "best_metric": float("nan")}
    with open(os.path.join(folder, "trainer_state.json"), "w") as file:
        json.dump(state, file, indent=2, sort_keys=True)
    with open(os.path.join(folder, "optimizer.pt"), "wb") as file:
        file.write(b"PK\x03\x04" + (b"" if step == 4 else b"PK\x05\x06" + bytes(18)))
"#;

#[test]
fn the_checkpoint_before_a_damaged_one_is_taken_with_the_new_batch() {
    let place = Place::with("run.py", FOLDERS);
    let ran = place.run(&["--", "python3", "run.py", "--per_device_train_batch_size", "8"]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert!(ran.stdout.contains("resumed runs/run-1/resume-2/checkpoint-3 3 with 4 x 2\n"), "{}", ran.stdout);
    says(&ran, "lowtide: start 2 resumes from out/checkpoint-3 at step 3 with micro-batch x accumulation 4 x 2: ");
    says(&ran, "lowtide:   out/checkpoint-4 was cut short or is damaged, and the one before it is taken\n");
    says(&ran, "lowtide:   accelerate restores weights, optimizer, schedule and random state; ");
    assert_eq!(place.story("runs/run-1")["starts"][1]["resumed_from"], "out/checkpoint-3");
}

#[test]
fn where_one_cannot_be_resumed_from_the_one_before_is_tried() {
    let script = FOLDERS
        .replace("    step = state", "    if state['global_step'] > 2: raise ValueError('refused')\n    step = state");
    let place = Place::with("run.py", &script);
    let ran = place.run(&["--", "python3", "run.py", "--per_device_train_batch_size", "8"]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    says(&ran, "lowtide: start 2 resumes from out/checkpoint-3 at step 3 with ");
    says(
        &ran,
        "lowtide: the start that was to resume failed before its first step, for another reason than memory: the next one \
         resumes from out/checkpoint-2\n",
    );
    says(
        &ran,
        "lowtide: the next start resumes from out/checkpoint-2 and may write over out/checkpoint-3: it was copied to \
         runs/run-1/before-start-3/checkpoint-3 (",
    );
    says(&ran, "lowtide: start 3 resumes from out/checkpoint-2 at step 2 with micro-batch x accumulation 4 x 2: ");
    assert!(ran.stdout.contains("resumed runs/run-1/resume-3/checkpoint-2 2 with 4 x 2\n"), "{}", ran.stdout);
}

#[test]
fn a_script_that_looks_for_its_newest_checkpoint_does_not_find_a_damaged_one() {
    let itself = FOLDERS.replace("step = 0\n", "step = 0\n# get_last_checkpoint(args.output_dir)\n\
        get_last_checkpoint = lambda folder: max([os.path.join(folder, it) for it in os.listdir(folder) if it.startswith('checkpoint')])\n\
        args.resume_from_checkpoint = os.path.isdir(args.output_dir) and get_last_checkpoint(args.output_dir)\n")
        .replace("parser.add_argument(\"--resume_from_checkpoint\", default=None)\n", "");
    let place = Place::with("run.py", &itself);
    let ran = place.run(&["--", "python3", "run.py", "--per_device_train_batch_size", "8"]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    says(&ran, "out/checkpoint-4 cannot be resumed from, and it was moved to runs/run-1/before-start-2/checkpoint-4\n");
    assert!(ran.stdout.contains("resumed out/checkpoint-3 3 with"), "{}", ran.stdout);
}

#[test]
fn where_it_cannot_resume_that_is_said_and_the_checkpoint_copied() {
    let script =
        FOLDERS.replace("--resume_from_checkpoint", "--from").replace("args.resume_from_checkpoint", "args.from_");
    let script = script.replace("default=None", "default=None, dest=\"from_\"");
    let place = Place::with("run.py", &script);
    let words = ["--", "python3", "run.py", "--per_device_train_batch_size", "8", "--output_dir=made"];
    let ran = place.run(&words);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert!(!ran.stdout.contains("resumed"), "{}", ran.stdout);
    says(&ran, "lowtide:   it does not resume: run.py has no --resume_from_checkpoint; ");
    says(
        &ran,
        "may write over made/checkpoint-4, made/checkpoint-3, made/checkpoint-2 and made/checkpoint-1: they were copied to \
         runs/run-1/before-start-2/ (",
    );
    for step in 1..=4 {
        assert!(place.path(&format!("runs/run-1/before-start-2/checkpoint-{step}/trainer_state.json")).exists());
    }
}

#[test]
fn a_start_that_cannot_resume_is_followed_by_one_from_step_0() {
    let refusing = include_str!("scripts/nanogpt.py")
        .replace("    print(f\"Resuming", "    raise ValueError('refused')\n    print(f\"Resuming");
    let place = Place::with("train.py", &refusing);
    place.write("configurator.py", CONFIGURATOR);
    let ran = place.run(&["--", "python3", "train.py"]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert_eq!(iterations(&ran).join(" "), "0 1 2 3 4 5 0 1 2 3 4 5 6 7 8 9");
    says(&ran, "lowtide: the start that was to resume failed before its first step, for another reason than memory: ");
    says(&ran, "may write over out/ckpt.pt: it was copied to runs/train-1/before-start-3/ckpt.pt (");
    assert_eq!(place.story("runs/train-1")["starts"][2]["resumed_from"], json!(null));
}

#[test]
fn after_a_start_from_step_0_the_next_one_resumes_from_what_that_wrote() {
    let refusing = include_str!("scripts/nanogpt.py")
        .replace("    print(f\"Resuming", "    if batch_size == 4: raise ValueError('refused')\n    print(f\"Resuming");
    let place = Place::with("train.py", &refusing);
    place.write("configurator.py", CONFIGURATOR);
    let ran = place.run(&["--", "python3", "train.py", "--fits=2"]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert_eq!(iterations(&ran).join(" "), "0 1 2 3 4 5 0 1 2 3 4 5 4 5 6 7 8 9");
    says(&ran, "lowtide: start 4 resumes from out/ckpt.pt at step 4 with micro-batch x accumulation 2 x 4: ");
}

/// A bar counts within an epoch what a checkpoint counts in all.
#[test]
fn a_start_that_fails_after_some_steps_is_not_begun_anew() {
    let script = FOLDERS.replace(
        "while step < 6:",
        "if step:\n    print('Epoch 3:  99%|#########9| 99/100 [00:01<00:00, 80.00it/s]', flush=True)\n    \
         raise ValueError('a bad sample')\nwhile step < 6:",
    );
    let script = script.replace("\"global_step\": step,", "\"global_step\": step + 400,");
    let place = Place::with("run.py", &script);
    let ran = place.run(&["--", "python3", "run.py", "--per_device_train_batch_size", "8"]);
    assert_eq!(ran.code, Some(1), "{}", ran.stderr);
    says(&ran, "lowtide: start 2 resumes from out/checkpoint-3 at step 403 with ");
    assert!(!ran.stderr.contains("before its first step") && !ran.stderr.contains("start 3"), "{}", ran.stderr);
}

#[test]
fn what_an_unknown_script_wrote_is_copied_too() {
    let script = "import os, sys\nprint(sys.argv[1:])\nos.makedirs('models', exist_ok=True)\n\
                  with open('models/last.pth', 'w') as file: file.write(' '.join(sys.argv))\n\
                  if '--bs=4' in sys.argv: raise MemoryError\n";
    let place = Place::with("train.py", script);
    place.write("models/other.pth", "older");
    let ran = place.run(&["--rung", "--bs={micro} --accum={accum}", "--", "python3", "train.py", "--bs=4"]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    says(
        &ran,
        "may write over models/last.pth: it was copied to runs/train-1/before-start-2/last.pth (15 bytes of disk)\n",
    );
    assert_eq!(place.text("runs/train-1/before-start-2/last.pth"), "train.py --bs=4");
    says(&ran, "lowtide:   it does not resume: where its checkpoints are is not known; say it: --resume-with ");
}

#[test]
fn a_checkpoint_that_the_command_names_is_copied_wherever_it_is() {
    let script = "import os, sys\ndef save(path):\n    with open(path, 'w') as file: file.write(' '.join(sys.argv))\n\
                  parser.add_argument('--save-path', default='../models/best.pth')\n\
                  save('last.pt')\nsave('../models/best.pth')\nsave('../models/epoch.pt')\n\
                  if '--bs=4' in sys.argv: raise MemoryError\n";
    let script = script.replace("parser", "class parser:\n    def add_argument(*a, **b): pass\nparser");
    let place = Place::with("work/train.py", &script);
    for name in ["models/best.pth", "work/last.pt"] {
        place.write(name, "older");
        let file = fs::File::options().append(true).open(place.path(name)).unwrap();
        file.set_modified(SystemTime::now() - Duration::from_secs(90_000)).unwrap();
    }
    let words = ["--rung", "--bs={micro} --accum={accum}", "--", "python3", "train.py", "--bs=4", "--out", "../models"];
    let ran = Printout::of(place.command(&words).current_dir(place.path("work")).output().unwrap());
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    says(
        &ran,
        "warning: the next start begins at step 0 and may write over last.pt: it was copied to runs/train-1/before-start-1",
    );
    let copies = |start: usize| -> Vec<String> {
        let names = ["best.pth", "last.pt", "epoch.pt"].into_iter();
        let folders = names
            .flat_map(|name| ["", "-2"].map(|more| format!("work/runs/train-1/before-start-{start}{more}/{name}")));
        folders.filter(|copy| place.path(copy).exists()).map(|copy| place.text(&copy)).collect()
    };
    assert_eq!(copies(1), ["older"; 2]);
    assert_eq!(copies(2), ["train.py --bs=4 --out ../models"; 3]);
    assert!(place.names("models").iter().all(|name| !name.starts_with("before-")));
}

#[test]
fn a_checkpoint_from_before_the_run_that_the_script_takes_by_itself_is_named() {
    let itself = FOLDERS
        .replace("step = 0\n", "step = 0\n# get_last_checkpoint(args.output_dir)\nsys.exit('CUDA out of memory') if args.per_device_train_batch_size > 4 else None\n\
        get_last_checkpoint = 1\n")
        .replace("parser.add_argument(\"--resume_from_checkpoint\", default=None)\n", "");
    let place = Place::with("run.py", &format!("import sys\n{itself}get_last_checkpoint(1)\n"));
    fs::create_dir_all(place.path("out/checkpoint-7")).unwrap();
    place.write("out/checkpoint-7/trainer_state.json", "{\n  \"global_step\": 7\n}");
    // The folder itself is new, as one that was moved here.
    let old = fs::File::options().append(true).open(place.path("out/checkpoint-7/trainer_state.json")).unwrap();
    old.set_modified(SystemTime::now() - Duration::from_secs(90_000)).unwrap();
    let ran = place.run(&["--", "python3", "run.py", "--per_device_train_batch_size", "8"]);
    says(
        &ran,
        "start 2 resumes as the command itself does (newest there: out/checkpoint-7, written 25 hours ago; this run wrote \
         none) with ",
    );
}

/// Stands beside the script as the library of that name does, as far as it is used.
const TRANSFORMERS: &str = r#"
import os
class TrainingArguments:
    def __init__(self, output_dir, per_device_train_batch_size=8, gradient_accumulation_steps=1):
        self.output_dir, self.micro, self.accum = output_dir, per_device_train_batch_size, gradient_accumulation_steps
class Trainer:
    def __init__(self, args): self.args = args
    def train(self, resume_from_checkpoint=None):
        step = int(resume_from_checkpoint.split("-")[-1]) if resume_from_checkpoint else 0
        while step < 5:
            step += 1
            print("step", step, self.args.micro, "x", self.args.accum, flush=True)
            if step == 4 and self.args.micro > 4: raise MemoryError
            os.makedirs(f"{self.args.output_dir}/checkpoint-{step}")
            for name in ["model.bin", "trainer_state.json"]:
                with open(f"{self.args.output_dir}/checkpoint-{step}/{name}", "w") as file: file.write("{}")
"#;

#[test]
fn a_script_with_its_batch_in_the_source_resumes_by_its_copy() {
    let script = "from transformers import Trainer, TrainingArguments\n\
                  args = TrainingArguments('made', per_device_train_batch_size=8)\n\
                  trainer = Trainer(args)\ntrainer.train()\n";
    let place = Place::with("train.py", script);
    place.write("transformers.py", TRANSFORMERS);
    let ran = place.run(&["--", "python3", "train.py"]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let steps: Vec<&str> = ran.stdout.lines().collect();
    let expected = ["step 1 8 x 1", "step 2 8 x 1", "step 3 8 x 1", "step 4 8 x 1", "step 4 4 x 2", "step 5 4 x 2"];
    assert_eq!(steps, expected, "{}", ran.stderr);
    says(&ran, "lowtide: start 2 resumes from made/checkpoint-3 at step 3 with ");
    says(
        &ran,
        "lowtide:   the Trainer restores weights, optimizer, schedule, random state and its place in the data\n",
    );
    assert_eq!(place.text("train.py"), script);
}

#[test]
fn lightnings_command_line_gets_its_newest_checkpoint() {
    let script = "import os, sys\nprint(sys.argv[1:])\n# LightningCLI(Net, Data)\n\
                  number = len(os.listdir('lightning_logs')) if os.path.isdir('lightning_logs') else 0\n\
                  folder = f'lightning_logs/version_{number}/checkpoints'\nos.makedirs(folder)\n\
                  with open(folder + '/epoch=0-step=20.ckpt', 'wb') as file:\n    \
                  file.write(b'PK\\x03\\x04 PK\\x05\\x06' + bytes(18))\n\
                  if '--data.batch_size=8' in sys.argv: raise MemoryError\n";
    let place = Place::with("main.py", script);
    let ran = place.run(&["--", "python3", "main.py", "fit", "--data.batch_size=8"]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let path = "lightning_logs/version_0/checkpoints/epoch=0-step=20.ckpt";
    assert!(ran.stdout.contains(&format!("'--ckpt_path={path}']\n")), "{}", ran.stdout);
    says(&ran, &format!("lowtide: start 2 resumes from {path} at step 20 with micro-batch x accumulation 4 x 2: "));
    says(
        &ran,
        "lowtide:   Lightning restores weights, optimizer, schedule and step, but neither the random state nor ",
    );
}

/// Without a logger, Lightning's command line saves its settings in the same place at each start, and writes over none.
#[test]
fn settings_that_lightnings_command_line_saved_are_moved_out_of_its_way() {
    let script = "import os, sys\n# LightningCLI(Net, Data)\n\
                  if os.path.exists('config.yaml'): sys.exit('expected config.yaml to NOT exist')\n\
                  open('config.yaml', 'w').write(' '.join(sys.argv[1:]))\nos.makedirs('checkpoints', exist_ok=True)\n\
                  with open('checkpoints/epoch=0-step=20.ckpt', 'wb') as file:\n    \
                  file.write(b'PK\\x03\\x04 PK\\x05\\x06' + bytes(18))\n\
                  if '--data.batch_size=8' in sys.argv: raise MemoryError\n";
    let place = Place::with("main.py", script);
    let ran = place.run(&["--", "python3", "main.py", "fit", "--trainer.logger=false", "--data.batch_size=8"]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    says(&ran, "lowtide: config.yaml of the start before is main-1-start-1-config.yaml now: ");
    assert!(place.text("main-1-start-1-config.yaml").ends_with("--data.batch_size=8"));
    assert!(place.text("config.yaml").contains("--ckpt_path=checkpoints/epoch=0-step=20.ckpt"));
}

#[test]
fn settings_from_before_the_run_stay_where_they_are() {
    let script = "import os, sys\n# LightningCLI(Net, Data)\nif '--data.batch_size=8' in sys.argv: raise MemoryError\n";
    let place = Place::with("main.py", script);
    fs::write(place.path("config.yaml"), "mine").unwrap();
    let ran = place.run(&["--", "python3", "main.py", "fit", "--data.batch_size=8"]);
    assert_eq!((ran.code, &*place.text("config.yaml")), (Some(0), "mine"), "{}", ran.stderr);
}

#[test]
fn what_worked_is_remembered_until_it_is_forgotten() {
    let place = nanogpt();
    let words = ["--", "python3", "train.py", "--batch_size=16", "--max_iters=7"];
    let ran = place.run(&words);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    says(
        &ran,
        "lowtide: start with `--batch_size=4 --gradient_accumulation_steps=4` next time; `lowtide run` of the same command \
         does so by itself, unless --forget is given\n",
    );
    let begins = "it begins with 4 x 4 and not 16 x 1, as runs/train-1 ended up there; --forget begins with 16 x 1\n";
    let ran = place.run(&[&["--dry-run"], &words[..]].concat());
    assert!(ran.stdout.contains(begins), "{}", ran.stdout);
    let ran = place.run(&words);
    assert_eq!((ran.code, &place.story("runs/train-2")["restarts"]), (Some(0), &json!(0)), "{}", ran.stderr);
    says(&ran, &format!("lowtide: {begins}"));
    let ran = place.run(&[&["--dry-run", "--max-restarts", "0"], &words[..]].concat());
    assert!(!ran.stdout.contains("it begins with"), "{}", ran.stdout);
    // Another command, and the same with another batch.
    let ran = place.run(&["--dry-run", "--", "python3", "train.py", "--batch_size=16", "--max_iters=8"]);
    assert!(!ran.stdout.contains("it begins with"), "{}", ran.stdout);
    let ran = place.run(&[&["--forget"], &words[..]].concat());
    assert_eq!((ran.code, &place.story("runs/train-3")["restarts"]), (Some(0), &json!(2)), "{}", ran.stderr);
    place.write("runs/remembered.json", "{");
    let ran = place.run(&words);
    assert_eq!((ran.code, &place.story("runs/train-4")["restarts"]), (Some(0), &json!(2)), "{}", ran.stderr);
    says(&ran, "lowtide: what was remembered of earlier runs is left aside: runs/remembered.json: ");
}

#[test]
fn what_only_failed_is_not_remembered() {
    let place = Place::with("train.py", "raise MemoryError\n");
    let rung = ["--rung", "--bs={micro} --accum={accum}", "--", "python3", "train.py", "--bs=2"];
    let ran = place.run(&rung);
    assert_eq!(ran.code, Some(3), "{}", ran.stderr);
    assert!(!ran.stderr.contains("next time") && !place.path("runs/remembered.json").exists(), "{}", ran.stderr);
}

/// Trains up to a checkpoint and fails in a step; resumed, it fails where it reads the checkpoint.
const READS_ONTO_THE_CARD: &str = r#"
import sys
def ends(code, size):
    sys.exit(f"""Traceback (most recent call last):
  File "train.py", line 9, in <module>
    {code}
torch.OutOfMemoryError: CUDA out of memory. Tried to allocate {size}.00 MiB. GPU 0 has a total capacity of 7.79 GiB of which \
20.06 MiB is free. Including non-PyTorch memory, this process has 7.76 GiB memory in use. Of the allocated memory 7.50 GiB is \
allocated by PyTorch, and 11.00 MiB is reserved by PyTorch but unallocated.""")
if any(word.startswith("--from") for word in sys.argv):
    ends("state = torch.load(path)", 512)
print("step 3 loss 2.1", flush=True)
open("ckpt-3.pt", "w").write("whole")
ends("loss.backward()", 700)
"#;

#[test]
fn a_checkpoint_that_does_not_fit_beside_the_model_is_called_that() {
    let place = Place::with("train.py", READS_ONTO_THE_CARD);
    let retry = ["--retry-with", "--bs={micro} --accum={accum}"];
    let resume = ["--resume-with", "--from={checkpoint}", "--checkpoint-glob", "ckpt-*.pt"];
    let ran = place.run(&[&retry[..], &resume, &["--", "python3", "train.py", "--bs=8"]].concat());
    assert_eq!(ran.code, Some(3), "{}", ran.stderr);
    says(&ran, "start 2 (resumed from ckpt-3.pt)");
    says(
        &ran,
        "hint: the first start got further: resuming needs more memory than training. Load the checkpoint with \
         map_location='cpu' and drop it before training, or give --no-resume\n",
    );
}
