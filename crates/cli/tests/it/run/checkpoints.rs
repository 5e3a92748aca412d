//! Checkpoints that a start may write over or need: whose they are, and that none is lost.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::process::ExitStatusExt;
use std::process::Stdio;

use lowtide_testkit::Printout;

use super::kit::{Place, signal};

const RETRY: [&str; 2] = ["--retry-with", "--bs={micro} --accum={accum}"];

#[track_caller]
fn says(ran: &Printout, words: &str) {
    assert!(ran.stderr.contains(words), "{words}\n--- not in\n{}", ran.stderr);
}

/// Runs a script with a batch of four, for which memory runs out.
fn retried(place: &Place, options: &[&str], words: &[&str]) -> Printout {
    place.run(&[&RETRY, options, &["--", "python3", "train.py", "--bs=4"], words].concat())
}

/// What is in all files of a name below the folders of runs, in the order of their paths.
fn copies(place: &Place, name: &str) -> Vec<String> {
    let runs = place.names("runs").into_iter().filter(|run| place.path(&format!("runs/{run}")).is_dir());
    let folders = runs.flat_map(|run| {
        let kept = place.names(&format!("runs/{run}")).into_iter().filter(|folder| folder.starts_with("before-"));
        kept.map(move |folder| place.path(&format!("runs/{run}/{folder}/{name}"))).collect::<Vec<_>>()
    });
    folders.filter_map(|path| fs::read_to_string(path).ok()).collect()
}

/// Writes `out/step_500` over in its place; the folder's own time stays.
const STEP_500: &str = "import os, sys\nos.makedirs('out/step_500', exist_ok=True)\n\
    if os.environ.get('FAIL') and '--bs=4' in sys.argv: print('step 500', flush=True)\n\
    for name in ['model.pt', 'optimizer.pt']:\n    \
        with open('out/step_500/' + name, 'w') as file: file.write(os.environ['WHO'])\n\
    print(sys.argv[1:])\n\
    if os.environ.get('FAIL') and '--bs=4' in sys.argv: raise MemoryError\n";
const STEPS: [&str; 4] = ["--resume-with", "--from={checkpoint}", "--checkpoint-glob", "out/step_*"];

fn step_500(place: &Place, who: &str, fails: &str) -> Printout {
    let words = [&RETRY[..], &STEPS, &["--", "python3", "train.py", "--bs=4"]].concat();
    Printout::of(place.command(&words).env("WHO", who).env("FAIL", fails).output().unwrap())
}

#[test]
fn each_runs_weights_are_kept_where_all_write_into_the_same_folder() {
    let place = Place::with("train.py", STEP_500);
    for who in ["anna", "bert", "cora", "dora"] {
        assert_eq!(step_500(&place, who, "").code, Some(0));
    }
    assert_eq!(copies(&place, "step_500/model.pt"), ["anna", "bert", "cora"]);
}

#[test]
fn a_run_resumes_from_a_folder_of_an_older_run_that_it_has_written_over() {
    let place = Place::with("train.py", STEP_500);
    assert_eq!(step_500(&place, "anna", "").code, Some(0));
    let ran = step_500(&place, "bert", "1");
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    says(&ran, "lowtide: start 2 resumes from out/step_500 at step 500 with ");
}

/// Writes a file as large as all that is free on its disk, of which nothing is on it.
const LARGE: &str = "import os, sys\n\
    def large(path):\n    \
        os.makedirs(os.path.dirname(path), exist_ok=True)\n    \
        disk = os.statvfs('.')\n    \
        with open(path, 'w') as file:\n        \
            file.write('weights')\n        \
            file.truncate(min(disk.f_bavail * disk.f_frsize, 15 << 40))\n";

