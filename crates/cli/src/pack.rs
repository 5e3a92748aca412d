//! `lowtide pack`: files of samples into shards.

use std::io::{IsTerminal, stderr};
use std::ops::ControlFlow;
use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::Ordering;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use lowtide_args::PackArgs;
use lowtide_core::{counted, grouped};
use lowtide_data::feed::OnDamage;
use lowtide_data::pack::{Error, Job, OnMissing, Options, Progress, ScoreGaps, Stage, Start, Summary};
use lowtide_data::shard::Compression;
use lowtide_tensorfile::DecodeLimit;
use serde_json::{Value, json};

use crate::output::{Failure, INTERRUPTED, json_text, print, print_json, printable, report};
use crate::stop_flag::stop_flag;

pub(crate) fn run(args: &PackArgs) -> ExitCode {
    report(pack(args))
}

fn pack(args: &PackArgs) -> Result<(), Failure> {
    let stop = stop_flag()?;
    let start = if args.restart { Start::Over } else { Start::GoOn };
    let mut job = Job::begin(&args.sources, &args.out, options(args), start)?;
    let was_finished = job.is_finished();
    let mut bar = Bar::new();
    let mut watch = |progress: Progress| {
        bar.show(progress);
        if stop.load(Ordering::Relaxed) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    job.run(&mut watch)?;
    let verified = if args.verify { Some(job.verify(&mut watch)?) } else { None };
    drop(bar);
    let packed = PackReport { summary: job.summary()?, found_shards: job.found_shards(), was_finished, verified };
    if args.json {
        return print_json(&json_text(&packed.json()));
    }
    print(&packed.text(&args.out))
}

fn options(args: &PackArgs) -> Options {
    Options {
        shard_bytes: args.shard_size,
        compression: args.compress.map_or(Compression::None, |level| Compression::Zstd { level }),
        scores: args.scores.clone(),
        missing: if args.allow_missing { OnMissing::Allow } else { OnMissing::Refuse },
        on_damage: if args.skip_damaged { OnDamage::Skip } else { OnDamage::Stop },
        decode_limit: DecodeLimit::asked(args.decode_limit),
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let code = if matches!(error, Error::Stopped { .. }) { INTERRUPTED } else { crate::output::BAD_INPUT };
        Self { text: error.to_string(), hint: error.hint().map(str::to_owned), code }
    }
}

/// What is shown on a terminal while it goes on.
struct Bar {
    bar: ProgressBar,
    stage: Option<Stage>,
}

impl Bar {
    fn new() -> Self {
        let bar = if stderr().is_terminal() {
            let template = "{msg:9} {bar:30} {binary_bytes}/{binary_total_bytes}  {binary_bytes_per_sec}  {eta} left";
            let style = ProgressStyle::with_template(template).expect("the template is right");
            ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr_with_hz(10)).with_style(style)
        } else {
            ProgressBar::hidden()
        };
        Self { bar, stage: None }
    }

    fn show(&mut self, progress: Progress) {
        if self.stage != Some(progress.stage) {
            self.stage = Some(progress.stage);
            self.bar.set_length(progress.all.get());
            self.bar.set_position(progress.done.get());
            // What an earlier run has done counts for the place and not for the rate.
            self.bar.reset_eta();
            self.bar.set_message(match progress.stage {
                Stage::Matching => "matching",
                Stage::Packing => "packing",
                Stage::Verifying => "verifying",
            });
        }
        self.bar.set_position(progress.done.get());
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

/// What is there in the end.
struct PackReport {
    summary: Summary,
    found_shards: u64,
    was_finished: bool,
    verified: Option<u64>,
}

impl PackReport {
    fn text(&self, folder: &Path) -> String {
        let summary = &self.summary;
        let how = match (self.was_finished, self.found_shards) {
            (true, _) => ", packed before".to_owned(),
            (false, 0) => String::new(),
            (false, found) => format!(", of which {} there already", were(found)),
        };
        let mut text = format!(
            "{}: {} in {}{how}\n",
            printable(&folder.display().to_string()),
            counted(summary.samples, "sample"),
            counted(summary.shards, "shard")
        );
        let facts = [
            ("sources", Some(format!("{}, {}", counted(summary.sources, "file"), summary.source_bytes))),
            ("shards", Some(self.shards_fact())),
            ("ids", Some(self.ids_fact())),
            ("scores", summary.scores.as_ref().map(|(scores, gaps)| scores_fact(*scores, gaps))),
            ("left out", self.left_out_fact()),
            ("verified", self.verified.map(|samples| format!("{} as in the sources", counted(samples, "sample")))),
        ];
        for (name, fact) in facts {
            if let Some(fact) = fact {
                text.push_str(&format!("  {name:<10}{fact}\n"));
            }
        }
        text
    }

    fn shards_fact(&self) -> String {
        let (bytes, unpacked) = (self.summary.bytes, self.summary.unpacked_bytes);
        if unpacked <= bytes {
            return bytes.to_string();
        }
        let percent = bytes.get() as f64 / unpacked.get() as f64 * 100.0;
        format!("{bytes}, compressed to {percent:.0} %")
    }

    fn ids_fact(&self) -> String {
        let summary = &self.summary;
        let without = match summary.samples - summary.ids {
            0 => String::new(),
            without => format!(", {} without", counted(without, "sample")),
        };
        if summary.ids == 0 {
            return "none".to_owned();
        }
        let twice = match summary.duplicates.samples {
            0 => ", none twice".to_owned(),
            again => format!(", {} of them a second time ({})", grouped(again), quoted(&summary.duplicates.ids, again)),
        };
        format!("{}{without}{twice}", grouped(summary.ids))
    }

    fn left_out_fact(&self) -> Option<String> {
        let left_out = &self.summary.left_out;
        if left_out.is_empty() {
            return None;
        }
        let lines = left_out.iter().map(|file| {
            format!("\n            {}: {}", printable(&file.file.display().to_string()), printable(&file.reason))
        });
        Some(format!("{}{}", counted(left_out.len() as u64, "file"), lines.collect::<String>()))
    }

    fn json(&self) -> Value {
        let summary = &self.summary;
        let left_out = summary.left_out.iter().map(|file| json!({"file": file.file, "reason": file.reason}));
        let scores = summary.scores.as_ref().map(|(scores, gaps)| {
            json!({
                "in_table": scores,
                "samples_without_id": gaps.without_id,
                "samples_without_score": gaps.without_score,
                "ids_without_score": gaps.unscored_ids,
                "scores_without_sample": gaps.without_sample,
                "ids_without_sample": gaps.unused_ids,
            })
        });
        json!({
            "samples": summary.samples,
            "shards": summary.shards,
            "bytes": summary.bytes,
            "unpacked_bytes": summary.unpacked_bytes,
            "sources": summary.sources,
            "source_bytes": summary.source_bytes,
            "shards_there_before": self.found_shards,
            "ids": {"seen": summary.ids, "again": summary.duplicates.samples, "examples": summary.duplicates.ids},
            "scores": scores,
            "left_out": left_out.collect::<Vec<_>>(),
            "verified_samples": self.verified,
        })
    }
}

fn scores_fact(scores: u64, gaps: &ScoreGaps) -> String {
    let beside = if gaps.is_empty() { String::new() } else { format!("; {}", printable(&gaps.to_string())) };
    format!("{} in the table{beside}", grouped(scores))
}

fn were(shards: u64) -> String {
    if shards == 1 { "1 was".to_owned() } else { format!("{} were", grouped(shards)) }
}

fn quoted(ids: &[String], all: u64) -> String {
    let named: Vec<String> = ids.iter().map(|id| format!("`{:.80}`", printable(id))).collect();
    let more = if all > ids.len() as u64 { ", ..." } else { "" };
    format!("{}{more}", named.join(", "))
}
