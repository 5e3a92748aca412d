//! Flags that a script declares for its own command line, found without being told.

use insta::assert_snapshot;

use super::kit::Place;

/// Takes memory for more than two samples at once.
const END: &str = "print(a.batch_size, getattr(a, 'accum', None))\nif a.batch_size > 2: raise MemoryError\n";

fn parser(options: &str) -> String {
    format!("import argparse\np = argparse.ArgumentParser()\n{options}a = p.parse_args()\n{END}")
}

#[test]
fn flags_of_every_name() {
    let eval = "p.add_argument('--eval-batch-size', '--test_bs', type=int, default=64)\n";
    let batches = [
        "'--batch-size', type=int, default=8",
        "'-b', '--bs', dest='batch_size', default=8, type=int",
        "'--train_batch_size', dest='batch_size', metavar='N', type=int, default=8",
        "'--per_device_batch_size',\n    type=int,\n    default=8, dest='batch_size',\n",
        "'-b', dest='batch_size', type=int, default=8",
        "'--batch', dest='batch_size', type=int, default=8",
    ];
    let steps = [
        "'--grad-accum', dest='accum', type=int, default=1",
        "'--accum', type=int, default=1",
        "'--gradient_accumulation_steps', dest='accum', type=int, default=1",
        "'--accumulate', dest='accum', type=int, default=1, help='batches before a step'",
        "'--accumulation-steps', '-a', dest='accum', type=int, default=1",
        "'--grad_acc_steps', dest='accum', type=int, default=1",
    ];
    for (batch, steps) in batches.iter().zip(steps) {
        let place =
            Place::with("train.py", &parser(&format!("p.add_argument({batch})\n{eval}p.add_argument({steps})\n")));
        let ran = place.run(&["--", "python3", "train.py"]);
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(0), "8 1\n4 2\n2 4\n"), "{batch}: {}", ran.stderr);
        assert!(ran.stderr.contains("finished after 2 restarts, effective batch 8 throughout"), "{}", ran.stderr);
    }
}

#[test]
fn what_is_typed_counts_before_the_default() {
    let options =
        "p.add_argument('-b', '--batch-size', type=int, default=2)\np.add_argument('--accum', type=int, default=1)\n";
    let place = Place::with("train.py", &parser(options));
    for typed in [&["-b", "4", "--accum=3"][..], &["--batch-size=4", "--accum", "3"], &["--batch", "4", "--acc=3"]] {
        let ran = place.run(&[&["--", "python3", "train.py"], typed].concat());
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(0), "4 3\n2 6\n"), "{typed:?} {}", ran.stderr);
    }
    let ran = place.run(&["--dry-run", "--", "python3", "-u", "train.py", "-b", "4"]);
    assert_snapshot!(ran.stdout, @r"
    micro-batch x accumulation 4 x 1 (-b, --accum), 2 retries down to 1 x 4
    with PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True
      python3 -u train.py -b 4   # 4 x 1
      python3 -u train.py -b 2 --accum=2   # 2 x 2
      python3 -u train.py -b 1 --accum=4   # 1 x 4
    a restart begins at step 0: where its checkpoints are is not known; say it: --resume-with '--resume {checkpoint}' --checkpoint-glob 'out/*.pt'
    at most 8 restarts; logs in runs/train-N/
    ");
}

#[test]
fn options_of_a_module_beside_the_script() {
    let options = "import argparse\ndef parse():\n    p = argparse.ArgumentParser()\n    \
                   p.add_argument('--bs', dest='batch_size', type=int, default=4)\n    \
                   p.add_argument('--accum', type=int, default=1)\n    return p.parse_args()\n";
    let place = Place::with("train.py", &format!("from mine.options import parse\na = parse()\n{END}"));
    std::fs::create_dir(place.path("mine")).unwrap();
    place.write("mine/options.py", options);
    let ran = place.run(&["--", "python3", "train.py"]);
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(0), "4 1\n2 2\n"), "{}", ran.stderr);
}

#[test]
fn flags_on_the_command_line_of_any_program() {
    let script = "echo \"$*\"\ncase \"$*\" in *'--bs 4'*) echo 'MemoryError' >&2; exit 1;; esac\n";
    let place = Place::with("train.sh", script);
    let ran = place.run(&["--", "sh", "train.sh", "--bs", "4", "--eval-bs", "8", "--grad-accum=2"]);
    assert_eq!(
        (ran.code, ran.stdout.as_str()),
        (Some(0), "--bs 4 --eval-bs 8 --grad-accum=2\n--bs 2 --eval-bs 8 --grad-accum=4\n"),
        "{}",
        ran.stderr
    );
}

