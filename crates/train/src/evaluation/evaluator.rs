//! The evaluator: tries until there are figures, or until nothing is left to try.
//!
//! A metric can be missing by itself. Each is an attempt of its own, so it is known which one memory ran out in. It is
//! answered like any failure of the evaluation; when nothing is left to try, that metric is left out and the evaluation
//! is made without it. The loss cannot be left out: the best checkpoint and `eval.patience` go by it.

use std::time::Instant;

use lowtide_core::{Bytes, Ending, Event, Phase, Rung, RungAttempt, Step, Stop, StopCause};
use lowtide_settings::{CropChoice, RunSettings, TileChoice};
use lowtide_torch::cuda::AllocatorReading;

use super::eval_pass::{EvalPass, EvalTry, batches, expected_part};
use super::figures::{
    EvalFigures, EvalMode, EvalSummary, LOSS, LastEvaluation, MissingFigures, check_metrics, reason, selected_metrics,
};
use super::tiles;
use crate::error::Result;
use crate::memory::{Moment, Recovery};
use crate::ranks::{RankFailure, Team};
use crate::requests::Requests;
use crate::step::Model;
use crate::workload::{PartOf, Workload};

/// Evaluates a model as the settings ask for it, under training or by itself.
pub(crate) struct Evaluator<'a> {
    settings: &'a RunSettings,
    requests: &'a Requests,
    workload: &'a dyn Workload,
    /// The last evaluation.
    pub(crate) last: LastEvaluation,
    /// Pixels along each side of the tiles that frames are evaluated in.
    tile: Option<u32>,
    /// The last evaluation that was given up: after which step, and why.
    given_up: Option<Stop>,
    /// The most that was taken from the device and not in use after an evaluation.
    pub(crate) most_idle: Option<Bytes>,
}

/// How an evaluation ended.
#[derive(Clone, Debug, PartialEq)]
#[must_use = "an evaluation may end the run"]
pub(crate) enum EvalOutcome {
    /// With its figures.
    Complete,
    /// Without: it does not fit under the line. Training goes on.
    GivenUp(Stop),
    /// The run was asked to end meanwhile; the evaluation is made again when the run goes on.
    Interrupted,
    /// By memory that ran out, with nobody to answer: the run ends.
    Line(Stop),
}

impl EvalOutcome {
    /// How it ends the run, where it does.
    pub(crate) fn ending(self) -> Option<Ending> {
        match self {
            EvalOutcome::Complete | EvalOutcome::GivenUp(_) => None,
            EvalOutcome::Interrupted => Some(Ending::Interrupted),
            EvalOutcome::Line(stop) => Some(Ending::Line { stop }),
        }
    }
}

impl<'a> Evaluator<'a> {
    /// Refuses settings of an evaluation that the workload cannot have.
    pub(crate) fn check(settings: &RunSettings, workload: &dyn Workload) -> Result<()> {
        tiles::check(&settings.eval, workload)?;
        check_metrics(&settings.eval, workload)
    }

    /// What one of several ranks will ask of the samples to evaluate on.
    pub(crate) fn expected_part(settings: &RunSettings, workload: &dyn Workload, team: &Team) -> PartOf {
        expected_part(settings, workload, team)
    }

