//! The first micro-batch of a run that leaves it to us: tried out before training, which it does not touch.

use std::num::NonZeroU32;
use std::time::Instant;

use lowtide_core::{Event, Measures, Percent, Phase, Probe, Sizing, Step, Usage};

use crate::error::Result;
use crate::memory::Recovery;
use crate::ranks::{Agreed, OwnFailure, Shares};
use crate::requests::Requests;
use crate::step::{State, StepSpec};

/// Share of the line that stays free by the forecast.
const MARGIN: Percent = Percent::from_hundredths(5_00).expect("5 % is in range");
const WHOLE: NonZeroU32 = NonZeroU32::MIN;

/// What micro-batches are tried out on.
pub(super) struct Trial<'t, 'a> {
    pub(super) state: &'t mut State<'a>,
    pub(super) recovery: &'t mut Recovery<'a>,
    pub(super) requests: &'t Requests,
    /// Steps committed.
    pub(super) step: Step,
    /// The next sample to train on.
    pub(super) next_sample: u64,
    /// The samples of a step, divided among ranks.
    pub(super) shares: &'t Shares,
}

impl Trial<'_, '_> {
    /// Measures small micro-batches and puts the largest that is foreseen to fit in force, for training and evaluation.
    /// Whether that was done: a run that is asked to end meanwhile needs none.
    pub(super) fn choose_micro_batch(&mut self) -> Result<bool> {
        let now = self.recovery.guard.measures();
        let mut probes = Vec::new();
        let micro_batch = loop {
            match Sizing::after(&probes, now.micro_batch, MARGIN) {
                Sizing::Take(micro_batch) => break micro_batch,
                Sizing::Measure(_) if self.stop_asked()? => return Ok(false),
                Sizing::Measure(micro_batch) => probes.push(self.probe(now.with_micro_batch(micro_batch))?),
            }
        };
        let mut measures = Measures { eval_micro_batch: micro_batch, ..now.with_micro_batch(micro_batch) };
        if self.stop_asked()? {
            return Ok(false);
        }
        if self.has_room_for_whole_loss(measures)? {
            measures = Measures { loss_chunks: WHOLE, eval_loss_chunks: WHOLE, ..measures };
        }
        self.recovery.guard.follow(measures);
        if !probes.is_empty() || measures != now {
            self.give_back()?;
            self.recovery.forget_retries()?;
            self.recovery.tell(Event::Sized { measures })?;
        }
        Ok(true)
    }

    /// Whether somebody asked any rank to end.
    fn stop_asked(&self) -> Result<bool> {
        let (_, all) =
            self.recovery.team.agree("choosing a micro-batch", Ok(()), &[self.requests.stop_asked().into()])?;
        Ok(all.iter().any(|row| row[0] != 0))
    }

    /// Whether the pieces of the loss, which a small device starts with, are not needed. They cost time.
    fn has_room_for_whole_loss(&mut self, measures: Measures) -> Result<bool> {
        if measures.loss_chunks == WHOLE {
            return Ok(false);
        }
        let probe = self.probe(Measures { loss_chunks: WHOLE, ..measures })?;
        Ok(probe.usage.is_some_and(|usage| usage.admits(usage.peak, MARGIN)))
    }

    /// Blocks of the sizes that were tried are of little use to training.
    fn give_back(&mut self) -> Result<()> {
        if self.recovery.memory.is_cached() { self.recovery.clean(self.step) } else { Ok(()) }
    }

    fn probe(&mut self, measures: Measures) -> Result<Probe> {
        let begun = Instant::now();
        let micro_batch = measures.micro_batch;
        self.recovery.memory.reset_peaks()?;
        let resting = self.recovery.memory.resting(self.state.model.parameter_bytes())?;
        // Two pieces: the second one finds the gradients of the first already there.
        let (first, part) = self.shares.part(self.next_sample);
        let own = self.shares.micro_batch(micro_batch);
        let count = own.get().saturating_mul(2).min(part);
        // No step has this number, so no error is injected.
        let spec = StepSpec { step: Step::ZERO, first, count, micro_batch: own, whole: count, measures, next: None };
        let probed = self.state.probe(&spec, &self.recovery.injector);
        let reading = self.recovery.memory.reading()?;
        self.recovery.figures.note(&reading);
        let own = Usage { resting, peak: reading.allocated_peak, line: self.recovery.memory.roof() };
        let probed = probed.map_err(|error| OwnFailure::new(Phase::Forward, error, &self.recovery.memory));
        let team = self.recovery.team;
        let usage = match team.agree("trying out a micro-batch", probed, &[])?.0 {
            Agreed::Done(()) => {
                let all = team.gather("trying out a micro-batch", Some(&own))?;
                Usage::tightest(&all.into_iter().flatten().collect::<Vec<_>>())
            }
            Agreed::Failed(_) => None,
        };
        let (peak, seconds) = (usage.map(|usage| usage.peak), begun.elapsed().as_secs_f64());
        self.recovery.tell(Event::Probed { micro_batch, peak, seconds })?;
        if usage.is_none() {
            self.give_back()?;
        }
        Ok(Probe { micro_batch, usage })
    }
}
