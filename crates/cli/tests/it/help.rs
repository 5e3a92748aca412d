//! What `lowtide` says about itself.

use std::process::{Command, Output};

use insta::assert_snapshot;

fn lowtide(words: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_lowtide")).args(words).env_remove("COLUMNS").output().unwrap()
}

fn stdout(words: &[&str]) -> String {
    let output = lowtide(words);
    assert_eq!(output.status.code(), Some(0));
    assert!(output.stderr.is_empty());
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().map(|line| format!("{}\n", line.trim_end())).collect()
}

#[test]
fn without_arguments_it_shows_its_commands() {
    let output = lowtide(&[]);
    assert_eq!(output.status.code(), Some(2));
    assert!(output.stdout.is_empty());
    assert_snapshot!(String::from_utf8(output.stderr).unwrap(), @r"
    Explains out-of-memory errors, keeps training alive through them, and trains inside a memory limit

    Usage: lowtide <COMMAND>

    Commands:
      explain      Say from a log why memory ran out, which tensor it was, and what to change
      run          Run any training command; when memory runs out, start it again with a smaller
                   micro-batch
      replay       Replay a memory snapshot of PyTorch: where memory went, and what other allocator
                   settings would have held
      doctor       Say what this machine has for training, what looks wrong, and how to fix it
      watch        Watch runs in a browser: memory against its limit, every out-of-memory error and its
                   answer, the loss
      top          Watch a run in the terminal: memory against its limit, retries, the loss
      report       Write a run down as one HTML file that opens from disk, and its chart as SVG or PNG
      train        Train a model inside a memory limit
      eval         Evaluate a checkpoint of a run by itself
      data         Look into data files: a file's tensors, or the samples of a folder and what a run
                   would read of them
      generate     Write made-up training data of any size
      pack         Pack data files into shards, which are read faster and under any memory limit
      completions  Print what a shell needs to complete commands, options and files after `lowtide`
      help         Print this message or the help of the given subcommand(s)

    Options:
      -h, --help     Print help (see more with '--help')
      -V, --version  Print version
    ");
}

#[test]
fn help() {
    assert_snapshot!(stdout(&["--help"]), @r#"
    Explains out-of-memory errors, keeps training alive through them, and trains inside a memory limit.

    A run died with "CUDA out of memory"? `lowtide explain train.log` says why and what to change, and
    `lowtide run -- python train.py` restarts it with a smaller micro-batch whenever it happens again.
    `lowtide train` is for models of Lowtide's own.

    Usage: lowtide <COMMAND>

    Commands:
      explain      Say from a log why memory ran out, which tensor it was, and what to change
      run          Run any training command; when memory runs out, start it again with a smaller
                   micro-batch
      replay       Replay a memory snapshot of PyTorch: where memory went, and what other allocator
                   settings would have held
      doctor       Say what this machine has for training, what looks wrong, and how to fix it
      watch        Watch runs in a browser: memory against its limit, every out-of-memory error and its
                   answer, the loss
      top          Watch a run in the terminal: memory against its limit, retries, the loss
      report       Write a run down as one HTML file that opens from disk, and its chart as SVG or PNG
      train        Train a model inside a memory limit
      eval         Evaluate a checkpoint of a run by itself
      data         Look into data files: a file's tensors, or the samples of a folder and what a run
                   would read of them
      generate     Write made-up training data of any size
      pack         Pack data files into shards, which are read faster and under any memory limit
      completions  Print what a shell needs to complete commands, options and files after `lowtide`
      help         Print this message or the help of the given subcommand(s)

    Options:
      -h, --help
              Print help (see a summary with '-h')

      -V, --version
              Print version
    "#);
    assert_eq!(stdout(&["help"]), stdout(&["--help"]));
}

#[test]
fn version() {
    assert_eq!(stdout(&["--version"]), concat!("lowtide ", env!("CARGO_PKG_VERSION"), "\n"));
}

#[test]
fn a_misspelt_command() {
    let output = lowtide(&["trian"]);
    assert_eq!(output.status.code(), Some(2));
    assert_snapshot!(String::from_utf8(output.stderr).unwrap(), @r"
    error: unrecognized subcommand 'trian'

      tip: a similar subcommand exists: 'train'

    Usage: lowtide <COMMAND>

    For more information, try '--help'.
    ");
}

#[test]
fn an_engine_that_is_not_there() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lowtide"));
    let output = command.args(["train", "a.yaml"]).env("LOWTIDE_ENGINE", "/nowhere/engine").output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert_snapshot!(String::from_utf8(output.stderr).unwrap(), @r"
    error: the engine is not there: /nowhere/engine
    hint: LOWTIDE_ENGINE names it; without that variable the one beside lowtide is taken
    ");

    // One that stands alone has none beside it.
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let alone = folder.path().join("lowtide");
    std::fs::hard_link(env!("CARGO_BIN_EXE_lowtide"), &alone).unwrap();
    let output = Command::new(&alone).args(["train", "a.yaml"]).env_remove("LOWTIDE_ENGINE").output().unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    let folder = folder.path().canonicalize().unwrap();
    assert_snapshot!(text.replace(&folder.display().to_string(), "FOLDER"), @r"
    error: the engine is not there: FOLDER/lowtide-engine
    hint: train and eval need it: `make build` in lowtide's sources builds it and fetches LibTorch, and LOWTIDE_ENGINE names one elsewhere; all other commands work without
    ");
}

#[test]
fn help_on_running() {
    assert_snapshot!(stdout(&["run", "--help"]), @r"
    Run any training command; when memory runs out, start it again with a smaller micro-batch.

    The command runs as if lowtide were not there: output, keys, signals and exit code pass through, and
    the output is kept in runs/NAME-N/. If the command ends because memory ran out, lowtide says why and
    starts it again with half the micro-batch and twice the gradient accumulation, so that every step
    still sees as many samples. Any other failure ends it, with the command's own exit code. No process
    of the command is left behind, unless lowtide itself is killed by SIGKILL: then the command ends
    when it next writes something.

    To go on later, after Ctrl-C or a reboot, run it again with the script's own flag to resume.

    Where the batch is set is known for nanoGPT, Hugging Face's Trainer and Lightning, and found in
    other scripts: flags that the script declares (--batch-size, --grad-accum, ...), arguments of calls
    and constants in its source, which a retry changes in a copy. For all else say it with --retry-with.

    Usage: lowtide run [OPTIONS] -- <COMMAND>...

    Arguments:
      <COMMAND>...
              The command, after `--`, as it would be typed without lowtide

    Options:
          --retry-with <TEMPLATE>
              What a retry changes on the command line: {micro} is the micro-batch, {accum} gradient
              accumulation. A flag that is there gets the new value, another one is added at the end

          --retry-env <TEMPLATE>
              What a retry changes in the environment, as NAME={micro}

          --config <FILE>
              A configuration file on the command line (.py, .yaml, .json), or the script, that a retry
              changes, in a copy

          --retry-config <TEMPLATE>
              What a retry changes in that file: KEY={micro}, with dots in the path of a nested key. In
              Python, KEY may be an argument of a call

          --shrink-batch
              The batch may get smaller without more gradient accumulation: for inference, evaluation,
              or where another effective batch does no harm. Without it, a script that does not
              accumulate gradients is not retried

          --preset <NAME>
              The trainer whose flags a retry changes [default: found in the command line]

              [possible values: nanogpt, hf, lightning]

          --batch <N>
              The micro-batch that the command has, where it is not on the command line

          --accum <N>
              The gradient accumulation that the command has, where it is not on the command line
              [default: 1]

          --resume-with <TEMPLATE>
              What a restart adds to the command line to resume from the newest checkpoint, which is
              {checkpoint} [default: as nanoGPT, Hugging Face's Trainer, accelerate's examples and
              Lightning take it, where the script shows it]

          --checkpoint-glob <PATTERN>
              Where checkpoints are. Only those written since the first start are taken

          --no-resume
              Begin every restart at step 0, also where the trainer could resume from a checkpoint of
              this run

          --forget
              Forget the micro-batch that this command got through with the last time, and start as it
              is typed

          --max-restarts <N>
              How often the command is restarted at most. With 0 it runs once, with the batch as it is
              typed

              [default: 8]

          --grace <TIME>
              How long the command may take to end after SIGTERM or a second Ctrl-C before it is killed:
              10s, 2m, 500ms [default: 10s after a second SIGTERM or Ctrl-C, and all the time it wants
              after the first]

          --no-copies
              Copy no checkpoints that a start may write over. Without it they are copied to
              runs/NAME-N/before-start-K/ first

          --watch-memory[=<WHEN>]
              What every Python of the command that uses PyTorch writes into the run's folder when
              memory runs out, before it dies: what was asked for, by which lines of code, and PyTorch's
              memory snapshot. Which line made each tensor is in it in the first 10 minutes after a
              crash, or always, which makes small steps up to 15 % slower [default: after-crash, or the
              variable LOWTIDE_WATCH_MEMORY]

              Possible values:
              - always:      From the first start on
              - after-crash: In the first 10 minutes of a restart after a crash
              - off:         Never, and nothing else is written down either

          --no-watch-memory
              Put nothing into the command's Pythons that writes down how memory ran out. The same as
              --watch-memory=off

          --inside
              Put lowtide's guard into the training loop of Hugging Face's Trainer or Lightning's,
              without a change of the script: an out-of-memory error is undone inside the process, and
              the same batch runs again in smaller pieces. The command's Python needs the package (pip
              install . in a clone of lowtide); one device

          --reserve <SIZE>
              Pin this much host memory in each process of the command that uses CUDA, for PyTorch (2.8
              or newer) to fall back on when the device is full: a step that is too large is slow
              instead of out of memory. The command's Python needs the package (pip install . in a clone
              of lowtide)

          --out <DIR>
              The folder for logs and summary.json, made if need be; one that has another run's is
              refused [default: a new runs/NAME-N]

          --json <FILE>
              Write the story as JSON to this file too; with --dry-run, what would be done. `-` is
              standard output: after the command's own, or in the place of the text of --dry-run

      -q, --quiet
              Say nothing unless memory runs out

          --dry-run
              Print what would be done, and do nothing

      -h, --help
              Print help (see a summary with '-h')

    Examples:
      lowtide run -- python train.py config/train_gpt2.py          nanoGPT: batch and flags are found
      lowtide run -- torchrun --nproc_per_node=4 train.py          the whole group is restarted
      lowtide run -- python run_clm.py --per_device_train_batch_size 16 ...
      lowtide run -- python mine.py --bs 32                        its flags are found
      lowtide run --retry-with '--bs={micro} --accum={accum}' -- ./mine --bs 32
      lowtide run --retry-env 'BATCH={micro} ACCUM={accum}' --batch 32 -- ./train.sh
      lowtide run --config my.yaml --retry-config 'train.batch={micro} train.accum={accum}' -- python
      mine.py my.yaml
      lowtide run --shrink-batch -- python evaluate.py --batch-size 64
      lowtide run --resume-with '--init_from=resume' --checkpoint-glob 'out/ckpt.pt' -- python train.py
      lowtide run --inside -- python finetune.py                   Hugging Face, Lightning: no restart
      lowtide run --dry-run -- python train.py                     what would be done

    Exit codes:
      3    memory ran out, and no smaller micro-batch helped, or none could be set
      126  the command cannot be run
      127  the command is not there
      2    bad input to lowtide itself
      any other is the command's own; a signal that ended it ends lowtide too (128 + N in shells)
    ");
    assert_eq!(stdout(&["help", "run"]), stdout(&["run", "--help"]));
}

#[test]
fn help_on_the_doctor() {
    assert_snapshot!(stdout(&["doctor", "--help"]), @r"
    Say what this machine has for training, what looks wrong, and how to fix it.

    Looks at GPUs and their driver, who holds their memory, PyTorch where it is installed (without
    starting it), the allocator's environment, RAM, swap, the control group's limit, /dev/shm and the
    limit of open files. Changes nothing.

    Usage: lowtide doctor [OPTIONS]

    Options:
          --json
              Print everything as JSON

      -h, --help
              Print help (see a summary with '-h')

    Examples:
      lowtide doctor
      lowtide doctor --json         the same for a program

    Exit codes:
      0    nothing looks wrong
      1    something does; each has its fix
      2    bad input to lowtide itself
    ");
    assert_eq!(stdout(&["help", "doctor"]), stdout(&["doctor", "--help"]));
}