#[test]
fn what_a_script_leaves_to_others_is_not_claimed() {
    let place = Place::with("train.py", "import runpy\n");
    let first = first_line(&place, &["--", "python3", "train.py", "--bs", "8"]);
    assert_snapshot!(first, @"lowtide: no retry with a smaller micro-batch: no flag for gradient accumulation is known beside --bs=8: say it with --batch 8 --retry-with '--bs={micro} --FLAG={accum}'; FLAG stands for its name");
}

#[test]
fn a_script_that_accumulates_for_a_whole_batch_by_itself() {
    let options = "p.add_argument('--device-batch-size', dest='batch_size', type=int, default=8)\n\
                   p.add_argument('--total-batch-size', type=int, default=524288)\n";
    let script = format!("{}n = a.total_batch_size // (a.batch_size * 1024)\n", parser(options));
    let place = Place::with("train.py", &script);
    let ran = place.run(&["--", "python3", "train.py"]);
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(0), "8 None\n4 None\n2 None\n"), "{}", ran.stderr);
    let first = ran.stderr.lines().next().unwrap();
    assert_eq!(
        first,
        "lowtide: micro-batch 8 (--device-batch-size), 3 retries down to 1; --total-batch-size=524288 stays"
    );
}

/// A loss that is divided by the number of micro-batches, with what it would need of PyTorch made up.
const ACCUMULATES: &str = r#"
class Loss:
    def __truediv__(self, steps): return self
    def backward(self): pass
class Optimizer:
    def step(self): pass
loader, optimizer = range(a.accum), Optimizer()
for i, x in enumerate(loader):
    loss = Loss() / a.accum
    loss.backward()
    if (i + 1) % a.accum == 0: optimizer.step()
"#;

#[test]
fn a_script_that_cuts_its_batch_itself_gets_more_accumulation_alone() {
    let options =
        "p.add_argument('--batch-size', type=int, default=8)\np.add_argument('--accum', type=int, default=1)\n";
    let script = format!("{}{ACCUMULATES}", parser(options));
    let cuts = "a.batch_size = a.batch_size // a.accum\n";
    let place =
        Place::with("train.py", &script.replacen("a = p.parse_args()\n", &format!("a = p.parse_args()\n{cuts}"), 1));
    let ran = place.run(&["--", "python3", "train.py"]);
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(0), "8 1\n4 2\n2 4\n"), "{}", ran.stderr);
    assert_snapshot!(ran.stderr.lines().next().unwrap(), @"lowtide: micro-batch x accumulation 8 x 1 (--accum), 3 retries down to 1 x 8");
}

