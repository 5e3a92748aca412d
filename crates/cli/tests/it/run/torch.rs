//! Scripts on PyTorch, Hugging Face's Trainer, Lightning and torchrun themselves, which really run out of memory on the
//! CPU. `LOWTIDE_TORCH_PYTHON` names a Python that has them: torch, transformers, accelerate, lightning and
//! jsonargparse.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

use lowtide_testkit::Printout;
use serde_json::{Value, json};

use super::kit::Place;

const LIMIT: (&str, &str) = ("limit.py", include_str!("scripts/limit.py"));
const GROUP: [(&str, &str); 3] = [
    LIMIT,
    ("group.py", include_str!("scripts/group.py")),
    ("configurator.py", include_str!("scripts/configurator.py")),
];

/// Runs a command that begins with the name of a program of that Python.
fn run(place: &Place, files: &[(&str, &str)], options: &[&str], command: &str) -> (Printout, Value) {
    for (name, text) in files {
        std::fs::write(place.path(name), text).unwrap();
    }
    let python = PathBuf::from(env::var_os("LOWTIDE_TORCH_PYTHON").expect("LOWTIDE_TORCH_PYTHON names a Python"));
    let mut words = command.split(' ');
    let program = python.with_file_name(words.next().unwrap());
    let words: Vec<&str> = ["--", program.to_str().unwrap()].into_iter().chain(words).collect();
    let mut command = place.command(&[options, &words].concat());
    let ran = Printout::of(command.env("OMP_NUM_THREADS", "1").output().unwrap());
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let mut runs = std::fs::read_dir(place.path("runs")).unwrap().map(|entry| entry.unwrap().path());
    let folder = runs.find(|path| path.is_dir()).unwrap();
    let story = place.story(folder.to_str().unwrap());
    ran_out_first(&story);
    wrote_it_down(&folder, place);
    (ran, story)
}

/// The process that ran out has said so itself, with the line of the script that asked.
fn wrote_it_down(folder: &Path, place: &Place) {
    let entries = std::fs::read_dir(folder.join("memory")).unwrap().map(|entry| entry.unwrap().path());
    let reports: Vec<Value> = entries
        .filter(|path| path.file_name().unwrap().to_str().unwrap().starts_with("start-1-"))
        .map(|path| serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap())
        .collect();
    let here = place.path("").canonicalize().unwrap();
    let names_it = |report: &Value| {
        let frames = report["threads"][0]["frames"].as_array().unwrap();
        let own = frames.iter().rfind(|frame| Path::new(frame["file"].as_str().unwrap()).starts_with(&here));
        let error = report["error"].as_str().unwrap_or_default();
        own.is_some() && error.contains("DefaultCPUAllocator") && report["asked_bytes"].as_u64().is_some()
    };
    assert!(reports.iter().any(names_it), "{reports:#?}");
}

/// The first start must have run out of the memory of PyTorch's own allocator, or nothing is shown.
fn ran_out_first(story: &Value) {
    let starts = story["starts"].as_array().unwrap();
    assert!(starts.len() > 1, "{story:#}");
    assert_eq!((&story["ending"], &starts[0]["outcome"]), (&json!("finished"), &json!("out_of_memory")));
    assert!(starts[0]["line"].as_str().unwrap().contains("DefaultCPUAllocator"), "{story:#}");
    let effective = |batch: &Value| batch["micro"].as_u64().unwrap() * batch["accum"].as_u64().unwrap();
    let batches: Vec<u64> = starts.iter().map(|start| effective(&start["batch"])).collect();
    assert!(batches.iter().all(|batch| *batch == batches[0]), "{story:#}");
}

#[test]
#[ignore = "needs LOWTIDE_TORCH_PYTHON"]
fn a_loop_on_pytorch_finishes_with_the_same_effective_batch() {
    let files = [LIMIT, ("plain.py", include_str!("scripts/plain.py"))];
    let retry = ["--retry-with", "--batch_size={micro} --gradient_accumulation_steps={accum}"];
    let (ran, story) = run(&Place::new(), &files, &retry, "python plain.py --batch_size=512");
    assert!(ran.stdout.ends_with("seen 1024\n"), "{ran:?}");
    assert_eq!(story["effective_batch"], json!(512));
}

