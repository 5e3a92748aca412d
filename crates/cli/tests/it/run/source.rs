//! Batches that stand in the script itself: a retry runs a changed copy as if it were the script.

use std::fs;

use insta::assert_snapshot;
use serde_json::json;

use super::kit::Place;

/// Stands beside the scripts as the library of that name does, as far as they use it.
const TRANSFORMERS: &str = "import sys\nclass TrainingArguments:\n    def __init__(self, output_dir, **named):\n        \
    self.__dict__.update({'per_device_train_batch_size': 8, 'gradient_accumulation_steps': 1, **named})\n\
    class Trainer:\n    def __init__(self, args): self.args = args\n    def train(self):\n        \
    print(self.args.per_device_train_batch_size, self.args.gradient_accumulation_steps, flush=True)\n        \
    if self.args.per_device_train_batch_size > 4: raise MemoryError\n";

fn with(files: &[(&str, &str)]) -> Place {
    let place = Place::new();
    for (name, text) in files {
        fs::create_dir_all(place.path(name).parent().unwrap()).unwrap();
        place.write(name, text);
    }
    place
}

#[test]
fn arguments_of_a_call() {
    let cases = [
        (
            "'out',\n    per_device_train_batch_size=16,  # big\n    gradient_accumulation_steps=2,\n",
            "16 2\n8 4\n4 8\n",
        ),
        ("'out', per_device_train_batch_size=8", "8 1\n4 2\n"),
        ("'out', per_device_train_batch_size=BATCH, lr=1", "8 1\n4 2\n"),
        ("'out', lr=1", "8 1\n4 2\n"),
    ];
    for (arguments, expected) in cases {
        let script = format!(
            "from transformers import Trainer, TrainingArguments\nBATCH = 8\nargs = TrainingArguments({arguments})\nTrainer(args).train()\n"
        );
        let place = with(&[("transformers.py", TRANSFORMERS), ("train.py", &script)]);
        let ran = place.run(&["--", "python3", "train.py"]);
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(0), expected), "{}", ran.stderr);
        assert_eq!(place.text("train.py"), script);
    }
}

#[test]
fn constants_that_the_loop_uses() {
    let script = "def main():\n    BATCH_SIZE = 8\n    accum_steps = 1\n    print(BATCH_SIZE, accum_steps)\n    \
                  loss = 1.0 / accum_steps\n    if BATCH_SIZE > 2: raise MemoryError\nmain()\n";
    for script in [
        script.to_owned(),
        script.replace("def main():", "if True:").replace("main()\n", "").replace("    ", "").replace("if True:\n", ""),
    ] {
        let place = with(&[("train.py", &script)]);
        let ran = place.run(&["--", "python3", "train.py"]);
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(0), "8 1\n4 2\n2 4\n"), "{script}{}", ran.stderr);
    }
}

#[test]
fn constants_of_a_module_that_is_imported() {
    let settings = "BATCH_SIZE = 8  # samples\nACCUM_STEPS = 1\n";
    let script = "import settings\nfrom settings import ACCUM_STEPS, BATCH_SIZE\nprint(BATCH_SIZE, ACCUM_STEPS, settings.__file__[-11:])\n\
                  loss = 1.0 / ACCUM_STEPS\nif settings.BATCH_SIZE > 2: raise MemoryError\n";
    let place = with(&[("settings.py", settings), ("train.py", script)]);
    let ran = place.run(&["--", "python3", "train.py"]);
    let expected = "8 1 settings.py\n4 2 settings.py\n2 4 settings.py\n";
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(0), expected), "{}", ran.stderr);
    assert!(ran.stderr.contains("settings.py is run with BATCH_SIZE=4 ACCUM_STEPS=2"), "{}", ran.stderr);
    assert_eq!((&*place.text("settings.py"), &*place.text("train.py")), (settings, script));
}

