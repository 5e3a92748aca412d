//! Commands that cannot be run, and words that cannot be understood.

use insta::assert_snapshot;

use crate::kit::Place;

#[test]
fn a_command_that_is_not_there_or_cannot_be_run() {
    let place = Place::with("plain", "no program\n");
    let ran = place.run(&["-q", "--", "no-such-command"]);
    assert_eq!(ran.code, Some(127));
    assert_snapshot!(ran.err, @r"
    error: no-such-command: no such command
    hint: the command stands after `--`, as it would be typed without lowtide
    ");
    let ran = place.run(&["-q", "--", "./plain"]);
    assert_eq!(ran.code, Some(126));
    assert_snapshot!(ran.err, @r"
    error: ./plain cannot be run: Permission denied (os error 13)
    hint: `chmod +x` it, or name the program that runs it: `-- python3 train.py`
    ");
    assert!(!place.path("runs/plain-1").exists());
}

#[test]
fn words_that_make_no_sense() {
    let place = Place::new();
    let told = |words: &[&str]| {
        let ran = place.run(words);
        assert_eq!((ran.code, ran.out.as_str()), (Some(2), ""), "{}", ran.err);
        ran.err
    };
    assert_snapshot!(told(&["--rung", "--bs={micro}", "--", "true"]), @r"
    error: template `--bs={micro}`: {accum} is missing, without which the effective batch would change
    hint: for example: --rung '--batch_size={micro} --gradient_accumulation_steps={accum}'
    ");
    assert_snapshot!(told(&["--rung", "--bs={micro} --a={accum}", "--", "true"]), @r"
    error: the batch of this command is not known: --bs is not set
    hint: say it with --batch N, and --accum M where gradients are accumulated
    ");
    assert!(!place.path("runs").exists());
}

#[test]
fn what_would_be_done() {
    let place = Place::with("train.py", "batch_size = 12\ngradient_accumulation_steps = 5 * 8\n# configurator.py\n");
    let ran = place.run(&["--dry-run", "--", "torchrun", "--nproc_per_node=8", "train.py"]);
    assert_eq!((ran.code, ran.err.as_str()), (Some(0), ""));
    assert_snapshot!(ran.out, @r"
    micro-batch x accumulation 12 x 40 (nanogpt), in a group of 8, 3 lower rungs down to 1 x 480
    with PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True
      torchrun --nproc_per_node=8 train.py   # 12 x 40
      torchrun --nproc_per_node=8 train.py --batch_size=6 --gradient_accumulation_steps=80   # 6 x 80
      torchrun --nproc_per_node=8 train.py --batch_size=3 --gradient_accumulation_steps=160   # 3 x 160
      torchrun --nproc_per_node=8 train.py --batch_size=1 --gradient_accumulation_steps=480   # 1 x 480
    at most 8 restarts; logs in runs/train-N/
    ");
    assert!(!place.path("runs").exists());
}