/// The loop that is printed to paste makes as many updates, with the same gradients, also of the last incomplete batch.
#[test]
#[ignore = "needs LOWTIDE_TORCH_PYTHON"]
fn the_loop_to_paste_is_the_same_training() {
    let script = include_str!("scripts/pasted.py");
    let place = Place::with("pasted.py", script);
    let python = env::var("LOWTIDE_TORCH_PYTHON").expect("LOWTIDE_TORCH_PYTHON names a Python");
    let ran = Printout::of(place.command(&["--", &python, "pasted.py"]).env("SMALL", "1").output().unwrap());
    let (_, hint) = ran.stderr.split_once("in the place of lines ").unwrap();
    let (place_of, lines) = hint.split_once(" of pasted.py:\n").unwrap();
    let (first, last) = place_of.split_once(" to ").unwrap();
    let [first, last] = [first, last].map(|line| line.parse::<usize>().unwrap());
    let old: Vec<&str> = script.lines().collect();
    let new = lines.lines().map_while(|line| line.strip_prefix("lowtide:     "));
    let pasted: Vec<&str> = old[..first - 1].iter().copied().chain(new).chain(old[last..].iter().copied()).collect();
    let printed = |name: &str, text: &str| {
        place.write(name, text);
        Printout::of(Command::new(&python).arg(name).current_dir(place.path("")).output().unwrap())
    };
    let before = printed("before.py", script);
    let after = printed("after.py", &pasted.join("\n").replace("batch_size=16", "batch_size=4"));
    assert!(before.stdout.starts_with("14 ["), "{before:?}");
    assert_eq!(after.stdout, before.stdout, "{after:?}");
}

#[test]
#[ignore = "needs LOWTIDE_TORCH_PYTHON"]
fn nanogpt_settings_are_found_in_the_script() {
    let (ran, story) = run(&Place::new(), &GROUP, &[], "python group.py");
    assert!(ran.stdout.ends_with("seen 2048\n"), "{ran:?}");
    assert_eq!((&story["effective_batch"], &story["starts"][0]["batch"]["micro"]), (&json!(1024), &json!(512)));
}

/// One process of two runs out, and both start again.
#[test]
#[ignore = "needs LOWTIDE_TORCH_PYTHON"]
fn torchrun_is_kept_as_a_group() {
    let command = "torchrun --standalone --nproc_per_node=2 group.py";
    let (ran, story) = run(&Place::new(), &GROUP, &[], command);
    assert!(ran.stdout.ends_with("seen 2048\n"), "{ran:?}");
    assert_eq!(story["effective_batch"], json!(1024));
}

/// The third step is larger than the others: what came before it is not trained again.
#[test]
#[ignore = "needs LOWTIDE_TORCH_PYTHON"]
fn the_trainer_of_hugging_face_goes_on_from_its_checkpoint_with_the_same_samples() {
    let files = [LIMIT, ("hf.py", include_str!("scripts/hf.py"))];
    let command = "python hf.py --output_dir out --per_device_train_batch_size 64 --max_steps 4 --save_steps 1 \
                   --use_cpu --report_to none --disable_tqdm true";
    let place = Place::new();
    let (ran, story) = run(&place, &files, &[], command);
    assert!(ran.stdout.ends_with("finished at step 4\n"), "{ran:?}");
    assert_eq!(story["starts"][1]["resumed_from"], "out/checkpoint-2", "{story:#}");
    let steps: Vec<Vec<u64>> =
        place.text("seen.txt").lines().map(|line| line.split(' ').map(|it| it.parse().unwrap()).collect()).collect();
    // Each line is a step's number and its 64 samples; an epoch has each of the 256 once.
    assert_eq!(
        steps.iter().map(|step| (step[0], step.len())).collect::<Vec<_>>(),
        [(1, 65), (2, 65), (3, 65), (4, 65)]
    );
    let mut seen: Vec<u64> = steps.iter().flat_map(|step| &step[1..]).copied().collect();
    seen.sort_unstable();
    assert_eq!(seen, (0..256).collect::<Vec<_>>());
}

#[test]
#[ignore = "needs LOWTIDE_TORCH_PYTHON"]
fn lightning_accumulates_more() {
    let files = [LIMIT, ("lit.py", include_str!("scripts/lit.py"))];
    let command = "python lit.py fit --trainer.max_steps=2 --data.batch_size=512 --trainer.accelerator=cpu \
                   --trainer.enable_progress_bar=false";
    let (ran, story) = run(&Place::new(), &files, &[], command);
    assert!(ran.stdout.ends_with("seen 1024 in 2 steps\n"), "{ran:?}");
    assert_eq!(story["effective_batch"], json!(512));
}

