//! The first micro-batch of a run that leaves it to us: tried out before training, which it does not touch.

use std::num::NonZeroU32;
use std::time::Instant;

use lowtide_core::{Bytes, Event, Measures, Percent, Probe, Sizing, Usage};

use crate::error::Result;
use crate::run::Run;

/// Share of the line that stays free by the forecast.
const MARGIN: Percent = Percent::from_hundredths(5_00).expect("5 % is in range");
const WHOLE: NonZeroU32 = NonZeroU32::MIN;

impl Run<'_> {
    /// Measures small micro-batches and takes the largest that is foreseen to fit, for training and evaluation.
    pub(crate) fn choose_micro_batch(&mut self) -> Result<()> {
        let now = self.measures();
        let mut probes = Vec::new();
        let micro_batch = loop {
            match Sizing::after(&probes, now.micro_batch, MARGIN) {
                Sizing::Take(micro_batch) => break micro_batch,
                // The run ends before its first step, so it needs none.
                Sizing::Measure(_) if self.requests.stop_asked() => return Ok(()),
                Sizing::Measure(micro_batch) => probes.push(self.probe(now.with_micro_batch(micro_batch))?),
            }
        };
        let mut measures = Measures { eval_micro_batch: micro_batch, ..now.with_micro_batch(micro_batch) };
        if self.requests.stop_asked() {
            return Ok(());
        }
        if self.has_room_for_whole_loss(measures)? {
            measures = Measures { loss_chunks: WHOLE, eval_loss_chunks: WHOLE, ..measures };
        }
        self.progress.guard.follow(measures);
        self.progress.is_sized = true;
        if probes.is_empty() && measures == now {
            return Ok(());
        }
        self.give_back()?;
        self.now.retries = self.memory.reading()?.retries;
        self.tell(Event::Sized { measures })
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
        if self.facts.device.is_cuda() { self.clean(self.progress.step) } else { Ok(()) }
    }

    fn probe(&mut self, measures: Measures) -> Result<Probe> {
        let begun = Instant::now();
        let micro_batch = measures.micro_batch;
        self.memory.reset_peaks()?;
        let resting = self.resting()?;
        // Two pieces: the second one finds the gradients of the first already there.
        let samples = micro_batch.get().saturating_mul(2).min(self.settings.train.batch);
        let probed = self.state.probe(self.progress.next_sample, samples, &measures);
        let reading = self.memory.reading()?;
        self.progress.figures.memory(&reading);
        let usage = match probed {
            Ok(()) => Some(Usage { resting, peak: reading.allocated_peak, line: self.memory.roof() }),
            Err(error) if error.is_oom() => None,
            Err(error) => return Err(error.into()),
        };
        let peak: Option<Bytes> = usage.map(|usage| usage.peak);
        self.tell(Event::Probed { micro_batch, peak, seconds: begun.elapsed().as_secs_f64() })?;
        if usage.is_none() {
            self.give_back()?;
        }
        Ok(Probe { micro_batch, usage })
    }
}