/// Where the batch stands in one file and accumulation in another, both are changed at once.
#[test]
fn a_batch_in_a_module_and_accumulation_in_the_script() {
    let settings = "BATCH_SIZE = 8  # samples\n";
    let script = "import multiprocessing, settings\nACCUM_STEPS = 1\ndef size(_): return settings.BATCH_SIZE\n\
                  if __name__ == '__main__':\n    loss = 1.0 / ACCUM_STEPS\n    \
                  sizes = multiprocessing.get_context('spawn').Pool(1).map(size, [0])\n    \
                  print(settings.BATCH_SIZE, ACCUM_STEPS, sizes, settings.__file__[-11:], __file__[-8:], flush=True)\n    \
                  if settings.BATCH_SIZE > 2: raise MemoryError\n";
    let place = with(&[("settings.py", settings), ("train.py", script)]);
    let ran = place.run(&["--", "python3", "train.py"]);
    let expected = "8 1 [8] settings.py train.py\n4 2 [4] settings.py train.py\n2 4 [2] settings.py train.py\n";
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(0), expected), "{}", ran.stderr);
    for told in [
        "train.py is run with ACCUM_STEPS=2",
        "settings.py is run with BATCH_SIZE=4",
        "set ACCUM_STEPS=4 in train.py, set BATCH_SIZE=2 in settings.py next time",
    ] {
        assert!(ran.stderr.contains(told), "{told}\n{}", ran.stderr);
    }
    assert_eq!((&*place.text("settings.py"), &*place.text("train.py")), (settings, script));
}

#[test]
fn accumulation_in_a_module_and_the_batch_in_the_script_or_by_a_flag() {
    let settings = "ACCUM_STEPS = 1\n";
    let ends = "loss = 1.0 / ACCUM_STEPS\nprint(n, ACCUM_STEPS, flush=True)\nif n > 2: raise MemoryError\n";
    let batch = format!("from settings import ACCUM_STEPS\nbatch_size = 4\nn = batch_size\n{ends}");
    let flag = format!(
        "import argparse\nfrom settings import ACCUM_STEPS\np = argparse.ArgumentParser()\n\
         p.add_argument('--batch_size', type=int, default=4)\nn = p.parse_args().batch_size\n{ends}"
    );
    for script in [batch, flag] {
        let place = with(&[("settings.py", settings), ("train.py", &script)]);
        let ran = place.run(&["--", "python3", "train.py"]);
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(0), "4 1\n2 2\n"), "{script}{}", ran.stderr);
    }
}

/// Arguments that a library has a default for are added beside a batch that stands elsewhere.
#[test]
fn a_constant_elsewhere_and_a_librarys_arguments_in_the_script() {
    let script = "import settings\nfrom transformers import Trainer, TrainingArguments\n\
                  Trainer(TrainingArguments('out', per_device_train_batch_size=settings.BATCH_SIZE)).train()\n";
    let files = [("lib/transformers.py", TRANSFORMERS), ("settings.py", "BATCH_SIZE = 8\n"), ("train.py", script)];
    let place = with(&files);
    let ran = place.run(&["--", "env", "PYTHONPATH=lib", "python3", "train.py"]);
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(0), "8 1\n4 2\n"), "{}", ran.stderr);
}

/// Without accumulation anywhere, the lines to change are told.
#[test]
fn a_batch_in_a_module_and_no_accumulation() {
    let place = with(&[
        ("settings.py", "BATCH_SIZE = 32\n"),
        (
            "train.py",
            "from settings import BATCH_SIZE\n\
        loader = [BATCH_SIZE]\nfor batch in loader:\n    loss = net(batch)\n    loss.backward()\n    opt.step()\n",
        ),
    ]);
    let ran = place.run(&["--", "python3", "train.py"]);
    assert!(
        ran.stderr.contains("train.py has BATCH_SIZE = 32 (settings.py, line 1), and nothing that accumulates"),
        "{}",
        ran.stderr
    );
}

/// Prints what a script can see of itself, then ends as it is told.
const MIRROR: &str = r#"from __future__ import annotations
import inspect, os, sys
import multiprocessing
import helper

batch_size = 8
accum_steps = 1


def size(_):
    return batch_size, __name__