#[test]
#[ignore = "needs LOWTIDE_TORCH_PYTHON"]
fn lightning_resumes_at_the_epoch_of_its_checkpoint() {
    let files = [LIMIT, ("lit.py", include_str!("scripts/lit_epochs.py"))];
    let command = "python lit.py fit --trainer.max_epochs=4 --data.batch_size=128 --trainer.accelerator=cpu \
                   --trainer.enable_progress_bar=false --trainer.default_root_dir=root";
    let (ran, story) = run(&Place::new(), &files, &[], command);
    let second = &story["starts"][1];
    assert_eq!(second["resumed_from"], "root/lightning_logs/version_0/checkpoints/epoch=1-step=2.ckpt", "{story:#}");
    assert_eq!(second["resumed_step"], json!(2), "{story:#}");
    assert!(ran.stdout.contains("begins at step 2\n"), "{ran:?}");
    // Two epochs of 128 samples are left, whatever the micro-batch.
    assert!(ran.stdout.ends_with("seen 256 until step 4\n"), "{ran:?}");
}

#[test]
#[ignore = "needs LOWTIDE_TORCH_PYTHON"]
fn lightning_resumes_without_a_logger() {
    let files = [LIMIT, ("lit.py", include_str!("scripts/lit_epochs.py"))];
    let command = "python lit.py fit --trainer.max_epochs=4 --data.batch_size=128 --trainer.accelerator=cpu \
                   --trainer.enable_progress_bar=false --trainer.logger=false";
    let place = Place::new();
    let (ran, story) = run(&place, &files, &[], command);
    assert_eq!(story["starts"][1]["resumed_from"], "checkpoints/epoch=1-step=2.ckpt", "{story:#}");
    assert!(ran.stdout.ends_with("seen 256 until step 4\n"), "{ran:?}");
    assert!(place.text("config.yaml").contains("ckpt_path: checkpoints/"), "{ran:?}");
}

#[test]
#[ignore = "needs LOWTIDE_TORCH_PYTHON"]
fn accelerate_resumes_from_the_state_it_saved() {
    let files = [LIMIT, ("steps.py", include_str!("scripts/accelerate_steps.py"))];
    let command = "python steps.py --per_device_train_batch_size=128 --gradient_accumulation_steps=1";
    let (ran, story) = run(&Place::new(), &files, &[], command);
    assert_eq!(story["starts"][1]["resumed_from"], "out/step_4", "{story:#}");
    assert!(ran.stdout.contains("resumes at step 4 after 4 updates\n"), "{ran:?}");
    // Four of the eight batches of 128 samples are left.
    assert!(ran.stdout.ends_with("seen 512 until step 8\n"), "{ran:?}");
}

#[test]
#[ignore = "needs LOWTIDE_TORCH_PYTHON"]
fn the_trainer_of_hugging_face_with_its_batch_in_the_source() {
    let files = [LIMIT, ("hf_source.py", include_str!("scripts/hf_source.py"))];
    let place = Place::new();
    let (ran, story) = run(&place, &files, &[], "python hf_source.py");
    assert!(ran.stdout.ends_with("seen 128 in 2 steps\n"), "{ran:?}");
    assert_eq!(story["effective_batch"], json!(64));
    assert_eq!(place.text("hf_source.py"), include_str!("scripts/hf_source.py"));
}

/// In the source, in a worker that is spawned, under launchers.
#[test]
#[ignore = "needs LOWTIDE_TORCH_PYTHON"]
fn constants_of_a_loop_are_changed_in_a_copy() {
    let files = [LIMIT, ("constants.py", include_str!("scripts/constants.py"))];
    for command in ["torchrun --standalone --nproc_per_node=2 constants.py", "accelerate launch --cpu constants.py"] {
        let (ran, story) = run(&Place::new(), &files, &[], command);
        assert!(ran.stdout.ends_with("seen 1024 in 2 steps by constants.py\n"), "{command}: {ran:?}");
        assert_eq!(story["effective_batch"], json!(512), "{command}");
    }
}