#[test]
fn what_the_command_line_resumes_from_stays_where_it_is() {
    let script = format!(
        "{LARGE}path = sys.argv[sys.argv.index('--resume') + 1]\nprint('resumed', open(path).read(7), flush=True)\n\
         if '--bs=4' in sys.argv: raise MemoryError\n"
    );
    let place = Place::with("train.py", &script);
    let make = std::process::Command::new("python3")
        .args(["-c", &format!("{LARGE}large('out/last.pt')")])
        .current_dir(place.path(""))
        .status();
    assert!(make.unwrap().success());
    let resume = ["--resume-with", "--resume {checkpoint}", "--checkpoint-glob", "out/*.pt"];
    let ran = retried(&place, &resume, &["--resume", "out/last.pt"]);
    assert_eq!((ran.code, &*ran.stdout), (Some(0), "resumed weights\nresumed weights\n"), "{}", ran.stderr);
    says(&ran, "lowtide: start 2 resumes as the command itself does (newest there: out/last.pt, written ");
}

#[test]
fn what_a_script_looks_for_by_itself_stays_where_it_is() {
    // An unknown script, and one of Hugging Face's whose way to resume is its own.
    let unknown = "path = 'out/last.pt'\nif os.path.exists(path): print('resumed', open(path).read(7))\nlarge(path)\n";
    let own_way = "import glob\nTrainingArguments = dict\nargs = TrainingArguments(output_dir='out')\n\
                   found = sorted(glob.glob('out/checkpoint-*'))\n\
                   if found: print('resumed', open(found[-1] + '/model.pt').read(7))\nlarge('out/checkpoint-5/model.pt')\n";
    for script in [unknown, own_way] {
        let place = Place::with("train.py", &format!("{LARGE}{script}if '--bs=4' in sys.argv: raise MemoryError\n"));
        // Nothing shows that it would resume, so that nothing is started over what cannot be copied.
        let ran = retried(&place, &[], &[]);
        assert_eq!((ran.code, &*ran.stdout), (Some(3), ""), "{}", ran.stderr);
        says(&ran, "may be written over, and cannot be copied: ");
        says(
            &ran,
            "lowtide: not restarted: a start from step 0 might write over a checkpoint that could not be copied",
        );
        assert!(!ran.stderr.contains("moved"), "{}", ran.stderr);
        let ran = retried(&place, &["--no-copies"], &[]);
        assert_eq!((ran.code, &*ran.stdout), (Some(0), "resumed weights\nresumed weights\n"), "{}", ran.stderr);
    }
}

#[test]
fn where_one_cannot_be_copied_the_others_take_no_room_either() {
    let script =
        "large('out/large.pt')\nopen('small.pt', 'w').write('small')\nif '--bs=4' in sys.argv: raise MemoryError\n";
    let place = Place::with("train.py", &format!("{LARGE}{script}"));
    let ran = retried(&place, &[], &[]);
    assert_eq!(ran.code, Some(3), "{}", ran.stderr);
    says(&ran, "lowtide: warning: out/large.pt may be written over, and cannot be copied: ");
    assert!(!ran.stderr.contains("copied to"), "{}", ran.stderr);
    assert!(!place.names("runs/train-1").iter().any(|name| name.starts_with("before-")));
    assert!(place.path("small.pt").exists() && place.path("out/large.pt").exists());
}

