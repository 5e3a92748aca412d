//! `lowtide pack`: files of samples into shards.

use std::io::{IsTerminal, stderr};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use clap::Args;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use lowtide_core::{Bytes, counted, grouped};
use lowtide_data::feed::OnDamage;
use lowtide_data::pack::{Error, Job, OnMissing, Options, Progress, ScoreGaps, Stage, Start, Summary};
use lowtide_data::shard::Compression;
use lowtide_tensorfile::DecodeLimit;
use serde_json::{Value, json};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;

use crate::output::{Failure, INTERRUPTED, json_text, print, print_json, printable, report};

/// Pack data files into shards, which are read faster and under any memory line.
///
/// Reads what `lowtide data` reads, and writes shards (00000.shard, ...) with a checksum for every sample.
/// Interrupted in whatever way, the same command goes on behind the last whole shard and ends with the same bytes. A
/// folder that is not finished cannot be taken for a data set.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  lowtide pack data/train --out packed                all data files of a folder
  lowtide pack traces/*.pkl.gz --scores scores.csv --out packed
  lowtide pack data/train --out packed --compress=9   smaller, and slower to read
  lowtide pack data/train --out packed --verify       compare with the sources, now or later

Exit codes:
  0    packed
  2    bad input or a full disk; what is whole stays
  130  interrupted; what is whole stays")]
pub(crate) struct PackArgs {
    /// Data files, and folders of them, in the order in which their samples shall stand.
    #[arg(value_name = "SRC", required = true)]
    sources: Vec<PathBuf>,

    /// The folder for the shards: a new one, an empty one, or one that was begun by the same command.
    #[arg(long, value_name = "DIR")]
    out: PathBuf,

    /// A table with the columns `id` and `score`; each sample gets its score as the field `scores`.
    #[arg(long, value_name = "FILE.csv")]
    scores: Option<PathBuf>,

    /// Pack samples that have no score, and pass over scores that have no sample.
    #[arg(long, requires = "scores")]
    allow_missing: bool,

    /// A shard ends with the sample that brings it to this size.
    #[arg(long, value_name = "SIZE", default_value = "32MiB", value_parser = shard_size)]
    shard_size: Bytes,

    /// Compress every sample with zstd, at level 3 or at this one.
    #[arg(
        long,
        value_name = "LEVEL",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "3",
        value_parser = clap::value_parser!(i32).range(1..=22)
    )]
    compress: Option<i32>,

    /// Read all shards and sources again in the end and compare every sample.
    #[arg(long)]
    verify: bool,

    /// Leave out files that are damaged or cannot be read.
    #[arg(long)]
    skip_damaged: bool,

    /// What a source may decode to: 256 MiB by default, or 64 times its size on the disk where that is more.
    #[arg(long, value_name = "SIZE")]
    decode_limit: Option<Bytes>,

    /// Delete the shards that an earlier command packed into the folder, and begin anew.
    #[arg(long)]
    restart: bool,

    /// Print what was packed as JSON.
    #[arg(long)]
    json: bool,
}

fn shard_size(text: &str) -> Result<Bytes, String> {
    match text.parse::<Bytes>() {
        Ok(size) if size.is_zero() => Err("a shard has at least one byte".to_owned()),
        parsed => parsed.map_err(|error| error.to_string()),
    }
}

pub(crate) fn run(args: &PackArgs) -> ExitCode {
    report(pack(args))
}

fn pack(args: &PackArgs) -> Result<(), Failure> {
    let stop = stop_flag()?;
    let start = if args.restart { Start::Over } else { Start::GoOn };
    let mut job = Job::begin(&args.sources, &args.out, args.options(), start)?;
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

/// SIGINT and SIGTERM end it after the sample under way, a second one at once.
fn stop_flag() -> Result<Arc<AtomicBool>, Failure> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        let registered = flag::register_conditional_shutdown(signal, 128 + signal, Arc::clone(&stop))
            .and_then(|_| flag::register(signal, Arc::clone(&stop)));
        registered.map_err(|error| Failure::bad_input(format!("cannot listen to signals: {error}"), None))?;
    }
    Ok(stop)
}

impl PackArgs {
    fn options(&self) -> Options {
        Options {
            shard_bytes: self.shard_size,
            compression: self.compress.map_or(Compression::None, |level| Compression::Zstd { level }),
            scores: self.scores.clone(),
            missing: if self.allow_missing { OnMissing::Allow } else { OnMissing::Refuse },
            on_damage: if self.skip_damaged { OnDamage::Skip } else { OnDamage::Stop },
            decode_limit: DecodeLimit::asked(self.decode_limit),
        }
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
