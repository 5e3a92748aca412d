//! What a replay found, in words.

use super::findings::{Findings, Holder, Row};
use crate::output::{Side, aligned};
use crate::section::section;

/// The page of a replay.
pub(super) fn page(name: &str, findings: &Findings) -> String {
    let bytes = Findings::bytes;
    let settings = match (findings.is_cpu, findings.conf.is_empty()) {
        (true, _) => String::new(),
        (false, true) => " under PyTorch's own settings".to_owned(),
        (false, false) => format!(" under {}", findings.conf),
    };
    let mut text = format!("{name}, {}: {} events, replayed{settings}", findings.device_name(), findings.events);
    if let Some(limit) = findings.limit {
        let why = if findings.limit_is_inferred {
            match findings.is_cpu {
                true => " (the limit it was recorded under; --limit sets another)",
                false => " (what the recording reserved when it ran out of memory; --limit sets another)",
            }
        } else {
            ""
        };
        text.push_str(&format!(", limit {}{why}", bytes(limit)));
    }
    text.push_str("\n\n");
    if findings.is_cpu {
        section(&mut text, "peak", &[bytes(findings.simulated.peaks.peak_allocated)]);
        section(&mut text, "largest", &findings.largest.iter().map(holder_words).collect::<Vec<_>>());
        section(&mut text, "OOM", &refusal(findings));
        section(&mut text, "note", &notes(findings));
        return text;
    }
    let peaks = &findings.simulated.peaks;
    section(
        &mut text,
        "peak",
        &[format!(
            "reserved {}, allocated {}, active {}",
            bytes(peaks.peak_reserved),
            bytes(peaks.peak_allocated),
            bytes(peaks.peak_active)
        )],
    );
    section(&mut text, "unused", &unused(findings));
    section(&mut text, "largest", &findings.largest.iter().map(holder_words).collect::<Vec<_>>());
    section(&mut text, "OOM", &refusal(findings));
    section(&mut text, "what if", &table(findings));
    section(&mut text, "best", &[best(findings)]);
    section(&mut text, "note", &notes(findings));
    text
}

fn unused(findings: &Findings) -> Vec<String> {
    let bytes = Findings::bytes;
    let unused = &findings.unused;
    let idle = unused.reserved - unused.active;
    if idle == 0 {
        return vec!["nothing: all that was reserved was in use when most was reserved".to_owned()];
    }
    vec![format!(
        "{} of {} when most was reserved (event {}): {} free in segments that were partly in use, {} in whole cached \
         segments",
        bytes(idle),
        bytes(unused.reserved),
        unused.event,
        bytes(unused.in_pieces),
        bytes(unused.cached)
    )]
}

pub(super) fn holder_words(holder: &Holder) -> String {
    let each = holder.each.map_or(String::new(), |each| format!(" of {}", Findings::bytes(each)));
    let count = if holder.tensors == 1 { String::new() } else { format!(" in {} tensors{each}", holder.tensors) };
    let place = match (&holder.place, holder.each) {
        (Some(place), _) => format!(", made in {place}"),
        (None, Some(_)) => String::new(),
        (None, None) => ", made where no line of Python is known".to_owned(),
    };
    format!("{}{count}{place}", Findings::bytes(holder.bytes))
}

fn refusal(findings: &Findings) -> Vec<String> {
    let Some(first) = &findings.simulated.first_oom else { return Vec::new() };
    let count = match findings.simulated.num_ooms {
        1 => "a request was refused: it".to_owned(),
        many => format!("{many} requests were refused; the first"),
    };
    let when = first.seconds.map_or(String::new(), |seconds| format!(", {seconds:.1} s after the first event"));
    let place = first.stack.as_ref().map_or(String::new(), |place| format!(", in {place}"));
    vec![format!("{count} asked for {} (event {}{when}{place})", Findings::bytes(first.size), first.event)]
}

fn table(findings: &Findings) -> Vec<String> {
    let row = |row: &Row| {
        let conf = if row.conf.is_empty() { "PyTorch's own" } else { &row.conf };
        let spread = match row.peak_reserved == row.peak_reserved_low {
            true => String::new(),
            false => format!("(or {})", Findings::bytes(row.peak_reserved_low)),
        };
        let ooms = if row.num_ooms == 0 { String::new() } else { format!("{} OOM", row.num_ooms) };
        [conf.to_owned(), Findings::bytes(row.peak_reserved), spread, ooms]
    };
    let rows: Vec<[String; 4]> = findings.what_if.iter().map(row).collect();
    aligned([Side::Left, Side::Right, Side::Left, Side::Right], &rows)
        .lines()
        .map(|line| line.trim_end().to_owned())
        .collect()
}

fn best(findings: &Findings) -> String {
    match &findings.best {
        Some(conf) if conf.is_empty() => "unset PYTORCH_CUDA_ALLOC_CONF".to_owned(),
        Some(conf) => format!("PYTORCH_CUDA_ALLOC_CONF={conf}"),
        None => "no other setting would have reserved noticeably less".to_owned(),
    }
}

fn notes(findings: &Findings) -> Vec<String> {
    let mut notes = Vec::new();
    if findings.is_reconstructed {
        notes.push(
            "the history was cut at its front: what was held before is worked out from the end, and sizes of blocks that \
             are gone are assumed"
                .to_owned(),
        );
    }
    if findings.differing_events > 0 {
        notes.push(format!(
            "{} of {} events came out otherwise than recorded, so these figures are close and not exact",
            findings.differing_events, findings.events
        ));
    }
    if findings.private_bytes > 0 || findings.private_events > 0 {
        notes.push(format!(
            "{} were held in pools of CUDA graphs or of MemPool, which are replayed as if they were the common pool: figures \
             are close and not exact",
            Findings::bytes(findings.private_bytes)
        ));
    }
    if findings.has_unknown_limit {
        notes.push(
            "per_process_memory_fraction limits memory to a part of the card, whose size is not in the snapshot: nothing \
             limits this replay; --limit does"
                .to_owned(),
        );
    }
    if !findings.is_verified {
        notes.push(format!(
            "PyTorch {} is imitated by its source; only 2.11 was verified against a card",
            findings.torch
        ));
    }
    notes
}