def main():
    loss = 1.0 / accum_steps
    print(__file__, sys.argv, sys.path[0], __name__, __spec__ and __spec__.name, __package__, helper.NAME, os.getcwd(), sys.flags.dev_mode)
    print(inspect.getsource(size).strip(), sys.modules["sitecustomize"].NAME)
    for method in ["spawn", "forkserver"]:
        with multiprocessing.get_context(method).Pool(1) as pool:
            print(pool.map(size, [1]) == [(batch_size, "__mp_main__")])
    if batch_size > 4:
        raise MemoryError("too much")
    if "--exit" in sys.argv:
        sys.exit(7)
    if "--raise" in sys.argv:
        raise ValueError(batch_size)
    print("trained with", batch_size, accum_steps)


if __name__ == "__main__":
    main()
"#;

/// A place with the script in a folder, its sibling, and a `sitecustomize` of the user's own.
fn mirrors() -> Place {
    with(&[
        ("code/train.py", MIRROR),
        ("code/helper.py", "NAME = 'sibling'\n"),
        ("helper.py", "NAME = 'sibling'\n"),
        ("code/__init__.py", ""),
        ("own/sitecustomize.py", "NAME = 'own'\n"),
    ])
}

fn run(place: &Place, words: &[&str]) -> lowtide_testkit::Printout {
    let mut command = place.command(&[&["--"], words].concat());
    lowtide_testkit::Printout::of(command.env("PYTHONPATH", place.path("own")).output().unwrap())
}

#[test]
fn the_copy_sees_what_the_script_would() {
    for words in [
        &["python3", "code/train.py", "--x"][..],
        &["python3", "-u", "-X", "dev", "./code/train.py"],
        &["python3", "-m", "code.train", "--x"],
        &["env", "-u", "NOTHING", "python3", "code/train.py"],
    ] {
        let place = mirrors();
        let ran = run(&place, words);
        assert_eq!(ran.code, Some(0), "{words:?} {}", ran.stderr);
        let lines: Vec<&str> = ran.stdout.lines().collect();
        // Five lines, and the last only at the second start: all but that are the same.
        let half = (lines.len() - 1) / 2;
        assert_eq!(lines[..half], lines[half..2 * half], "{words:?}");
        assert_eq!(lines.last(), Some(&"trained with 4 2"));
        assert!(ran.stdout.contains("True\nTrue\n"), "{}", ran.stdout);
        assert_eq!(place.text("code/train.py"), MIRROR);
        let copy = MIRROR.replace("batch_size = 8", "batch_size = 4").replace("accum_steps = 1", "accum_steps = 2");
        let folder = if words.contains(&"-m") { "code.train" } else { "train" };
        assert_eq!(place.text(&format!("runs/{folder}-1/retry-1.py")), copy);
    }
}

