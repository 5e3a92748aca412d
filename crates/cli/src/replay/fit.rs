//! `lowtide replay --at`: what a script needs at another size.

use lowtide_args::{ReplayArgs, SizedFile};
use lowtide_core::Bytes;
use lowtide_sim::{
    AllocatorSettings, Fit, Pairing, Prediction, SimError, SizedRecording, SizedWhatIf, Source, TorchVersion, Verdict,
};
use serde::Serialize;

use super::command::history;
use super::findings::version;
use super::snapshot_file::read;
use crate::output::{Failure, Side, aligned, json_text, print_json, print_page};
use crate::section::{MARGIN, section};

/// What is known of a size that was not recorded.
#[derive(Debug, Serialize)]
struct Foresight {
    size: u64,
    is_cpu: bool,
    /// The sizes that were recorded, and their peaks.
    recorded: Vec<Recorded>,
    conf: String,
    torch: String,
    is_verified: bool,
    limit: Option<u64>,
    predicted: Predicted,
    /// Whether it is likely to fit under the limit.
    fits: Option<bool>,
    verdict: Option<Verdict>,
    /// The largest size that is likely to fit.
    largest_size: Option<u64>,
    what_if: Vec<Row>,
    /// The best of these, where it is better than the recordings' own, and the largest size under it.
    best: Option<Best>,
    pairing: Pairing,
    is_reconstructed: bool,
}

#[derive(Debug, Serialize)]
struct Recorded {
    size: u64,
    peak_reserved: u64,
}

#[derive(Debug, Serialize)]
struct Predicted {
    peak_reserved: u64,
    peak_allocated: u64,
    low: u64,
    high: u64,
}

#[derive(Debug, Serialize)]
struct Row {
    conf: String,
    peak_reserved: u64,
    fits: bool,
}

impl From<SizedWhatIf> for Row {
    fn from(what_if: SizedWhatIf) -> Self {
        Self { conf: what_if.conf, peak_reserved: what_if.reserved_peak, fits: what_if.fits }
    }
}

#[derive(Debug, Serialize)]
struct Best {
    conf: String,
    largest_size: Option<u64>,
}

pub(super) fn foresee(args: &ReplayArgs, size: u64) -> Result<(), Failure> {
    let version = version(&args.torch)?;
    let foresight = foresight(args, size, version)?;
    match args.json {
        true => print_json(&json_text(&foresight)),
        false => print_page(&page(&foresight), MARGIN),
    }
}

fn foresight(args: &ReplayArgs, size: u64, version: TorchVersion) -> Result<Foresight, Failure> {
    let mut recorded = Vec::new();
    let mut own: Option<(u64, String, AllocatorSettings)> = None;
    for SizedFile { size, file } in &args.at {
        let snapshot = read(file)?;
        let settings = snapshot.settings(version)?;
        let history = history(args, &snapshot)?;
        let with_file = |error: SimError| Failure::bad_input(format!("{}: {error}", file.display()), None);
        recorded.push(SizedRecording::new(*size, &snapshot, history, &settings).map_err(with_file)?);
        if own.as_ref().is_none_or(|(largest, ..)| largest < size) {
            own = Some((*size, snapshot.conf().to_owned(), settings));
        }
    }
    let fit = Fit::new(recorded)?;
    let (conf, settings) = match (&args.conf, own) {
        (Some(conf), _) => (conf.clone(), AllocatorSettings::parse(conf, version)?),
        (None, Some((_, conf, settings))) => (conf, settings),
        (None, None) => (String::new(), AllocatorSettings::new(version)),
    };
    let limit = args.limit.map(|limit| limit.0);
    let Prediction { reserved_peak, allocated_peak, low, high, .. } = fit.predict(size, &settings)?;
    let verdict = limit.map(|limit| fit.verdict(size, &settings, limit)).transpose()?;
    let what_if: Vec<Row> = fit.what_if(size, version, limit)?.into_iter().map(Row::from).collect();
    let is_fitting = verdict.is_none_or(Verdict::is_likely);
    let best = best(&what_if, is_fitting, reserved_peak)
        .map(|conf| -> Result<Best, SimError> {
            let settings = AllocatorSettings::parse(conf, version)?;
            let largest_size = limit.and_then(|limit| fit.largest(&settings, limit));
            Ok(Best { conf: conf.to_owned(), largest_size })
        })
        .transpose()?;
    let peak = |recorded: &SizedRecording| Recorded { size: recorded.size(), peak_reserved: recorded.reserved_peak() };
    Ok(Foresight {
        size,
        is_cpu: fit.source() == Source::Host,
        recorded: fit.recorded().iter().map(peak).collect(),
        conf,
        torch: version.to_string(),
        is_verified: version.is_verified(),
        limit,
        predicted: Predicted { peak_reserved: reserved_peak, peak_allocated: allocated_peak, low, high },
        fits: verdict.map(Verdict::is_likely),
        verdict,
        largest_size: limit.and_then(|limit| fit.largest(&settings, limit)),
        what_if,
        best,
        pairing: fit.pairing(size),
        is_reconstructed: fit.is_reconstructed(size),
    })
}

