//! `core::Guard`, as Python asks it.

use lowtide_core::{
    Action, Bytes, Event, Guard, Ladder, Limits, Line, Measures, MicroBatch, Offer, Percent, Phase, Signal, Step, Usage,
};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use serde::{Deserialize, Serialize};

/// Hears what happened and says what to do next.
#[pyclass(module = "lowtide._native")]
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Decider {
    guard: Guard,
}

/// What to do next.
#[pyclass(module = "lowtide._native", frozen, get_all)]
#[derive(Debug)]
pub(crate) struct Answer {
    /// continue, clean, retry, climb, give_up or stop.
    kind: &'static str,
    /// The event that tells of it, as JSON; none where there is nothing to tell.
    event: Option<String>,
    /// Why it gives up, and what was tried.
    words: Option<String>,
}

#[pymethods]
impl Decider {
    /// Starts with micro-batches of this size and climbs up to it.
    #[new]
    #[pyo3(signature = (micro_batch, eval_micro_batch, *, ceiling, split, recompute_levels, spill_levels, climb_after, has_net=false))]
    #[expect(clippy::too_many_arguments, reason = "Python gives all but two by name")]
    fn new(
        micro_batch: u32,
        eval_micro_batch: u32,
        ceiling: u32,
        split: bool,
        recompute_levels: u32,
        spill_levels: u32,
        climb_after: u32,
        has_net: bool,
    ) -> PyResult<Self> {
        let offer = Offer { split, recompute_levels, spill_levels, ..Offer::default() };
        let mut limits = Limits { climb_after, ..Limits::default() };
        if has_net {
            // A larger micro-batch that does not fit after all is slow for a step, and ends nothing.
            limits.climb_margin = Percent::from_hundredths(1).expect("0.01 % is in range");
        }
        let start = Measures::new(samples(micro_batch)?, samples(eval_micro_batch)?);
        Ok(Self { guard: Guard::new(Ladder { offer, limits }, start, samples(ceiling)?) })
    }

    /// One as it was when `dump` wrote it down.
    #[staticmethod]
    fn load(text: &str) -> PyResult<Self> {
        serde_json::from_str(text).map_err(|error| PyValueError::new_err(format!("no state of a guard: {error}")))
    }

    /// All that it knows, as JSON.
    fn dump(&self) -> String {
        serde_json::to_string(self).expect("plain numbers and texts")
    }

    /// Samples that training computes at once.
    #[getter]
    fn micro_batch(&self) -> u32 {
        self.guard.measures().micro_batch.get()
    }

    /// Samples that evaluation computes at once.
    #[getter]
    fn eval_micro_batch(&self) -> u32 {
        self.guard.measures().eval_micro_batch.get()
    }

    /// How much is recomputed; 0 is nothing.
    #[getter]
    fn recompute(&self) -> u32 {
        self.guard.measures().recompute
    }

    /// How much is kept in host memory; 0 is nothing.
    #[getter]
    fn spill(&self) -> u32 {
        self.guard.measures().spill
    }

    /// Failures so far.
    #[getter]
    fn failures(&self) -> u64 {
        self.guard.failures()
    }

    /// The measures in force, in words.
    fn words(&self) -> String {
        self.guard.measures().in_phase(Phase::Forward)
    }

    /// A larger batch came than any before: where nothing was made smaller yet, it is computed at once too.
    fn raise_ceiling(&mut self, ceiling: u32) -> PyResult<()> {
        self.guard.raise_ceiling(samples(ceiling)?);
        Ok(())
    }

    /// A batch of evaluation came that is larger than any before.
    fn raise_eval(&mut self, samples_at_once: u32) -> PyResult<()> {
        self.guard.raise_eval(samples(samples_at_once)?);
        Ok(())
    }

    /// Puts these measures in force from outside, as a schedule has them.
    fn follow(&mut self, micro_batch: u32, recompute: u32, spill: u32) -> PyResult<()> {
        let measures = Measures { recompute, spill, ..self.guard.measures() };
        self.guard.follow(measures.with_micro_batch(samples(micro_batch)?));
        Ok(())
    }

    /// Memory ran out in a phase of a step.
    fn failed(&mut self, step: u64, phase: &str) -> PyResult<Answer> {
        let phase: Phase =
            phase.parse().map_err(|error: lowtide_core::Error| PyValueError::new_err(error.to_string()))?;
        Ok(Answer::of(self.guard.on(Signal::Failed { step: Step(step), phase }), Step(step)))
    }

    /// A step was committed.
    #[pyo3(signature = (step, resting, peak, limit))]
    fn committed(&mut self, step: u64, resting: u64, peak: u64, limit: Option<u64>) -> PyResult<Answer> {
        let line = limit.map_or(Ok(Line::NONE), |limit| Line::at(Bytes(limit)));
        let line = line.map_err(|error| PyValueError::new_err(error.to_string()))?;
        let usage = Usage { resting: Bytes(resting), peak: Bytes(peak), line };
        Ok(Answer::of(self.guard.on(Signal::Committed { step: Step(step), usage }), Step(step)))
    }

    /// Work was done, but needed more than the device had, which was `limit`: the rest lay in the reserve.
    fn overflowed(&mut self, step: u64, phase: &str, resting: u64, peak: u64, limit: u64) -> PyResult<Answer> {
        let phase: Phase =
            phase.parse().map_err(|error: lowtide_core::Error| PyValueError::new_err(error.to_string()))?;
        let line = Line::at(Bytes(limit)).map_err(|error| PyValueError::new_err(error.to_string()))?;
        let usage = Usage { resting: Bytes(resting), peak: Bytes(peak), line };
        Ok(Answer::of(self.guard.on(Signal::Overflowed { step: Step(step), phase, usage }), Step(step)))
    }

    /// An evaluation ran to its end.
    fn evaluated(&mut self, step: u64) -> Answer {
        Answer::of(self.guard.on(Signal::Evaluated), Step(step))
    }

    /// The allocator had to empty its cache to serve a request.
    fn retries_rose(&mut self, step: u64) -> Answer {
        Answer::of(self.guard.on(Signal::RetriesRose), Step(step))
    }
}

impl Answer {
    fn of(action: Action, step: Step) -> Self {
        let (kind, event, stop) = match action {
            Action::Continue => ("continue", None, None),
            Action::Clean { .. } => ("clean", None, None),
            Action::Retry { rung, measures, reason } => {
                ("retry", Some(Event::RungTaken { step, rung, measures, reason }), None)
            }
            Action::Climb { measures, reason } => ("climb", Some(Event::Climbed { step, measures, reason }), None),
            Action::GiveUp(stop) => {
                let event = Event::EvaluationFailed { step, stop: stop.clone() };
                ("give_up", Some(event), Some(stop))
            }
            Action::Stop(stop) => {
                let ending = lowtide_core::Ending::Line { stop: stop.clone() };
                ("stop", Some(Event::Stopped { step, ending }), Some(stop))
            }
        };
        let json = |event: &Event| serde_json::to_string(event).expect("plain numbers and texts");
        Self { kind, event: event.as_ref().map(json), words: stop.map(|stop| stop.to_string()) }
    }
}

fn samples(number: u32) -> PyResult<MicroBatch> {
    MicroBatch::new(number).ok_or_else(|| PyValueError::new_err("a micro-batch has at least one sample"))
}
