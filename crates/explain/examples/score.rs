//! Scores a folder of labelled posts, as `tests/threads/README.md` describes them: how many are recognised, and how many causes,
//! figures and remedies are right.
//!
//! ```console
//! $ cargo run --release -p lowtide-explain --example score -- FOLDER
//! ```
//!
//! `FOLDER/labels.csv` has a row for each `NAME.log`. It prints a row of `first_try.csv`, and a line for whatever is not right.

#![expect(clippy::print_stdout, reason = "it is a program")]

use std::collections::HashMap;
use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};

use lowtide_core::Bytes;
use lowtide_explain::{Context, Verdict, explain};

/// Above this certainty nothing may be wrong.
const SURE: f64 = 0.75;

/// So many of so many.
#[derive(Default)]
struct Share {
    right: usize,
    all: usize,
}

impl Share {
    fn count(&mut self, is_right: bool) -> bool {
        self.all += 1;
        self.right += usize::from(is_right);
        is_right
    }

    fn cell(&self) -> String {
        if self.all == 0 { String::new() } else { format!("{} of {}", self.right, self.all) }
    }
}

/// The columns of `first_try.csv`.
#[derive(Default)]
struct Score {
    recognised: Share,
    left_alone: Share,
    cause_right: Share,
    wrong_above_75: usize,
    open_above_75: Share,
    totals_read: Share,
    requests_read: Share,
    remedy_in_two: Share,
    wrong: Vec<String>,
}

/// A row of `labels.csv`, by the names of its columns.
type Labels = HashMap<String, String>;

fn main() -> Result<(), Box<dyn Error>> {
    let folder = PathBuf::from(std::env::args_os().nth(1).ok_or("usage: score FOLDER")?);
    let mut score = Score::default();
    for row in csv::Reader::from_path(folder.join("labels.csv"))?.deserialize() {
        score.add(&folder, &row?)?;
    }
    let lot = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let open = Share { right: score.open_above_75.all - score.open_above_75.right, all: score.open_above_75.all };
    let shares = [&score.recognised, &score.left_alone, &score.cause_right];
    let figures = [&open, &score.totals_read, &score.requests_read, &score.remedy_in_two];
    let cells: Vec<String> = shares
        .iter()
        .map(|share| share.cell())
        .chain([score.wrong_above_75.to_string()])
        .chain(figures.iter().map(|share| share.cell()))
        .collect();
    println!("{lot},{}", cells.join(","));
    score.wrong.iter().for_each(|line| println!("{line}"));
    Ok(())
}

impl Score {
    fn add(&mut self, folder: &Path, labels: &Labels) -> Result<(), Box<dyn Error>> {
        let label = |column: &str| labels.get(column).map_or("", |value| value.trim());
        let name = ["name", "story"].map(label).concat();
        let verdicts = explain(&fs::read(folder.join(format!("{name}.log")))?, &Context::default());
        let first = verdicts.first();
        let mut wrong = Vec::new();
        if label("cause") == "none" {
            if !self.left_alone.count(first.is_none()) {
                wrong.push(format!("taken for an error: {}", said(first)));
            }
        } else {
            if !self.recognised.count(first.is_some()) {
                wrong.push("not recognised".to_owned());
            }
            self.cause(label("cause"), first, &mut wrong);
            if first.is_some() {
                figure(&mut self.totals_read, label("device_total"), &verdicts, &mut wrong);
                figure(&mut self.requests_read, label("requested"), &verdicts, &mut wrong);
            }
            if label("follows") != "no" {
                self.remedy(label("remedy"), first, &mut wrong);
            }
        }
        self.wrong.extend(wrong.into_iter().map(|what| format!("{name}: {what} ({})", label("basis"))));
        Ok(())
    }

    fn cause(&mut self, label: &str, first: Option<&Verdict>, wrong: &mut Vec<String>) {
        let is_sure = first.is_some_and(|verdict| verdict.certainty > SURE);
        if label == "unclear" {
            if !self.open_above_75.count(!is_sure) {
                wrong.push(format!("open, and yet surer than 75 %: {}", said(first)));
            }
        } else if !self.cause_right.count(first.is_some_and(|verdict| word(verdict.cause) == label)) && first.is_some()
        {
            self.wrong_above_75 += usize::from(is_sure);
            wrong.push(format!("{label}, not {}", said(first)));
        }
    }

    /// What helped is among the first two pieces of advice; what is no lever of ours (a newer version) is not counted.
    fn remedy(&mut self, label: &str, first: Option<&Verdict>, wrong: &mut Vec<String>) {
        let levers: Vec<&str> = label
            .split('/')
            .map(|lever| lever.split('~').next().unwrap_or_default().trim())
            .filter(|lever| !matches!(*lever, "" | "other" | "update"))
            .collect();
        if levers.is_empty() {
            return;
        }
        let advised: Vec<Vec<String>> = first
            .map(|verdict| &verdict.advice[..])
            .unwrap_or_default()
            .iter()
            .map(|advice| [advice.lever].iter().chain(&advice.also).map(word).collect())
            .collect();
        let is_right = advised.iter().take(2).flatten().any(|lever| levers.contains(&&**lever));
        if !self.remedy_in_two.count(is_right) {
            wrong.push(format!("{label} helped, advised were {:?}", advised.iter().take(4).collect::<Vec<_>>()));
        }
    }
}

/// A cause with its certainty.
fn said(first: Option<&Verdict>) -> String {
    first.map_or_else(|| "nothing".to_owned(), |verdict| format!("{} at {}", word(verdict.cause), verdict.certainty))
}

/// A value as it stands in JSON.
fn word(value: impl serde::Serialize) -> String {
    serde_json::to_value(value).ok().and_then(|value| value.as_str().map(str::to_owned)).unwrap_or_default()
}

/// Whether a figure of the text is one of those that were read, but for rounding.
fn figure(share: &mut Share, label: &str, verdicts: &[Verdict], wrong: &mut Vec<String>) {
    let digits = label.find(|c: char| !c.is_ascii_digit() && !matches!(c, '.' | ',')).unwrap_or(label.len());
    let Ok(number) = label[..digits].replace(',', "").parse::<f64>() else { return };
    let power = label[digits..].trim_start().chars().next().and_then(|unit| "KMGT".find(unit)).map_or(0, |at| at + 1);
    let expected = number * 1024_f64.powi(i32::try_from(power).unwrap_or_default());
    let is_it = |bytes: Bytes| (bytes.get() as f64 - expected).abs() <= expected * 0.006 + 1.0;
    let read = verdicts.iter().flat_map(|verdict| {
        [verdict.capacity_bytes, verdict.tried_bytes, verdict.limit_bytes, verdict.free_bytes].into_iter().flatten()
    });
    if !share.count(read.into_iter().any(is_it)) {
        wrong.push(format!("{label} was not read"));
    }
}