#[test]
fn its_ends_are_the_scripts_own() {
    let place = mirrors();
    assert_eq!(run(&place, &["python3", "code/train.py", "--exit"]).code, Some(7));
    let ran = run(&place, &["python3", "-u", "code/train.py", "--raise"]);
    assert_eq!(ran.code, Some(1));
    // The log has two streams, whose lines may come in any order.
    let (_, trace) = ran.stderr.rsplit_once("Traceback").unwrap();
    let (trace, _) = trace.split_once("lowtide: ").unwrap();
    let trace = trace.replace(&place.path("").canonicalize().unwrap().display().to_string(), "HERE");
    assert_snapshot!(trace, @r#"
     (most recent call last):
      File "HERE/code/train.py", line 31, in <module>
        main()
      File "HERE/code/train.py", line 26, in main
        raise ValueError(batch_size)
    ValueError: 4
    "#);
}

#[test]
fn what_is_said_of_it() {
    let place = mirrors();
    let ran = run(&place, &["python3", "code/train.py"]);
    let said: Vec<&str> =
        ran.stderr.lines().filter(|line| line.contains("train.py") && line.starts_with("lowtide: ")).collect();
    assert_snapshot!(said[0], @"lowtide: micro-batch x accumulation 8 x 1 (batch_size in line 6, accum_steps in line 7 of code/train.py), 3 retries down to 1 x 8");
    let copy = "lowtide:   code/train.py is run with batch_size=4 accum_steps=2, from runs/train-1/retry-1.py; the file itself is not changed";
    assert!(said.contains(&copy), "{}", ran.stderr);
}

#[test]
fn a_python_that_reads_nothing_at_its_start() {
    let place = mirrors();
    let ran = run(&place, &["python3", "-I", "code/train.py"]);
    let first = ran.stderr.lines().next().unwrap();
    assert!(first.contains("python -I reads nothing at its start"), "{first}");
    // One that only the script knows of: said when it has ended.
    let place = with(&[
        ("train.sh", "exec python3 -E \"$1\"\n"),
        ("train.py", "batch_size = 8\naccum_steps = 1\nloss = 1 / accum_steps\nprint(batch_size)\nraise MemoryError\n"),
    ]);
    let ran = run(&place, &["sh", "train.sh", "train.py"]);
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(3), "8\n8\n"), "{}", ran.stderr);
    assert!(ran.stderr.contains("lowtide: the changed copy of train.py was not taken: "), "{}", ran.stderr);
    assert_eq!(place.story("runs/train-1")["restarts"], json!(1));
}

#[test]
fn a_script_that_was_changed_meanwhile_is_not_run_from_a_copy_of_the_old_one() {
    let script = "batch_size = 8\naccum_steps = 1\nloss = 1 / accum_steps\nopen(__file__, 'a').write('# more\\n')\nraise MemoryError\n";
    let place = with(&[("train.py", script)]);
    let ran = place.run(&["--", "python3", "train.py"]);
    assert_eq!(ran.code, Some(3), "{}", ran.stderr);
    let why = "error: train.py: the script was changed while the run was under way\n";
    assert!(ran.stderr.contains(why) && !ran.stderr.contains("start 2"), "{}", ran.stderr);
    assert_eq!(place.story("runs/train-1")["exit_code"], 3);
}

#[test]
fn what_cannot_be_changed_is_told() {
    let first = |script: &str| {
        let place = with(&[("train.py", script)]);
        place.run(&["--", "python3", "train.py"]).stderr.lines().next().unwrap_or_default().to_owned()
    };
    assert_snapshot!(first("BATCH_SIZE = 8\nACCUM_STEPS = 2\nprint(BATCH_SIZE, ACCUM_STEPS)\n"), @"lowtide: no retry with a smaller micro-batch: train.py, line 2: the loss is not divided by ACCUM_STEPS (2), so that another would change the gradients: --batch and --accum say it, --retry-with or --retry-config change it");
    assert_snapshot!(first("batch_size = 1\nprint(batch_size)\n"), @"lowtide: no retry with a smaller micro-batch: train.py has batch_size = 1 in line 1, and a batch of 1 has no smaller one");
    assert_snapshot!(first("batch_size = 8\nprint(batch_size)\n"), @"lowtide: no retry with a smaller micro-batch: train.py has batch_size = 8 in line 1, and nothing that accumulates gradients, so that a smaller batch would be another training; --shrink-batch allows it");
}

#[test]
fn a_template_finds_arguments_of_calls() {
    let script =
        "import helper\ndef make(n, m): return n, m\nn, m = make(n=8, m=1)\nprint(n, m)\nif n > 4: raise MemoryError\n";
    let place = with(&[("train.py", script), ("helper.py", "")]);
    let retry = ["--config", "train.py", "--retry-config", "n={micro} m={accum}", "--", "python3", "train.py"];
    let ran = place.run(&retry);
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(0), "8 1\n4 2\n"), "{}", ran.stderr);
    place.write("train.py", format!("{script}make(n=3, m=1)\n"));
    let ran = place.run(&retry);
    assert_eq!(ran.code, Some(2));
    assert_snapshot!(ran.stderr, @r"
    error: train.py: n is set in lines 3 and 6
    hint: set it in one place, or give it by a flag and say that with --retry-with
    ");
}
