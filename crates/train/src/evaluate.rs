//! Evaluation: the loss on other samples, without touching what training holds.

use std::time::Instant;

use lowtide_core::{Event, Phase, Signal, pieces};
use lowtide_torch::tch::no_grad_guard;
use lowtide_torch::{TorchError, attempt, rng};

use crate::cleaning::{Cleaned, Moment, is_due};
use crate::error::Result;
use crate::run::Run;

impl Run<'_> {
    /// Evaluates, trying again as the guard says. Training's state and random numbers stay as they are.
    ///
    /// An evaluation that cannot be done under the line is left out: its figure is missing and training goes on.
    pub(crate) fn evaluate(&mut self) -> Result<()> {
        let step = self.progress.step;
        let begun = Instant::now();
        self.now.evaluated = None;
        self.clean_if_due(step, Moment::BeforeEvaluation)?;
        loop {
            let mut cleanings = Vec::new();
            let loss = self.state.injector.during(step, Phase::Eval, || self.eval_loss(&mut cleanings));
            for cleaned in cleanings {
                self.tell(cleaned.event(step))?;
            }
            match loss {
                Ok(None) => return Ok(()),
                Ok(Some(loss)) => {
                    self.now.evaluated = Some((step, loss));
                    self.recovered();
                    self.progress.figures.memory(&self.memory.reading()?);
                    let answer = self.progress.guard.on(Signal::Evaluated);
                    self.carry_out(step, answer)?;
                    let batches = self.settings.eval.batches;
                    return self.tell(Event::Evaluated { step, loss, batches, seconds: begun.elapsed().as_secs_f64() });
                }
                Err(error) => {
                    if let Some(stop) = self.failed(step, Phase::Eval, error)? {
                        return self.tell(Event::EvaluationFailed { step, stop });
                    }
                }
            }
        }
    }

    /// The mean loss over all batches; `None` where the run was asked to end meanwhile.
    fn eval_loss(&self, cleanings: &mut Vec<Cleaned>) -> Result<Option<f64>, TorchError> {
        let before = attempt(|| rng::state(self.state.device)).and_then(|state| state)?;
        let loss = self.mean_loss(cleanings);
        rng::set_state(self.state.device, &before)?;
        loss
    }

    fn mean_loss(&self, cleanings: &mut Vec<Cleaned>) -> Result<Option<f64>, TorchError> {
        let batch = self.settings.train.batch;
        let mut sum = 0.0;
        let mut targets = 0;
        for index in 0..self.settings.eval.batches {
            if self.requests.stop_asked() {
                return Ok(None);
            }
            let (loss, count) = attempt(|| self.batch_loss(index * u64::from(batch), batch))?;
            sum += loss;
            targets += count;
            let moment = Moment::InEvaluation { batches: index + 1 };
            if is_due(self.settings.memory.clean, moment, self.progress.step, None) {
                cleanings.push(self.memory.timed_clean()?);
            }
        }
        Ok(Some(sum / targets as f64))
    }

    /// The summed loss of one batch, and its targets.
    fn batch_loss(&self, first: u64, count: u32) -> (f64, u64) {
        let _no_grad = no_grad_guard();
        let _evaluating = self.state.workload.mode().evaluate();
        let samples = self.state.workload.eval_batch(first, count);
        let mut start = 0;
        let mut sum = 0.0;
        let measures = self.measures();
        let way = self.state.evaluation_way(&measures);
        for size in pieces(count, measures.eval_micro_batch) {
            sum += self.state.loss(&samples.piece(start, size), way).double_value(&[]);
            start += size;
        }
        (sum, samples.target_count())
    }
}
