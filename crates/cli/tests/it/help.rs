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
    Trains neural networks inside a memory line

    Usage: lowtide <COMMAND>

    Commands:
      train     Train a model inside a memory line
      eval      Evaluate a checkpoint of a run by itself
      data      Look into data files: a file's tensors, or the samples of a folder and what a run would
                read of them
      generate  Write made-up training data of any size
      pack      Pack data files into shards, which are read faster and under any memory line
      watch     Watch runs in a browser: memory against the line, every out-of-memory error and its
                answer, the loss
      top       Watch a run in the terminal: memory against the line, what the guard did, the loss
      report    Write a run down as one HTML file that opens from disk, and its chart as SVG or PNG
      explain   Say from a log why memory ran out, which tensor it was, and what to change
      run       Run any training command; when memory runs out, start it again with a smaller
                micro-batch
      doctor    Say what this machine has for training, what looks wrong, and how to mend it
      help      Explain lowtide, or one of its commands

    Options:
      -h, --help     Print help (see more with '--help')
      -V, --version  Print version
    ");
}

#[test]
fn help() {
    assert_snapshot!(stdout(&["--help"]), @r#"
    Trains neural networks inside a memory line.

    For runs that died with "CUDA out of memory": draw a line, and the run stays under it. When memory
    runs out the same batch is run again in smaller pieces, the effective batch stays, and nothing is
    lost.

    Usage: lowtide <COMMAND>

    Commands:
      train     Train a model inside a memory line
      eval      Evaluate a checkpoint of a run by itself
      data      Look into data files: a file's tensors, or the samples of a folder and what a run would
                read of them
      generate  Write made-up training data of any size
      pack      Pack data files into shards, which are read faster and under any memory line
      watch     Watch runs in a browser: memory against the line, every out-of-memory error and its
                answer, the loss
      top       Watch a run in the terminal: memory against the line, what the guard did, the loss
      report    Write a run down as one HTML file that opens from disk, and its chart as SVG or PNG
      explain   Say from a log why memory ran out, which tensor it was, and what to change
      run       Run any training command; when memory runs out, start it again with a smaller
                micro-batch
      doctor    Say what this machine has for training, what looks wrong, and how to mend it
      help      Explain lowtide, or one of its commands

    Options:
      -h, --help
              Print help (see a summary with '-h')

      -V, --version
              Print version
    "#);
    assert_eq!(stdout(&["help"]), stdout(&["--help"]));
}

#[test]
fn help_on_training() {
    assert_snapshot!(stdout(&["train", "--help"]), @r"
    Train a model inside a memory line.

    Reads a configuration, trains to its end and writes everything about the run into a folder. When
    memory runs out the same batch is run again in smaller pieces: no sample is lost and the effective
    batch stays as configured.

    Usage: lowtide train [OPTIONS] [CONFIG]

    Arguments:
      [CONFIG]
              The configuration, a YAML file, or the name of a workload (deblur, gpt, qca, scoring) for
              its own small one. May be left out with --resume: the run's own is used

    Options:
          --set <KEY=VALUE>
              Set one configuration key, such as train.steps=50. May be given several times

          --line <SIZE>
              The memory line of the device: a size (3.5GiB), a percentage of the device (90%), or none.

              On a GPU it is what the driver sees, everything included; on the CPU it is the memory of
              tensors.

          --host-line <SIZE>
              The memory line of the host: bounds the resident memory of the process. A size, a
              percentage, or none

          --out <DIR>
              The run folder itself. Default: a new folder under runs/ named after the configuration

              [alias: --output-dir]

          --resume
              Go on from the newest checkpoint of the run in --out (or of the newest run of this
              configuration)

          --schedule-from <DIR>
              Compute each step as another run did: the same micro-batches, loss chunks, recompute level
              and precision.

              The two then end with the same weights, bit for bit, on the same device and with as many
              threads. When memory runs out, the schedule is left where cleaning is not enough.

          --inject-oom <step=N,phase=PHASE>
              Let memory run out on purpose, such as step=3,phase=backward. May be given several times.

              Phases are forward, backward, optimizer, eval, save and load; the first one at or after
              that step fails. times=N fails N tries in a row, alloc=N fails the N-th allocation of the
              phase (on a GPU always the first).

          --epochs <N>
              Passes over the training data (train.epochs)

          --batch-size <N>
              Samples in a step (train.batch)

          --watch[=<PORT>]
              Show the run in a browser while it goes, at this port or the first free one from 7823 on

          --device <DEVICE>
              Where to compute: auto, cpu, cuda or cuda:N. auto takes the first GPU, or the CPU where
              there is none

              [default: auto]

          --deterministic
              Fixed orders of adding, so that two runs on one machine give the same bits. May be slower
              on a GPU

          --json
              Print what happens as lines of JSON on standard output, and nothing else there

      -h, --help
              Print help (see a summary with '-h')

    Options of the workload scoring:
          --preprocessed-dir <DIR>
              A folder of batch files or of shards, read as they are needed (data.folder)

          --data-pattern <PATTERN>
              Files by a pattern, such as 'traces/*.pkl*', all read at the start (data.pattern,
              data.load=whole)

          --scores-file <FILE>
              A table (CSV) with the score of each id (data.scores)

          --max-cache-batches <N>
              Batch files or shards that are kept in memory (data.cache_batches). Default: what the host
              line allows

          --run-lstm
              Train the LSTM over the sequence alone (model.run)

          --no-run-lstm
              Leave it out

          --run-gnn-det
              Train the LSTM with a graph network

          --no-run-gnn-det
              Leave it out

          --run-gvae
              Train the LSTM with a variational graph encoder

          --no-run-gvae
              Leave it out

    Examples:
      lowtide train configs/gpt-tiny.yaml                     train the small example
      lowtide train configs/gpt-tiny.yaml --line 64MiB        ... inside 64 MiB of tensor memory
      lowtide train configs/gpt-tiny.yaml --set train.steps=50 --out runs/short
      lowtide train --resume --out runs/short                 go on where it stopped
      lowtide train scoring --preprocessed-dir batches --host-line 2GiB --epochs 20
                                                              three models on files larger than memory

    Signals:
      SIGINT (Ctrl-C), SIGTERM   finish the step, save and end; a second one ends at once
      SIGUSR1                    save and go on

    Exit codes:
      0    finished
      1    anything not named here
      2    bad input or a full disk; nothing is left half-written
      3    nothing fits under the line; the state is saved
      130  interrupted; the state is saved
    ");
    assert_eq!(stdout(&["help", "train"]), stdout(&["train", "--help"]));
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
    hint: `make build` builds both programs side by side
    ");
}

#[test]
fn help_on_generating() {
    assert_snapshot!(stdout(&["generate", "--help"]), @r"
    Write made-up training data of any size.

    The samples are those that the workload makes up for itself, as files like those that people have.

    Usage: lowtide generate <COMMAND>

    Commands:
      scoring  Write made-up traces with a sequence, a graph and a score
      deblur   Write made-up films: folders of PNG frames, as `data.source: frames` reads them

    Options:
      -h, --help
              Print help (see a summary with '-h')
    ");
    assert_snapshot!(stdout(&["generate", "scoring", "--help"]), @r"
    Write made-up traces with a sequence, a graph and a score.

    The score of a sample depends on its sequence and on its graph, so that a model that sees both does
    better. Files are written whole or not at all; the same command, run again, goes on where it
    stopped.

    Usage: lowtide generate scoring [OPTIONS] --out <DIR>

    Options:
          --out <DIR>
              The folder: a new one, an empty one, or one that the same command began

          --size <SIZE>
              How large the files are together, at least (500MB, 8GiB). Before compression

          --samples <N>
              How many samples there are

          --per-file <N>
              How many samples a file has. Default: 64, and 1 for pickles. The files under way are held
              in memory

          --file-size <SIZE>
              How large a file is, at least, instead of --per-file

          --seed <N>
              The seed of all random numbers. A run with the same `seed` makes up the same samples for
              itself

              [default: 1]

          --steps <MIN..MAX>
              How many steps the sequences have, from the fewest to the most. A step takes 96 bytes

              [default: 8..48]

          --format <FORMAT>
              What the files are: batches of torch.save, or pickles (one sample in each, or a list) with
              a scores.csv beside them

              [default: pt]
              [possible values: pt, pkl, pkl.gz]

          --json
              Print what was written as a line of JSON on standard output, and nothing else there

      -h, --help
              Print help (see a summary with '-h')

    Examples:
      lowtide generate scoring --out data/traces --size 500MB
      lowtide generate scoring --out data/traces --samples 2000 --per-file 100
      lowtide generate scoring --out data/long --size 8GB --steps 50000..100000 --per-file 4
      lowtide generate scoring --out data/raw --samples 500 --format pkl.gz

    Exit codes:
      0    finished
      2    bad input or a full disk; the files that are there are whole
      130  interrupted; the files that are there are whole
    ");
    assert_snapshot!(stdout(&["generate", "deblur", "--help"]), @r"
    Write made-up films: folders of PNG frames, as `data.source: frames` reads them

    Usage: lowtide generate deblur [OPTIONS] --out <DIR>

    Options:
          --out <DIR>         The folder: a new one or an empty one
          --scenes <N>        How many scenes there are; the last one is evaluated on, where nothing
                              else is said [default: 4]
          --frames <N>        How many frames a scene has [default: 96]
          --frame-size <WxH>  Columns and rows of a frame [default: 640x360]
          --layout <LAYOUT>   What a scene holds: sharp frames, one for every moment, of which blur is
                              made; or pairs of a blurred and a sharp one [default: sharp] [possible
                              values: sharp, pairs]
          --moments <N>       How many moments an exposure has [default: 16]
          --speed <PIXELS>    How many pixels something moves in an exposure, at most [default: 12]
          --seed <N>          The seed of all random numbers [default: 1]
          --json              Print what was written as a line of JSON on standard output, and nothing
                              else there
      -h, --help              Print help

    Examples:
      lowtide generate deblur --out data/films --scenes 8 --frames 96 --frame-size 1280x720
      lowtide generate deblur --out data/pairs --layout pairs --frames 24
      lowtide train deblur --set data.source=frames --set data.folder=data/films
    ");
    assert_eq!(stdout(&["help", "generate"]), stdout(&["generate", "--help"]));
}

#[test]
fn help_on_running() {
    assert_snapshot!(stdout(&["run", "--help"]), @r"
    Run any training command; when memory runs out, start it again with a smaller micro-batch.

    The command runs as if lowtide were not there: output, keys, signals and exit code pass through, and
    the output is kept in runs/NAME-N/. If the command ends because memory ran out, lowtide says why and
    starts it again one rung lower: half the micro-batch, twice the gradient accumulation, so that every
    step still sees the same samples. Any other failure ends it, with the command's own exit code. No
    process of the command is left behind, unless lowtide itself is killed by SIGKILL: then the command
    ends when it next writes something.

    How a rung is put on the command line is known for nanoGPT, Hugging Face's Trainer and Lightning,
    also under torchrun; for other scripts say it with --rung.

    Usage: lowtide run [OPTIONS] -- <COMMAND>...

    Arguments:
      <COMMAND>...
              The command, after `--`, as it would be typed without lowtide

    Options:
          --rung <TEMPLATE>
              What a rung changes on the command line: {micro} is the micro-batch, {accum} gradient
              accumulation. A flag that is there gets the new value, another one is added at the end

          --rung-env <TEMPLATE>
              What a rung changes in the environment, as NAME={micro}

          --config <FILE>
              A configuration file on the command line (.py, .yaml, .json) that a rung changes, in a
              copy

          --rung-config <TEMPLATE>
              What a rung changes in that file: KEY={micro}, with dots in the path of a nested key

          --preset <NAME>
              The trainer whose flags a rung changes [default: found in the command line]

              [possible values: nanogpt, hf, lightning]

          --batch <N>
              The micro-batch that the command has, where it is not on the command line

          --accum <N>
              The gradient accumulation that the command has, where it is not on the command line
              [default: 1]

          --resume-with <TEMPLATE>
              What a restart adds to the command line to go on from the newest checkpoint, which is
              {checkpoint}

          --checkpoint-glob <PATTERN>
              Where checkpoints are. Only those written since the first start are taken

          --max-restarts <N>
              How often the command is started again at most

              [default: 8]

          --grace <TIME>
              How long the command may take to end after SIGTERM or a second Ctrl-C before it is killed:
              10s, 2m, 500ms

              [default: 10s]

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
      lowtide run -- torchrun --nproc_per_node=4 train.py          the whole group is started again
      lowtide run -- python run_clm.py --per_device_train_batch_size 16 ...
      lowtide run --rung '--bs={micro} --accum={accum}' -- python mine.py --bs 32
      lowtide run --rung-env 'BATCH={micro} ACCUM={accum}' --batch 32 -- ./train.sh
      lowtide run --config my.yaml --rung-config 'train.batch={micro} train.accum={accum}' -- python
      mine.py my.yaml
      lowtide run --resume-with '--init_from=resume' --checkpoint-glob 'out/ckpt.pt' -- python train.py
      lowtide run --dry-run -- python train.py                     what would be done

    Exit codes:
      3    memory ran out, and no rung helped (or none is known)
      126  the command cannot be run
      127  the command is not there
      2    bad input to lowtide itself
      any other is the command's own; 128 + N where signal N ended it
    ");
    assert_eq!(stdout(&["help", "run"]), stdout(&["run", "--help"]));
}

#[test]
fn help_on_the_doctor() {
    assert_snapshot!(stdout(&["doctor", "--help"]), @r"
    Say what this machine has for training, what looks wrong, and how to mend it.

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
      1    something does; each has its mend
      2    bad input to lowtide itself
    ");
    assert_eq!(stdout(&["help", "doctor"]), stdout(&["doctor", "--help"]));
}