#[test]
fn what_would_train_otherwise_is_not_retried() {
    let options =
        "p.add_argument('--batch-size', type=int, default=8)\np.add_argument('--accum', type=int, default=1)\n";
    let script = format!("{}{ACCUMULATES}", parser(options));
    let first = |script: &str| first_line(&Place::with("train.py", script), &["--", "python3", "train.py"]);
    assert_snapshot!(first(&script.replace("Loss() / a.accum", "Loss()")), @"lowtide: no retry with a smaller micro-batch: train.py, line 17: the loss is not divided by --accum=1, so that another would change the gradients. Change that in the script first, or say it all the same with --batch 8 --retry-with '--batch-size={micro} --accum={accum}'");
    assert_snapshot!(first(&script.replace("for i, x in enumerate(loader)", "for i in range(1000)")), @"lowtide: no retry with a smaller micro-batch: train.py, line 15: the loop ends after a number of micro-batches (`range(1000)`), so that with more accumulation it would make fewer updates. Change that in the script first, or say it all the same with --batch 8 --retry-with '--batch-size={micro} --accum={accum}'");
    let ran = |script: &str, file: &str| {
        let place = Place::with("train.py", script);
        place.write("ds.json", file);
        let ran = place.run(&["--", "python3", "train.py", "--deepspeed", "ds.json"]);
        let hint = ran.stderr.lines().skip_while(|line| !line.contains("hint: "));
        [ran.stderr.lines().next().unwrap(), &hint.collect::<Vec<_>>().join("\n")].join("\n")
    };
    let script = "# HfArgumentParser(TrainingArguments)\nraise MemoryError\n";
    assert_snapshot!(ran(script, "{\"train_micro_batch_size_per_gpu\": 8}\n"), @r#"
    lowtide: no retry with a smaller micro-batch (hf): ds.json, line 1: train_micro_batch_size_per_gpu is 8 for DeepSpeed, whatever a retry changes
    lowtide: hint: "train_micro_batch_size_per_gpu": "auto" in ds.json lets a retry change it
    "#);
    let lightning = "# import lightning as L\nclass Net:\n    def __init__(self):\n        self.automatic_optimization = False\n\
                     DataLoader = Trainer = lambda *words, **named: None\nloader = DataLoader([], batch_size=8)\n\
                     Trainer(max_epochs=1)\nraise MemoryError\n";
    assert_snapshot!(ran(lightning, "{}"), @r"
    lowtide: no retry with a smaller micro-batch: train.py, line 4: automatic_optimization is off, and Lightning refuses accumulate_grad_batches for a model that updates its weights itself
    lowtide: hint: the model itself has to accumulate: manual_backward(loss / steps) for each micro-batch, and optimizer.step() after every `steps` of them
    ");
}

fn first_line(place: &Place, words: &[&str]) -> String {
    place.run(words).stderr.lines().next().unwrap_or_default().to_owned()
}

#[test]
fn what_may_be_meant_twice_is_not_guessed() {
    let two = "p.add_argument('--batch-size', type=int, default=8)\np.add_argument('--micro-batch-size', type=int, default=4)\n\
               p.add_argument('--accum', type=int, default=1)\n";
    let place = Place::with("train.py", &parser(two));
    assert_snapshot!(first_line(&place, &["--", "python3", "train.py"]), @"lowtide: no retry with a smaller micro-batch: both --batch-size (train.py, line 3) and --micro-batch-size (train.py, line 4) may be meant: say it with --batch N --retry-with '--batch-size={micro} --accum={accum}' or --retry-with '--micro-batch-size={micro} --accum={accum}'");
    let changed = "p.add_argument('--batch-size', type=int, default=8)\np.add_argument('--accum', type=int, default=1)\n\
                   a = p.parse_args()\na.batch_size = 4\n";
    let place = Place::with("train.py", &parser(changed));
    assert_snapshot!(first_line(&place, &["--", "python3", "train.py"]), @"lowtide: no retry with a smaller micro-batch: train.py, line 6: batch_size is changed by the script: `a.batch_size = 4`: say it with --batch N --retry-with '--batch-size={micro} --accum={accum}'");
}

/// A loop on plain PyTorch, with what it would need of PyTorch made up.
const LOOP: &str = r#"
import argparse
p = argparse.ArgumentParser()
p.add_argument("--batch-size", type=int, default=32)
args = p.parse_args()
class Any:
    def __getattr__(self, name): return lambda *words, **named: Any()
model, criterion, optimizer = Any(), Any(), Any()
train_loader = [(1, 2)]
for epoch in range(2):
    for x, y in train_loader:
        optimizer.zero_grad()
        loss = criterion.of(model.forward(x), y)
        if args.batch_size > 8: raise MemoryError
        loss.backward()
        optimizer.step()
print("trained with", args.batch_size)
"#;

#[test]
fn a_script_that_does_not_accumulate_is_not_retried_and_told_how_it_would() {
    let place = Place::with("train.py", LOOP);
    let ran = place.run(&["--", "python3", "train.py"]);
    assert_eq!(ran.code, Some(3), "{}", ran.stderr);
    assert_eq!(place.story("runs/train-1")["restarts"], 0);
    let (_, hint) = ran.stderr.split_once("hint: ").unwrap();
    assert_snapshot!(hint, @r"
    accumulate gradients over 4 micro-batches of 8, which is the same training with 32 samples for each step: --batch-size=8, and this in the place of lines 11 to 16 of train.py:
    lowtide:         import itertools
    lowtide:         accumulation_steps = 4
    lowtide:         micro_batches = iter(train_loader)
    lowtide:         for group in iter(lambda: list(itertools.islice(micro_batches, accumulation_steps)), []):
    lowtide:             optimizer.zero_grad()
    lowtide:             samples = sum(len(x) for x, y in group)
    lowtide:             for x, y in group:
    lowtide:                 loss = criterion.of(model.forward(x), y)
    lowtide:                 if args.batch_size > 8: raise MemoryError
    lowtide:                 (loss * len(x) / samples).backward()
    lowtide:             optimizer.step()
    lowtide: where the batch may get smaller (inference, evaluation): lowtide run --shrink-batch -- ...
    ");
    assert_snapshot!(ran.stderr.lines().next().unwrap(), @"lowtide: no retry with a smaller micro-batch: train.py has --batch-size=32, and nothing that accumulates gradients, so that a smaller batch would be another training; --shrink-batch allows it");
}

#[test]
fn a_batch_may_shrink_where_that_is_said() {
    let place = Place::with("train.py", LOOP);
    let ran = place.run(&["--shrink-batch", "--", "python3", "train.py", "--batch-size", "24"]);
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(0), "trained with 6\n"), "{}", ran.stderr);
    let first = ran.stderr.lines().next().unwrap();
    assert_eq!(first, "lowtide: batch 24 (--batch-size), 4 retries down to 1 (--shrink-batch)");
    let story = place.story("runs/train-1");
    assert!(story["effective_batch"].is_null() && !ran.stderr.contains("throughout"), "{}", ran.stderr);
    // In words of the user's own too.
    let retry = ["--shrink-batch", "--retry-with", "--batch-size={micro}", "--batch", "16"];
    let ran = place.run(&[&retry[..], &["--", "python3", "train.py", "--batch-size=16"]].concat());
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(0), "trained with 8\n"), "{}", ran.stderr);
}