/// The first setting that fits and reserves least or nearly so, where the recordings' own does not fit or reserves noticeably more.
fn best(rows: &[Row], is_fitting: bool, peak: u64) -> Option<&str> {
    let fitting = || rows.iter().filter(|row| row.fits);
    let least = fitting().map(|row| row.peak_reserved).min()?;
    // A hundredth is not worth a setting.
    let row = fitting().find(|row| row.peak_reserved <= least / 100 * 101)?;
    let is_better = !is_fitting || row.peak_reserved < peak / 100 * 99;
    is_better.then_some(row.conf.as_str())
}

fn page(found: &Foresight) -> String {
    let bytes = |number: u64| Bytes(number).to_string();
    let under = match (found.is_cpu, found.conf.as_str()) {
        (true, _) => ", on a CPU",
        (false, "") => " under PyTorch's own settings",
        (false, conf) => &format!(" under {conf}"),
    };
    let sizes: Vec<String> = found.recorded.iter().map(|recorded| recorded.size.to_string()).collect();
    let mut text = format!("size {}, predicted from {}{under}", found.size, sizes.join(" and "));
    if let Some(limit) = found.limit {
        text.push_str(&format!(", limit {}", bytes(limit)));
    }
    text.push_str("\n\n");
    let predicted = &found.predicted;
    let peak = bytes(predicted.peak_reserved);
    let bounds = format!("(between {} and {})", bytes(predicted.low), bytes(predicted.high));
    let words = match found.is_cpu {
        true => format!("{peak} {bounds}"),
        false => format!("reserved {peak} {bounds}, allocated {}", bytes(predicted.peak_allocated)),
    };
    section(&mut text, "peak", &[words]);
    section(&mut text, "recorded", &recorded(found));
    section(&mut text, "fits", &fits(found));
    if !found.is_cpu {
        section(&mut text, "what if", &table(found));
        section(&mut text, "best", &best_of(found));
    }
    section(&mut text, "note", &notes(found));
    text
}

fn recorded(found: &Foresight) -> Vec<String> {
    let one = |recorded: &Recorded| format!("size {}: {}", recorded.size, Bytes(recorded.peak_reserved));
    vec![found.recorded.iter().map(one).collect::<Vec<_>>().join(", ")]
}

fn fits(found: &Foresight) -> Vec<String> {
    let (Some(verdict), Some(limit)) = (found.verdict, found.limit) else { return Vec::new() };
    let words = match verdict {
        Verdict::Fits => "yes",
        Verdict::ProbablyFits => "probably, but what is not known may be too much",
        Verdict::ProbablyNot => "probably not",
        Verdict::DoesNotFit => "no",
    };
    let largest = match found.largest_size {
        Some(size) => format!("the largest size that fits in {} is {size}", Bytes(limit)),
        None => format!("not even size 1 fits in {}", Bytes(limit)),
    };
    let is_squeezed = verdict.is_likely() && found.predicted.peak_reserved > limit;
    let how = if is_squeezed { ", where PyTorch gives cached memory back on the way" } else { "" };
    vec![format!("{words}{how}; {largest}")]
}

fn table(found: &Foresight) -> Vec<String> {
    let row = |row: &Row| {
        let conf = if row.conf.is_empty() { "PyTorch's own" } else { &row.conf };
        let fits = if row.fits { String::new() } else { "does not fit".to_owned() };
        [conf.to_owned(), Bytes(row.peak_reserved).to_string(), fits]
    };
    let rows: Vec<[String; 3]> = found.what_if.iter().map(row).collect();
    aligned([Side::Left, Side::Right, Side::Left], &rows).lines().map(|line| line.trim_end().to_owned()).collect()
}

fn best_of(found: &Foresight) -> Vec<String> {
    let Some(best) = &found.best else {
        let words = match found.fits {
            Some(false) => "under none of these settings does it fit",
            _ => "no other setting would reserve noticeably less",
        };
        return vec![words.to_owned()];
    };
    let line = match best.conf.is_empty() {
        true => "unset PYTORCH_CUDA_ALLOC_CONF".to_owned(),
        false => format!("PYTORCH_CUDA_ALLOC_CONF={}", best.conf),
    };
    let largest = best.largest_size.map_or(String::new(), |size| format!(" (the largest size that fits is {size})"));
    vec![line + &largest]
}

fn notes(found: &Foresight) -> Vec<String> {
    let mut notes = Vec::new();
    let Pairing { requests, unpaired, undecided, .. } = found.pairing;
    if unpaired > 0 {
        notes.push(format!(
            "{unpaired} of {requests} requests are in one of the recordings only (a library picked another kernel): they \
             are taken to grow with the size"
        ));
    }
    if undecided > 0 {
        notes.push(format!(
            "{undecided} of {requests} requests grow in a way that these sizes do not decide; a recording at a third size \
             narrows the bounds"
        ));
    }
    if found.is_reconstructed {
        notes.push(
            "a history was cut at its front: what was held before is worked out from the end, so fragmentation may differ"
                .to_owned(),
        );
    }
    if !found.is_verified {
        notes.push(format!("PyTorch {} is imitated by its source; only 2.11 was verified against a card", found.torch));
    }
    notes
}
