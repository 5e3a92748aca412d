//! The end of a run in a few lines.

use std::path::Path;

use lowtide_core::{Bytes, StopCause, counted, grouped};
use lowtide_train::{CacheSummary, Outcome, RunEnding, Summary};

use super::speed::speed;

/// What a person reads when a run has ended, line by line.
pub(crate) fn outcome_lines(outcome: &Outcome, resumed_in: &Path) -> Vec<String> {
    let title = match outcome.summary.stopped {
        RunEnding::Finished if outcome.summary.stopped_early_at.is_some() => "finished early",
        RunEnding::Finished => "finished",
        RunEnding::Interrupted => "interrupted",
        RunEnding::Line => "stopped at the line",
    };
    let mut lines = vec![title.to_owned()];
    lines.extend(figures(&outcome.summary));
    let (folder, resumed_in) = (outcome.folder.display(), resumed_in.display());
    if let Some(stop) = &outcome.stop {
        lines.push(format!("error: {stop}"));
        lines.extend(
            stop.tried
                .iter()
                .map(|tried| format!("  tried: {} ({})", tried.rung, tried.measures.in_phase(tried.phase))),
        );
        if let (Some(least), Some(line)) = (outcome.least_line, outcome.summary.line_bytes) {
            let past = least.saturating_sub(Bytes(line));
            lines.push(format!("  the last try came {past} past the line, and may have needed more after that"));
        }
        lines.push(match outcome.summary.line_bytes {
            _ if stop.cause == StopCause::RecoveryOff => {
                format!("hint: let it go on: lowtide train --resume --out {resumed_in} --set memory.recover=true")
            }
            Some(_) => format!("hint: go on with a larger line: lowtide train --resume --out {resumed_in} --line SIZE"),
            None => format!("hint: free the device, then go on: lowtide train --resume --out {resumed_in}"),
        });
    } else if outcome.summary.stopped == RunEnding::Interrupted {
        lines.push(format!("hint: go on with lowtide train --resume --out {resumed_in}"));
    }
    lines.push(format!("everything about this run is in {folder}"));
    lines
}

fn figures(summary: &Summary) -> Vec<String> {
    let mut rows = Vec::new();
    let mut row = |name: &str, value: String| rows.push(format!("  {name:<13} {value}"));
    let lost = match summary.samples_lost {
        0 => "none lost".to_owned(),
        lost => format!("{} lost", grouped(lost)),
    };
    row("steps", format!("{} ({} samples, {lost})", grouped(summary.steps), grouped(summary.samples_seen)));
    if let Some(loss) = summary.final_loss {
        row("loss", loss_text(loss, summary.loss_floor));
    }
    if !summary.metrics.is_empty() {
        row("evaluation", summary.metrics.to_string());
    }
    if summary.samples_per_second > 0.0 {
        row("speed", speed(summary.samples_per_second, summary.tokens_per_second));
    }
    let line = summary.line_bytes.map_or("no line".to_owned(), |line| format!("line {}", Bytes(line)));
    row("memory", format!("peak {} ({line})", Bytes(summary.peak_allocated_bytes)));
    if let Some(line) = summary.host_line_bytes {
        row("host", format!("peak {} (host line {})", Bytes(summary.peak_rss_bytes), Bytes(line)));
    }
    if let Some(cache) = &summary.cache {
        row("data", data_text(cache));
        cache.advice.iter().for_each(|advice| row("", advice.clone()));
    }
    if summary.oom_errors > 0 {
        row("out of memory", format!("{}, {} recovered", counted(summary.oom_errors, "time"), summary.oom_recovered));
    }
    row("time", format!("{:.1} s", summary.wall_seconds));
    rows
}

fn data_text(cache: &CacheSummary) -> String {
    let skipped = match (cache.skipped_files, cache.skipped_samples) {
        (0, 0) => String::new(),
        (files, samples) => format!(", {} and {} left out", counted(files, "file"), counted(samples, "sample")),
    };
    format!(
        "{:.1} % found in memory, {} read (the least is {}), {:.1} % of the time waiting{skipped}",
        100.0 * cache.train.hit_rate,
        Bytes(cache.train.bytes_read),
        Bytes(cache.optimum_bytes_read),
        100.0 * cache.waiting_share,
    )
}

fn loss_text(loss: f64, floor: Option<f64>) -> String {
    match floor {
        _ if !loss.is_finite() => "not a finite number".to_owned(),
        None => format!("{loss:.4}"),
        Some(floor) => {
            let above = 100.0 * (loss / floor - 1.0);
            format!("{loss:.4} (the least possible is {floor:.4}, so {above:.1} % above it)")
        }
    }
}
