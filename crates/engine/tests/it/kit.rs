//! A folder with a tiny configuration, and `lowtide` run in it.

use std::io::{BufRead, BufReader};
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use lowtide_core::{Event, Record};
use lowtide_testkit::{Printout, Sandbox};
use serde_json::Value;

/// Trains in well under a second. The learning rate is the same in each step, so that a run cut in two has the same.
pub(crate) const TINY: &str = "\
workload: gpt
model:
  n_layer: 2
  n_head: 2
  n_embd: 32
  block_size: 16
  dropout: 0.1
train:
  steps: 4
  batch: 8
optimizer:
  learning_rate: 0.002
  min_learning_rate: 0.002
  warmup_steps: 0
";

/// A folder that a person stands in.
pub(crate) struct Place(Sandbox);

impl Deref for Place {
    type Target = Sandbox;

    fn deref(&self) -> &Sandbox {
        &self.0
    }
}

impl Place {
    pub(crate) fn new() -> Place {
        let place = Place(Sandbox::new(lowtide()));
        place.write("tiny.yaml", TINY);
        place
    }

    /// `lowtide` with these words, ready to run here, on one thread.
    pub(crate) fn command(&self, words: &str) -> Command {
        let mut command = self.0.command(words);
        command.env("OMP_NUM_THREADS", "1");
        command
    }

    pub(crate) fn run(&self, words: &str) -> Printout {
        Printout::of(self.command(words).output().unwrap())
    }

    /// Trains the tiny configuration on the CPU into `out`, to a good end.
    #[track_caller]
    pub(crate) fn train(&self, out: &str, words: &str) -> Printout {
        self.ends(0, &format!("train tiny.yaml --device cpu --out {out} {words}"))
    }

    /// Goes on with the run in `out`, to a good end.
    #[track_caller]
    pub(crate) fn resume(&self, out: &str, words: &str) -> Printout {
        self.ends(0, &format!("train --resume --device cpu --out {out} {words}"))
    }

    #[track_caller]
    pub(crate) fn ends(&self, code: i32, words: &str) -> Printout {
        let ran = self.run(words);
        assert_eq!(ran.code, Some(code), "lowtide {words}\n{}", ran.stderr);
        ran
    }

    /// Starts `lowtide` with `--json` and waits for its first step.
    pub(crate) fn start(&self, words: &str) -> Running {
        let mut child = self.command(words).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap());
        let mut running = Running { child, lines };
        running.wait_for(|event| matches!(event, Event::StepDone { .. }));
        running
    }

    pub(crate) fn summary(&self, out: &str) -> Value {
        self.json(&format!("{out}/summary.json"))
    }

    pub(crate) fn hash(&self, out: &str) -> String {
        self.summary(out)["weights_sha256"].as_str().unwrap().to_owned()
    }

    pub(crate) fn events(&self, out: &str) -> Vec<Event> {
        let text = self.text(&format!("{out}/events.jsonl"));
        text.lines().map(|line| serde_json::from_str::<Record>(line).unwrap().event).collect()
    }
}

/// A run under way.
pub(crate) struct Running {
    pub(crate) child: Child,
    lines: BufReader<std::process::ChildStdout>,
}

impl Running {
    /// Reads events until one is as wanted.
    pub(crate) fn wait_for(&mut self, wanted: impl Fn(&Event) -> bool) -> Event {
        loop {
            let mut line = String::new();
            assert!(self.lines.read_line(&mut line).unwrap() > 0, "the run ended before");
            // The summary of a run is no event.
            let Ok(record) = serde_json::from_str::<Record>(&line) else { continue };
            if wanted(&record.event) {
                return record.event;
            }
        }
    }

    pub(crate) fn signal(&self, name: &str) {
        let kill = format!("kill -{name} {}", self.child.id());
        assert!(Command::new("sh").args(["-c", &kill]).status().unwrap().success());
    }

    /// Reads to the end, so that the run never waits for a reader; the exit code.
    pub(crate) fn wait(mut self) -> Option<i32> {
        let mut rest = Vec::new();
        while self.lines.read_until(b'\n', &mut rest).unwrap() > 0 {}
        self.child.wait().unwrap().code()
    }
}

/// The front, which finds its engine beside it. Cargo builds the engine for these tests; the front is another crate's.
pub(crate) fn lowtide() -> PathBuf {
    let lowtide = Path::new(env!("CARGO_BIN_EXE_lowtide-engine")).with_file_name("lowtide");
    let hint = "build it first: cargo build --release -p lowtide-cli (make test does)";
    assert!(lowtide.is_file(), "lowtide is not there: {}\n{hint}", lowtide.display());
    lowtide
}

/// The text with every measured figure replaced, so that it is the same on every machine.
///
/// A size becomes `SIZE`; a number with a fraction, or in front of `tokens/s` or `samples/s`, becomes `#`.
pub(crate) fn settled(text: &str) -> String {
    text.split_inclusive('\n').map(settled_line).collect()
}

fn settled_line(line: &str) -> String {
    let mut settled: Vec<String> = Vec::new();
    let mut words = line.split(' ').peekable();
    while let Some(word) = words.next() {
        let number = word.trim_matches(['(', ',', ')', '\n']);
        let is_number = number.contains(|letter: char| letter.is_ascii_digit())
            && number.chars().all(|letter| letter.is_ascii_digit() || ".,-/".contains(letter));
        let next = *words.peek().unwrap_or(&"");
        let unit = ["bytes", "KiB", "MiB", "GiB"].into_iter().find(|unit| next.starts_with(unit));
        match unit {
            _ if !is_number => settled.push(word.to_owned()),
            Some(unit) => {
                let after = words.next().expect("it was seen").replace(unit, "");
                settled.push(word.replace(number, "SIZE") + &after);
            }
            None if number.contains('.') || is_speed(next) => settled.push(word.replace(number, "#")),
            None => settled.push(word.to_owned()),
        }
    }
    settled.join(" ")
}

fn is_speed(word: &str) -> bool {
    word.starts_with("tokens/s") || word.starts_with("samples/s")
}

#[test]
fn figures_are_settled() {
    let text =
        "host 1.2/23.5 GiB, loss -3.4  1,742 tokens/s  memory 942.89 KiB of 1.00 MiB\n(line 3 bytes, step 4), 0.1 s\n";
    assert_eq!(settled(text), "host SIZE, loss #  # tokens/s  memory SIZE of SIZE\n(line SIZE, step 4), # s\n");
}
