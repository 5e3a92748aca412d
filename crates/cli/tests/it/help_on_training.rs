//! What `lowtide` says about training and made-up data, without its engine.

use std::process::Command;

use insta::assert_snapshot;
use lowtide_testkit::Printout;

use crate::kit::sandbox;

fn says(words: &str) -> String {
    sandbox().says(words).lines().map(|line| format!("{}\n", line.trim_end())).collect()
}

#[test]
fn help_on_training() {
    assert_snapshot!(says("train --help"), @r"
    Train a model inside a memory limit.

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
              Set one configuration key, such as train.steps=50 or eval.batches=20. May be given several
              times

          --limit <SIZE>
              The memory limit of the device: a size (3.5GiB), a percentage of the device (90%), or none
              (memory.limit).

              On a GPU it is what the driver sees, everything included; on the CPU it is the memory of
              tensors.

          --host-limit <SIZE>
              The memory limit of the host: bounds the resident memory of the process. A size, a
              percentage, or none (memory.host_limit)

          --out <DIR>
              The run folder itself. Default: a new folder under runs/ named after the configuration

              [alias: --output-dir]

          --resume
              Resume from the newest checkpoint (or --checkpoint) of the run in --out (or of the newest
              run of this configuration)

          --checkpoint <WHICH>
              With --resume: the checkpoint to resume from: newest, best, or the number of a step.

              Steps after it are made again. Newer checkpoints stay under another name (STEP.aside).

          --schedule-from <DIR>
              Compute each step as another run did: the same micro-batches, loss chunks, recompute level
              and precision.

              The two then end with the same weights, bit for bit, on the same device and with as many
              threads. When memory runs out, the schedule is left where cleaning is not enough.

          --inject-oom <step=N,phase=PHASE>
              Let memory run out on purpose, such as step=3,phase=backward. May be given several times.

              Phases are forward, backward, optimizer, eval, save and load; the first one at or after
              that step fails. times=N fails N tries in a row, alloc=N fails the N-th allocation of the
              phase (on a GPU always the first), rank=N fails on that rank alone.

          --record-memory <FILE>
              Write every request of the run's allocator to this file, to be replayed; of several ranks
              those of the first.

              For a few steps: it takes memory for each allocation, which the limit does not count.

          --profile <STEPS>
              Say where the time of so many steps went, and write them as a trace (trace.json in the
              folder of the run).

              The first three steps are left out. Steps that are looked at take longer.

          --epochs <N>
              Passes over the training data (train.epochs)

          --batch-size <N>
              Samples in a step (train.batch)

          --watch[=<PORT>]
              Show the run in a browser while it goes, at this port or the first free one from 7823 on

          --ranks <N>
              Train on so many processes of this machine, each on its part of every step (torchrun and
              srun start them on several)

          --device <DEVICE>
              Where to compute: auto, cpu, cuda or cuda:N. auto takes the first GPU, or the CPU where
              there is none.

              Default: auto; a resumed run stays where it was started.

          --deterministic[=<true|false>]
              Fix what decides the bits: orders of adding, instruction sets (AVX2) and threads (1, or
              --threads).

              Runs then end with the same weights, bit for bit, whatever processors they may use.
              Slower, on a GPU too. A resumed run stays as it was started; --deterministic=false ends
              that.

          --threads <N>
              Threads that share an operation on the CPU. Default: as many as there are processors for
              this process

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
              Batch files or shards that are kept in memory (data.cache_batches). Default: what the
              memory limit of the host allows

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
      lowtide train configs/gpt-tiny.yaml --limit 64MiB       ... inside 64 MiB of tensor memory
      lowtide train configs/gpt-tiny.yaml --set train.steps=50 --out runs/short
      lowtide train --resume --out runs/short                 resume where it stopped
      lowtide train scoring --preprocessed-dir batches --host-limit 2GiB --epochs 20
                                                              three models on files larger than memory
      lowtide train configs/gpt-tiny.yaml --ranks 2           two processes, half of each step on each
      torchrun --nproc-per-node=8 --no-python lowtide train configs/gpt-tiny.yaml --out runs/eight

    Signals:
      SIGINT (Ctrl-C), SIGTERM   finish the step, save and end; a second one ends at once
      SIGHUP                     finish the step, save and end; ignored under nohup
      SIGUSR1                    finish the step, save and go on (Slurm: --signal=USR1@60)

    Exit codes:
      0    finished
      1    anything not named here
      2    bad input, a full disk or a file size limit; nothing is left half-written
      3    nothing fits under the memory limit; the state is saved
      130  interrupted; the state is saved
    ");
    assert_eq!(says("help train"), says("train --help"));
}

#[test]
fn help_on_generating() {
    assert_snapshot!(says("generate --help"), @r"
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
    assert_snapshot!(says("generate scoring --help"), @r"
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
    assert_snapshot!(says("generate deblur --help"), @r"
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
    assert_eq!(says("help generate"), says("generate --help"));
}

/// What is said without an engine, so by the front.
#[track_caller]
fn refusal(words: &str) -> String {
    let place = sandbox();
    place.write("tiny.yaml", "workload: gpt\ntrain:\n  steps: 4\n");
    let before = place.names("");
    let output = place.command(words).env("LOWTIDE_ENGINE", "/nowhere/engine").output().unwrap();
    assert_eq!(place.names(""), before, "something was written");
    Printout::of(output).refusal()
}

#[test]
fn mistakes_are_told_without_an_engine() {
    for (words, expect) in [
        ("train", "the following required arguments were not provided:"),
        ("train tiny.yaml --stepz 3", "unexpected argument '--stepz' found"),
        ("train tiny.yaml --limit many", "`many` is not a memory limit"),
        ("train tiny.yaml --device gpu", "`gpu` is not a device"),
        ("train tiny.yaml --watch=none", "this is no port: write --watch=8000"),
        ("train tiny.yaml --inject-oom step=3", "phase is missing"),
        ("train tiny.yaml --checkpoint best", "--resume"),
        ("train tiny.yaml --set train.steps", "there is no `=` and no value"),
        ("train --resume --set train.steps", "there is no `=` and no value"),
        ("train tiny.yaml --set train.stepz=3", "hint: did you mean `train.steps`?"),
        ("train tiny.yaml --epochs 0", "train.epochs"),
        ("train tiny.yaml --watch --set train.steps=many", "train.steps"),
        ("eval", "the following required arguments were not provided:"),
        ("eval runs/a --checkpoint last", "expected newest, best or the number of a step"),
        ("eval runs/a --set eval.batches", "there is no `=` and no value"),
        ("generate scoring", "--out <DIR>"),
        ("generate films", "unrecognized subcommand 'films'"),
    ] {
        let said = refusal(words);
        assert!(said.contains(expect), "{words}: {said}");
        assert!(!said.contains("engine is not there"), "{words}: {said}");
    }
}

#[test]
fn a_configuration_that_is_a_pipe_is_left_to_the_engine() {
    let place = sandbox();
    place.write("engine", "#!/bin/sh\ncat \"$2\"\n");
    let script =
        format!("chmod +x engine; LOWTIDE_ENGINE=$PWD/engine {} train <(echo seed: 3)", env!("CARGO_BIN_EXE_lowtide"));
    let output = Command::new("bash").args(["-c", &script]).current_dir(place.folder()).output().unwrap();
    assert_eq!(String::from_utf8(output.stdout).unwrap(), "seed: 3\n");
}

#[test]
fn the_engine_gets_the_words_as_they_were_typed_without_the_page() {
    let place = sandbox();
    place.write("engine", "#!/bin/sh\nprintf '%s\\n' \"$@\"\n");
    let words = "--set a.b=1 --json --watch=0 -- --watch";
    let script = format!("chmod +x engine; LOWTIDE_ENGINE=$PWD/engine {} train {words}", env!("CARGO_BIN_EXE_lowtide"));
    let output = Command::new("sh").args(["-c", &script]).current_dir(place.folder()).output().unwrap();
    let printed = String::from_utf8(output.stdout).unwrap();
    assert_eq!(printed.split_whitespace().collect::<Vec<_>>(), ["train", "--set", "a.b=1", "--json", "--", "--watch"]);
}