    /// Goes on from the last evaluation of an earlier start.
    pub(crate) fn new(
        settings: &'a RunSettings,
        requests: &'a Requests,
        workload: &'a dyn Workload,
        last: LastEvaluation,
    ) -> Evaluator<'a> {
        let tile = workload.tiling().ok().and_then(|tiling| tiling.first(settings.eval.tile, last.found_tile));
        Evaluator { settings, requests, workload, last, tile, given_up: None, most_idle: None }
    }

    /// The figures of the evaluation after this step, where there are any.
    pub(crate) fn figures_of(&self, step: Step) -> Option<&EvalFigures> {
        self.last.figures.as_ref().filter(|figures| figures.step == step)
    }

    /// Whether there was an evaluation after this step: by any start, or one that this start gave up.
    pub(crate) fn has_evaluated(&self, step: Step) -> bool {
        self.figures_of(step).is_some() || self.given_up.as_ref().is_some_and(|stop| stop.step == step)
    }

    /// What the summary tells of the last evaluation, of frames.
    pub(crate) fn summary(&self) -> Option<EvalSummary> {
        let _tiling = self.workload.tiling().ok()?;
        let figures = self.last.figures.as_ref()?;
        let mode = match (figures.tile, self.settings.eval.crop) {
            (Some(_), _) => EvalMode::Tile,
            (None, CropChoice::Whole) => EvalMode::Whole,
            (None, CropChoice::Auto | CropChoice::Pixels(_)) => EvalMode::Crop,
        };
        Some(EvalSummary {
            mode,
            approximate: figures.approximate,
            tile: figures.tile,
            peak_bytes: figures.peak.get(),
            metrics: figures.metrics.clone(),
            missing: self.last.missing.clone(),
        })
    }

    /// Evaluates the model as it is after a step. Training's state and random numbers stay as they are.
    ///
    /// A figure that cannot be computed under the line is left out, and so is an evaluation whose loss cannot be.
    pub(crate) fn evaluate(
        &mut self,
        step: Step,
        model: &Model<'_>,
        recovery: &mut Recovery<'_>,
    ) -> Result<EvalOutcome> {
        let begun = Instant::now();
        let before = recovery.memory.reading()?;
        recovery.figures.note(&before);
        let AllocatorReading { allocated, reserved, .. } = before;
        recovery.clean_if_due(step, Moment::BeforeEvaluation { allocated, reserved })?;
        recovery.memory.reset_peaks()?;
        let mut left_out = MissingFigures::new();
        let mut is_cleaned = false;
        loop {
            let mut releases = Vec::new();
            let pass = EvalPass {
                settings: self.settings,
                requests: self.requests,
                team: recovery.team,
                model,
                memory: &recovery.memory,
                measures: recovery.guard.measures(),
                tile: self.tile,
                left_out: &left_out,
            };
            let tried = pass.run(step, &recovery.injector, &mut releases)?;
            releases.into_iter().try_for_each(|event| recovery.tell(event))?;
            let failures = match tried {
                EvalTry::Stopped => return Ok(EvalOutcome::Interrupted),
                EvalTry::Done(figures) => {
                    self.last.missing = left_out;
                    self.complete(figures, begun, recovery)?;
                    return Ok(EvalOutcome::Complete);
                }
                EvalTry::Failed(failures) => failures,
            };
            let first = failures.first().expect("somebody failed");
            let (reason, metric) = (reason(&first.error), first.metric.clone());
            let Some(stop) = self.failed(step, &failures, &mut is_cleaned, recovery)? else { continue };
            match metric {
                Some(metric) if !recovery.guard.has_stopped() => {
                    left_out.insert(metric.clone(), reason.clone());
                    recovery.tell(Event::MetricMissing { step, metric, reason })?;
                }
                _ => return self.give_up(step, stop, recovery),
            }
        }
    }

    /// Takes in the figures and tells of them.
    fn complete(&mut self, figures: EvalFigures, begun: Instant, recovery: &mut Recovery<'_>) -> Result<()> {
        let reading = recovery.memory.reading()?;
        let EvalFigures { step, loss, metrics, approximate, .. } = figures.clone();
        self.last.figures = Some(EvalFigures { peak: reading.allocated_peak, ..figures });
        recovery.recovered();
        recovery.figures.note(&reading);
        recovery.evaluated(step)?;
        let left = self.clean_up(step, recovery)?;
        recovery.tell(Event::Evaluated {
            step,
            loss,
            metrics,
            batches: batches(self.settings, self.workload.eval_samples()),
            seconds: begun.elapsed().as_secs_f64(),
            allocated: Some(left.allocated),
            reserved: Some(left.reserved),
            approximate,
        })
    }

    /// Goes on without the figures of this evaluation; without recovery, the run ends.
    fn give_up(&mut self, step: Step, stop: Stop, recovery: &mut Recovery<'_>) -> Result<EvalOutcome> {
        self.clean_up(step, recovery)?;
        let metrics = selected_metrics(&self.settings.eval, self.workload, &MissingFigures::new());
        let names = [LOSS].into_iter().chain(metrics.iter().map(|metric| metric.name));
        self.last.missing = names.map(|name| (name.to_owned(), stop.to_string())).collect();
        self.last.figures = None;
        self.given_up = Some(stop.clone());
        if recovery.guard.has_stopped() {
            return Ok(EvalOutcome::Line(stop));
        }
        recovery.tell(Event::EvaluationFailed { step, stop: stop.clone() })?;
        Ok(EvalOutcome::GivenUp(stop))
    }

    /// Answers a try that failed; `Some` where there is to be no other one.
    ///
    /// Memory that ran out in tiles is answered by smaller ones where the size is left to the run, else by one more try,
    /// which `is_cleaned` remembers.
    /// The guard has nothing to do with that: what it can do makes pieces of a batch smaller, and a tile is one piece.
    fn failed(
        &mut self,
        step: Step,
        failures: &[RankFailure],
        is_cleaned: &mut bool,
        recovery: &mut Recovery<'_>,
    ) -> Result<Option<Stop>> {
        let Some(tile) = self.tile.filter(|_| self.settings.memory.recover) else {
            return recovery.failed(step, failures);
        };
        recovery.note_failures(step, failures)?;
        recovery.clean(step)?;
        recovery.memory.reset_peaks()?;
        let smaller = self.workload.tiling().ok().and_then(|tiling| tiling.smaller(tile));
        // A figure is computed of the whole frame, whatever the tile.
        let is_in_metric = failures.iter().all(|failure| failure.metric.is_some());
        let may_choose = self.settings.eval.tile == TileChoice::Auto && !is_in_metric;
        if let Some(tile) = smaller.filter(|_| may_choose) {
            (self.tile, self.last.found_tile) = (Some(tile), Some(tile));
            recovery.tell(Event::TileHalved { step, tile })?;
            return Ok(None);
        }
        if !std::mem::replace(is_cleaned, true) {
            return Ok(None);
        }
        recovery.forget_open_errors();
        let (phase, measures) = (Phase::Eval, recovery.guard.measures());
        let cause = StopCause::TileTooLarge { tile, smaller };
        Ok(Some(Stop { step, phase, cause, measures, tried: vec![RungAttempt { phase, rung: Rung::Clean, measures }] }))
    }

    /// Cleans where that is due after an evaluation, and notes what is left then.
    fn clean_up(&mut self, step: Step, recovery: &mut Recovery<'_>) -> Result<AllocatorReading> {
        let AllocatorReading { allocated, reserved, .. } = recovery.memory.reading()?;
        recovery.clean_if_due(step, Moment::AfterEvaluation { allocated, reserved })?;
        let left = recovery.memory.reading()?;
        let idle = left.reserved.saturating_sub(left.allocated);
        self.most_idle = self.most_idle.max(Some(idle));
        Ok(left)
    }
}