#[test]
fn what_another_run_writes_in_the_same_folder_stays_where_it_is() {
    let script = "import os, sys\nif '--bs=4' in sys.argv:\n    os.makedirs('A')\n    open('A/state.pt', 'w').write('A')\n    \
                  raise MemoryError\n";
    let place = Place::with("train.py", script);
    let ran = retried(&place, &[], &["--name=B"]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert!(place.path("A/state.pt").exists() && !ran.stderr.contains("moved"), "{}", ran.stderr);
}

/// Lightning's command line as two seeds run it in one folder. `{another}` is what the other one does meanwhile.
fn seeds(another: &str) -> Place {
    let script = "import os, sys\n# LightningCLI(Net, Data)\nprint(sys.argv[1:])\n\
                  def save(version, step):\n    \
                      folder = f'lightning_logs/version_{version}/checkpoints'\n    \
                      os.makedirs(folder, exist_ok=True)\n    \
                      with open(f'{folder}/epoch=0-step={step}.ckpt', 'wb') as file:\n        \
                          file.write(b'PK\\x03\\x04 PK\\x05\\x06' + bytes(18))\n\
                  if '--data.batch_size=8' in sys.argv:\n    {another}\n    raise MemoryError\n";
    let place = Place::with("main.py", &script.replace("{another}", another));
    fs::create_dir_all(place.path("lightning_logs/version_0/checkpoints")).unwrap();
    place
}

fn fit(place: &Place) -> Printout {
    place.run(&["--", "python3", "main.py", "fit", "--data.batch_size=8"])
}

#[test]
fn a_checkpoint_of_another_seed_is_not_resumed_from() {
    // The other one writes into its folder, and this one has written nothing yet.
    let ran = fit(&seeds("os.makedirs('lightning_logs/version_1'); save(0, 900)"));
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    says(&ran, "lowtide: start 2 begins at step 0 (this run wrote no whole ");
    // The other one's is newer.
    let ran = fit(&seeds("save(1, 20); save(0, 900)"));
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let own = "lightning_logs/version_1/checkpoints/epoch=0-step=20.ckpt";
    says(&ran, &format!("lowtide: start 2 resumes from {own} at step 20 with "));
}

#[test]
fn where_nothing_tells_whose_checkpoint_it_is_none_is_resumed_from() {
    let ran = fit(&seeds("save(1, 20); save(2, 900)"));
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    says(
        &ran,
        "lowtide: start 2 begins at step 0 (lightning_logs/version_1 and lightning_logs/version_2 are new, and which of \
         them is this run's is not known) with ",
    );
}

#[test]
fn whatever_the_folder_is_called_a_copy_is_made() {
    let script = "import os, sys\nlogdir, step = 'runs/exp1', 'checkpoint-5'\nos.makedirs(f'{logdir}/{step}', exist_ok=True)\n\
                  for name in ['last.pt', f'{step}/model.safetensors', f'{step}/optimizer.pt', f'{step}/trainer_state.json', \
                  f'{step}/config.json', f'{step}/training_args.bin']:\n    \
                  with open(f'{logdir}/{name}', 'w') as file: file.write(sys.argv[1])\n\
                  if '--bs=4' in sys.argv: raise MemoryError\n";
    let place = Place::with("train.py", script);
    let ran = retried(&place, &[], &[]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert_eq!(place.text("runs/exp1/last.pt"), "--bs=2");
    assert_eq!(copies(&place, "last.pt"), ["--bs=4"]);
    for name in ["model.safetensors", "optimizer.pt", "trainer_state.json", "config.json", "training_args.bin"] {
        assert_eq!(copies(&place, &format!("checkpoint-5/{name}")), ["--bs=4"], "{name}");
    }
}

#[test]
fn settings_that_the_user_edits_meanwhile_are_not_moved() {
    let script = "import sys\n# LightningCLI(Net, Data)\n\
                  if '--data.batch_size=8' in sys.argv:\n    \
                      open('config.yaml', 'a').write('# edited\\n')\n    raise MemoryError\n\
                  print(open('config.yaml').read(), end='')\n";
    let place = Place::with("main.py", script);
    place.write("config.yaml", "trainer: {}\n");
    let ran = place.run(&["--", "python3", "main.py", "fit", "--config", "config.yaml", "--data.batch_size=8"]);
    assert_eq!((ran.code, &*ran.stdout), (Some(0), "trainer: {}\n# edited\n"), "{}", ran.stderr);
}

#[test]
fn a_script_that_is_told_to_write_over_its_checkpoints_has_them_copied() {
    let script = "import os, sys\nTrainingArguments = dict\n\
                  last = None if '--overwrite_output_dir' in sys.argv else get_last_checkpoint('out')\n\
                  os.makedirs('out/checkpoint-5', exist_ok=True)\n\
                  open('out/checkpoint-5/trainer_state.json', 'w').write('{}')\n";
    let place = Place::with("train.py", script);
    place.write("out/checkpoint-5/trainer_state.json", "{\"older\": 1}");
    let command = ["--", "python3", "train.py", "--output_dir=out", "--overwrite_output_dir"];
    let ran = place.run(&command);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert_eq!(copies(&place, "checkpoint-5/trainer_state.json"), ["{\"older\": 1}"]);
    let ran = place.run(&[&["--no-copies"], &command[..]].concat());
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert!(!place.path("runs/train-2/before-start-1").exists() && !ran.stderr.contains("copied"), "{}", ran.stderr);
    let ran = place.run(&[&["--dry-run", "--no-copies"], &command[..]].concat());
    assert!(!ran.stdout.contains("copied"), "{}", ran.stdout);
}

#[test]
fn copies_of_one_file_do_not_fill_the_disk() {
    let place = Place::with(
        "train.py",
        "import sys\ndef save(x, path): open(path, 'w').write(x)\nsave(sys.argv[1], 'model.pt')\n",
    );
    for number in 1..=6 {
        let ran = place.run(&["--", "python3", "train.py", &format!("--seed={number}")]);
        assert_eq!(ran.code, Some(0), "{}", ran.stderr);
        let removed = "lowtide: older copies of the same checkpoint were removed, the last 3 of earlier runs stay: \
                       runs/train-2/before-start-1/model.pt\n";
        assert_eq!(ran.stderr.contains(removed), number == 6, "{}", ran.stderr);
    }
    // The last three of earlier runs, and that of the last run itself.
    assert_eq!(copies(&place, "model.pt"), ["--seed=2", "--seed=3", "--seed=4", "--seed=5"]);
    assert!(place.text("runs/train-6/before-start-1/origins.json").contains("/model.pt\"\n"));
    // One that the command names is needed, as old as it may be.
    let ran = place.run(&["--", "python3", "train.py", "--seed=7", "--begin=runs/train-3/before-start-1/model.pt"]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert_eq!(copies(&place, "model.pt"), ["--seed=2", "--seed=3", "--seed=4", "--seed=5", "--seed=6"]);
}

#[test]
fn a_copy_that_a_run_relies_on_outlives_its_restarts() {
    let script = "import sys\ndef save(x, path): open(path, 'w').write(x)\nsave(' '.join(sys.argv[1:]), 'best.pt')\n\
                  if '--seed=5' in sys.argv and '--bs=4' in sys.argv: raise MemoryError\n";
    let place = Place::with("train.py", script);
    place.write("best.pt", "weights");
    for number in 1..=4 {
        assert_eq!(retried(&place, &[], &[&format!("--seed={number}")]).code, Some(0));
    }
    let oldest = place.path("runs/train-1/before-start-1/best.pt");
    let restored = std::process::Command::new("cp").arg("-p").arg(&oldest).arg(place.path("best.pt")).status();
    assert!(restored.unwrap().success());
    let ran = retried(&place, &[], &["--seed=5"]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    says(&ran, "may write over best.pt: a copy of it is in runs/train-1/before-start-1/best.pt\n");
    says(&ran, "may write over best.pt: it was copied to runs/train-5/before-start-2/best.pt (");
    assert_eq!(fs::read_to_string(oldest).unwrap(), "weights", "{}", ran.stderr);
}

#[test]
fn a_long_copy_is_said_and_can_be_ended() {
    let script = "def save(x, path): open(path, 'w').write(x)\nsave('x', 'first.pt')\nsave('x', 'model.pt')\n";
    let place = Place::with("train.py", script);
    for name in ["first.pt", "model.pt"] {
        place.write(name, "weights");
    }
    fs::File::options().append(true).open(place.path("model.pt")).unwrap().set_len(4 << 30).unwrap();
    let mut child = place.command(&["--", "python3", "train.py"]).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map_while(Result::ok);
    let words =
        "lowtide: first copying 4.00 GiB of checkpoints that the next start may write over (Ctrl-C ends the run, ";
    let mut said = Vec::new();
    if !lines.by_ref().inspect(|line| said.push(line.clone())).any(|line| line.starts_with(words)) {
        // A file system that shares blocks, or has no room.
        assert!(child.wait().unwrap().success());
        return;
    }
    signal("TERM", child.id());
    assert_eq!(child.wait().unwrap().signal(), Some(15));
    said.extend(lines);
    assert_eq!(said.last().unwrap(), "lowtide: not started: told to end while checkpoints were copied");
    assert!(!said.iter().any(|line| line.contains("start-1.log")), "{said:?}");
    assert_eq!(fs::metadata(place.path("model.pt")).unwrap().len(), 4 << 30);
    assert!(!place.path("runs/train-1/start-1.log").exists() && !place.path("runs/train-1/before-start-1").exists());
    assert_eq!(place.story("runs/train-1")["ending"], "interrupted");
}
