//! What was foreseen before and while a run trained, against what was measured.

use std::collections::BTreeMap;

use lowtide_core::{Bytes, MicroBatch};
use serde::Serialize;
use serde_json::Value;

use super::figures::{Figures, RunHeader};

/// The most rows of each kind that are kept.
const ROWS: usize = 32;

/// One thing that was foreseen or bounded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ForecastRow {
    /// What it is about.
    pub what: String,
    /// What was foreseen: the most there may be, or what was expected.
    pub foreseen: Option<Bytes>,
    /// Where that comes from.
    pub by: Option<&'static str>,
    /// What was measured; `None` where memory ran out.
    pub measured: Option<Bytes>,
}

/// What a run tried out, and what its steps then took.
#[derive(Debug, Default)]
pub(crate) struct Forecasts {
    probes: Vec<(u32, Option<Bytes>)>,
    chosen: Option<u32>,
    /// The highest peak of the steps with each micro-batch.
    trained: BTreeMap<u32, Bytes>,
}

impl Forecasts {
    pub(crate) fn probed(&mut self, micro_batch: MicroBatch, peak: Option<Bytes>) {
        if self.probes.len() < ROWS {
            self.probes.push((micro_batch.get(), peak));
        }
    }

    pub(crate) fn sized(&mut self, micro_batch: MicroBatch) {
        self.chosen = Some(micro_batch.get());
    }

    pub(crate) fn trained(&mut self, micro_batch: MicroBatch, peak: Bytes) {
        if self.trained.len() < ROWS || self.trained.contains_key(&micro_batch.get()) {
            let highest = self.trained.entry(micro_batch.get()).or_default();
            *highest = (*highest).max(peak);
        }
    }

    /// All rows: bounds, tries, training, evaluation.
    pub(crate) fn rows(
        &self,
        header: Option<&RunHeader>,
        figures: &Figures,
        summary: Option<&Value>,
    ) -> Vec<ForecastRow> {
        let row = |what: &str, foreseen, by, measured| ForecastRow { what: what.to_owned(), foreseen, by, measured };
        let number = |key: &str| summary.and_then(|summary| summary.pointer(key)?.as_u64()).map(Bytes);
        let mut rows = Vec::new();
        if let Some(line) = header.and_then(|header| header.line) {
            rows.push(row(
                "memory of the device",
                Some(line),
                Some("the memory limit"),
                Some(figures.highest_reserved),
            ));
        }
        if let Some(line) = header.and_then(|header| header.host_line) {
            let measured = number("/peak_rss_bytes").or(figures.highest_resident);
            rows.push(row("memory of the host", Some(line), Some("the host limit"), measured));
        }
        for (at, (micro_batch, peak)) in self.probes.iter().enumerate() {
            let foreseen = Forecasts::forecast(&self.probes[..at], *micro_batch);
            let by = foreseen.map(|_| "the two tries before");
            rows.push(row(&format!("micro-batch {micro_batch}, tried out"), foreseen, by, *peak));
        }
        for (micro_batch, measured) in &self.trained {
            let tried = self.probes.iter().find(|(other, _)| other == micro_batch).and_then(|(_, peak)| *peak);
            let is_chosen = self.chosen == Some(*micro_batch);
            let foreseen = tried.or_else(|| Forecasts::forecast(&self.probes, *micro_batch).filter(|_| is_chosen));
            let by = foreseen.map(|_| if tried.is_some() { "when it was tried out" } else { "the last two tries" });
            rows.push(row(&format!("training with micro-batch {micro_batch}"), foreseen, by, Some(*measured)));
        }
        if let Some(peak) = number("/eval/peak_bytes") {
            let line = header.and_then(|header| header.line);
            rows.push(row("evaluation", line, line.map(|_| "the memory limit"), Some(peak)));
        }
        rows
    }

    /// On the line through the last two tries, as the engine foresees what comes next.
    fn forecast(before: &[(u32, Option<Bytes>)], micro_batch: u32) -> Option<Bytes> {
        let [.., (earlier, Some(first)), (later, Some(second))] = before else { return None };
        let (samples, more) = (later.checked_sub(*earlier)?, micro_batch.checked_sub(*later)?);
        let grown = second.saturating_sub(*first).get();
        let grows = grown.saturating_mul(more.into()).checked_div(samples.into())?;
        Some(second.saturating_add(Bytes(grows)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tries_are_foreseen_from_the_two_before() {
        let mut forecasts = Forecasts::default();
        let micro_batch = |samples| MicroBatch::new(samples).unwrap();
        for (samples, peak) in [(1, Some(100)), (2, Some(150)), (4, Some(260)), (8, None)] {
            forecasts.probed(micro_batch(samples), peak.map(Bytes));
        }
        forecasts.sized(micro_batch(4));
        forecasts.trained(micro_batch(4), Bytes(270));
        forecasts.trained(micro_batch(4), Bytes(240));
        forecasts.trained(micro_batch(2), Bytes(160));
        let figures = Figures { highest_reserved: Bytes(300), ..Figures::default() };
        let summary = serde_json::json!({ "eval": { "peak_bytes": 90 } });
        let rows = forecasts.rows(None, &figures, Some(&summary));
        let told: Vec<(&str, Option<u64>, Option<u64>)> = rows
            .iter()
            .map(|row| (row.what.as_str(), row.foreseen.map(Bytes::get), row.measured.map(Bytes::get)))
            .collect();
        let expected = [
            ("micro-batch 1, tried out", None, Some(100)),
            ("micro-batch 2, tried out", None, Some(150)),
            ("micro-batch 4, tried out", Some(250), Some(260)),
            ("micro-batch 8, tried out", Some(480), None),
            ("training with micro-batch 2", Some(150), Some(160)),
            ("training with micro-batch 4", Some(260), Some(270)),
            ("evaluation", None, Some(90)),
        ];
        assert_eq!(told, expected);
    }
}
