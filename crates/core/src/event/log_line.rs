//! An event as one short line for the log of the run itself.

use super::numerics::listed;
use crate::{Bytes, Event, MicroBatch, Phase, Reason, Record, Relocation, Rung};

impl Record {
    /// The line of its event, with the rank where it is one's own.
    #[must_use]
    pub fn log_line(&self, batch: u32) -> Option<String> {
        let line = self.event.log_line(batch)?;
        Some(match (self.rank, line.split_once("] ")) {
            (Some(rank), Some((step, text))) => format!("{step}] rank {rank}: {text}"),
            (Some(rank), None) => format!("rank {rank}: {line}"),
            (None, _) => line,
        })
    }
}

impl Event {
    /// The line that tells of it while the run goes on; none for what is not worth one. `batch` is the effective batch.
    ///
    /// The beginning, steps and samples of memory have none: what is said of those depends on who looks.
    #[must_use]
    pub fn log_line(&self, batch: u32) -> Option<String> {
        let text = match self {
            // The first one is always tried, and mostly shows that there is nothing to tell.
            Self::Probed { micro_batch, peak: Some(_), .. } if *micro_batch == MicroBatch::ONE => return None,
            Self::Probed { micro_batch, peak, seconds } => {
                let found = peak.map_or("does not fit".to_owned(), |peak| format!("{peak} in use"));
                return Some(format!("tried micro-batch {micro_batch}: {found}, {seconds:.1} s"));
            }
            Self::Sized { measures } if measures.micro_batch.get() == batch => return None,
            Self::Sized { measures } => {
                let of_batch = format!("{} of {batch}", measures.micro_batch);
                let words = measures.in_phase(Phase::Forward).replacen(&measures.micro_batch.to_string(), &of_batch, 1);
                return Some(format!("starting with {words}"));
            }
            Self::NumericsChanged { changes, .. } => {
                format!("bits may be others than those of an unbroken run: {}", listed(changes))
            }
            Self::OutOfMemory { phase, requested, .. } => {
                let asked = requested.map_or(String::new(), |bytes| format!(", which asked for {bytes}"));
                format!("out of memory in {phase}{asked}")
            }
            Self::Overflowed { phase, bytes, reserve, seconds, .. } => {
                let smaller = self.smaller_batch().map_or(String::new(), |words| format!("; {words}"));
                format!("{phase} used {bytes} of the reserve of {reserve} for {seconds:.1} s{smaller}")
            }
            Self::RungTaken { rung, measures, reason: Reason::Overflowed { phase }, .. } => match rung {
                Rung::Clean => "from the next step on: clean".to_owned(),
                _ => format!("from the next step on: {rung}: {}", measures.in_phase(*phase)),
            },
            Self::RungTaken { rung, measures, reason, .. } => {
                let what = match rung {
                    Rung::Clean => String::new(),
                    _ => format!(": {}", measures.in_phase(reason.phase().unwrap_or(Phase::Forward))),
                };
                format!("retrying after: {rung}{what}")
            }
            Self::Climbed { measures, reason, .. } => format!("{reason}: {}", measures.in_phase(Phase::Forward)),
            Self::Evaluated { loss, metrics, approximate, .. } => {
                let comma = if metrics.is_empty() { "" } else { ", " };
                let about = if *approximate { " (approximate: in tiles)" } else { "" };
                format!("evaluation: loss {loss:.4}{comma}{metrics}{about}")
            }
            Self::MetricMissing { metric, reason, .. } => {
                format!("{metric} is missing, the other figures stand: {reason}")
            }
            Self::StoppedEarly { evaluations, best, .. } => {
                let best = best.map_or(String::new(), |best| format!(" than {best:.4}"));
                format!("{evaluations} evaluations in a row were not better{best}, so training ends early")
            }
            Self::TileHalved { tile, .. } => format!("retrying in tiles of {tile} x {tile} pixels"),
            Self::EvaluationFailed { stop, .. } => format!("evaluation left out, training goes on: {stop}"),
            Self::Skipped { scale, .. } => {
                format!("skipped: a gradient was not finite; the loss scale is now {scale}")
            }
            Self::Relocated { folder, cause: Relocation::Moved, .. } => {
                format!("note: the run folder was moved: everything is written to {folder}")
            }
            Self::Relocated { folder, cause: Relocation::Deleted, .. } => {
                format!("note: the run folder was deleted: everything is saved again and written to {folder}")
            }
            Self::Note { message, .. } => format!("note: {message}"),
            Self::Cleaned { freed, .. } if *freed > Bytes::ZERO => {
                format!("cleaned: {freed} of cached memory given back")
            }
            Self::Cleaned { .. }
            | Self::RunStarted { .. }
            | Self::StepDone { .. }
            | Self::Memory { .. }
            | Self::Saved { .. }
            | Self::CommandStarted { .. }
            | Self::CommandMemory { .. }
            | Self::CommandEnded { .. }
            | Self::Stopped { .. } => return None,
        };
        Some(match self.step() {
            Some(step) => format!("[step {step}] {text}"),
            None => text,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Measures, Metrics, NumericsChange, Step};

    #[test]
    fn what_happened_on_one_rank_names_it() {
        let told = |rank, event| Record::new(0.0, event).on_rank(rank).log_line(32);
        let note = || Event::Note { step: Step(3), message: "a [word] of it".to_owned() };
        assert_eq!(told(None, note()).as_deref(), Some("[step 3] note: a [word] of it"));
        assert_eq!(told(Some(1), note()).as_deref(), Some("[step 3] rank 1: note: a [word] of it"));
        let (micro_batch, peak, seconds) = (MicroBatch::new(2).unwrap(), None, 0.1);
        let probed = Event::Probed { micro_batch, peak, seconds };
        assert_eq!(told(Some(0), probed).as_deref(), Some("rank 0: tried micro-batch 2: does not fit, 0.1 s"));
    }

    #[track_caller]
    fn check(event: &Event, expect: Option<&str>) {
        assert_eq!(event.log_line(32).as_deref(), expect);
    }

    fn samples(count: u32) -> MicroBatch {
        MicroBatch::new(count).unwrap()
    }

    #[test]
    fn what_is_worth_a_line_has_one() {
        let (step, seconds) = (Step(7), 0.25);
        let probed = |count, peak| Event::Probed { micro_batch: samples(count), peak, seconds };
        check(&probed(1, Some(Bytes::from_mib(3))), None);
        check(&probed(1, None), Some("tried micro-batch 1: does not fit, 0.2 s"));
        check(&probed(8, Some(Bytes::from_mib(3))), Some("tried micro-batch 8: 3.00 MiB in use, 0.2 s"));
        let measures = Measures::new(samples(8), samples(8));
        check(&Event::Sized { measures }, Some("starting with micro-batch 8 of 32"));
        check(&Event::Sized { measures: Measures::new(samples(32), samples(8)) }, None);
        let reason = Reason::StillFailing { phase: Phase::Eval };
        let rung = |rung| Event::RungTaken { step, rung, measures, reason };
        check(&rung(Rung::Split), Some("[step 7] retrying after: split: evaluation micro-batch 8"));
        check(&rung(Rung::Clean), Some("[step 7] retrying after: clean"));
        let evaluated = |metrics, approximate| Event::Evaluated {
            step,
            loss: 1.5,
            metrics,
            batches: 4,
            seconds,
            allocated: None,
            reserved: None,
            approximate,
        };
        check(&evaluated(Metrics::default(), false), Some("[step 7] evaluation: loss 1.5000"));
        let metrics = Metrics::from_iter([("psnr".to_owned(), 31.5)]);
        let text = "[step 7] evaluation: loss 1.5000, psnr 31.5000 (approximate: in tiles)";
        check(&evaluated(metrics, true), Some(text));
        let change = NumericsChange { what: "threads".into(), then: "2".into(), now: "1".into() };
        let changed = Event::NumericsChanged { step, changes: vec![change.clone(), change] };
        let text =
            "[step 7] bits may be others than those of an unbroken run: threads 2 then, 1 now; threads 2 then, 1 now";
        check(&changed, Some(text));
        let cleaned = |freed| Event::Cleaned { step, freed, seconds };
        check(&cleaned(Bytes::ZERO), None);
        check(&cleaned(Bytes::from_mib(2)), Some("[step 7] cleaned: 2.00 MiB of cached memory given back"));
        let rung =
            |rung| Event::RungTaken { step, rung, measures, reason: Reason::Overflowed { phase: Phase::Forward } };
        check(&rung(Rung::Split), Some("[step 7] from the next step on: split: micro-batch 8"));
        let overflowed = |needed, limit| Event::Overflowed {
            step,
            phase: Phase::Backward,
            bytes: Bytes::from_mib(512),
            reserve: Bytes::from_gib(4),
            seconds,
            needed,
            limit,
            resting: Some(Bytes::from_gib(2)),
        };
        let text =
            "[step 7] backward used 512.00 MiB of the reserve of 4.00 GiB for 0.2 s; a batch 38 % smaller would fit";
        check(&overflowed(Some(Bytes::from_gib(18)), Some(Bytes::from_gib(12))), Some(text));
        let text =
            "[step 7] backward used 512.00 MiB of the reserve of 4.00 GiB for 0.2 s; without cached blocks it fits";
        check(&overflowed(Some(Bytes::from_gib(10)), Some(Bytes::from_gib(12))), Some(text));
        let text = "[step 7] backward used 512.00 MiB of the reserve of 4.00 GiB for 0.2 s";
        check(&overflowed(None, None), Some(text));
        check(&overflowed(Some(Bytes::from_gib(18)), Some(Bytes::from_gib(1))), Some(text));
        check(&Event::TileHalved { step, tile: 256 }, Some("[step 7] retrying in tiles of 256 x 256 pixels"));
    }
}