#[test]
fn a_command_without_dashes_is_pointed_to() {
    let place = Place::with("train.py", "print('never')\n");
    let ran = place.run(&["-q", "python3", "train.py", "--bs", "3"]);
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(2), ""));
    assert_snapshot!(ran.stderr, @r"
    error: the command to run stands after `--`
    hint: lowtide run -q -- python3 train.py --bs 3
    ");
}

#[test]
fn an_evaluation_that_runs_out_is_told_its_own_flag() {
    let options = "p.add_argument('--batch-size', type=int, default=2)\np.add_argument('--accum', type=int, default=1)\n\
        p.add_argument('--eval-batch-size', type=int, default=64)\n";
    let evaluates = r#"
import sys
sys.exit("""Traceback (most recent call last):
  File "train.py", line 31, in evaluate
    scores = model(batch)
torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 6.14 GiB. GPU 0 has a total capacity of 11.69 GiB of which 2.68 \
GiB is free. Including non-PyTorch memory, this process has 9.01 GiB memory in use. Of the allocated memory 8.56 GiB is allocated \
by PyTorch, and 224.90 MiB is reserved by PyTorch but unallocated.""")
"#;
    let place = Place::with("train.py", &format!("{}{evaluates}", parser(options)));
    let ran = place.run(&["--", "python3", "train.py"]);
    let words =
        "it was evaluating, which has a batch of its own (--eval-batch-size): a smaller one changes no training";
    assert!(ran.stderr.contains(words), "{}", ran.stderr);
    let second =
        "start 2 begins at step 0 with micro-batch x accumulation 2 x 1: python3 train.py --eval-batch-size=32\n";
    assert!(ran.stderr.contains(second), "{}", ran.stderr);
    // Where the smaller one fits, the training is the same to the end.
    let fits = evaluates.replace("sys.exit(", "if a.eval_batch_size > 16: sys.exit(");
    let place = Place::with("train.py", &format!("{}{fits}", parser(options)));
    let ran = place.run(&["--", "python3", "train.py", "--eval-batch-size", "64"]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert!(ran.stderr.contains("2 x 1: python3 train.py --eval-batch-size 16\n"), "{}", ran.stderr);
    assert!(ran.stderr.contains("start with `--eval-batch-size 16` next time"), "{}", ran.stderr);
    // In a step of training nothing is said of it.
    let place =
        Place::with("train.py", &format!("{}{}", parser(options), evaluates.replace("in evaluate", "in train_step")));
    let ran = place.run(&["--", "python3", "train.py"]);
    assert!(!ran.stderr.contains("it was evaluating"), "{}", ran.stderr);
}
