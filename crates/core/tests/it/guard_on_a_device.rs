//! The guard in a small simulated run: a step fails where it needs more than the line.

use lowtide_core::{
    Action, Bytes, Guard, Ladder, Limits, Line, Measures, MicroBatch, Offer, Phase, Signal, Step, Stop, Usage, pieces,
};
use proptest::prelude::*;

use crate::kit::{micro_batch, offers, starts};

/// What a model needs, in bytes; every measure makes it need less or the same.
#[derive(Debug, Clone, Copy)]
struct Model {
    parameters: u64,
    optimizer: u64,
    activations_per_sample: u64,
    logits_per_sample: u64,
}

impl Model {
    fn resting(&self, measures: Measures) -> u64 {
        self.parameters + self.optimizer / (1 + u64::from(measures.spill) + u64::from(measures.shard))
    }

    /// The peak of forward and backward.
    fn compute(&self, measures: Measures) -> u64 {
        let kept = 1 + u64::from(measures.recompute) + u64::from(measures.spill);
        let activations = self.activations_per_sample / kept;
        let logits = self.logits_per_sample / u64::from(measures.loss_chunks.get());
        let sample = (activations + logits) / (1 + u64::from(measures.narrow));
        self.resting(measures) + sample * u64::from(measures.micro_batch.get())
    }

    fn update(&self, measures: Measures) -> u64 {
        self.resting(measures) + self.parameters / 4
    }

    fn eval(&self, measures: Measures) -> u64 {
        let logits = self.logits_per_sample / u64::from(measures.eval_loss_chunks.get());
        self.resting(measures) + logits * u64::from(measures.eval_micro_batch.get())
    }

    fn worst(&self, measures: Measures) -> u64 {
        self.compute(measures).max(self.update(measures)).max(self.eval(measures))
    }
}

fn models() -> impl Strategy<Value = Model> {
    (1..2000_u64, 0..4000_u64, 0..2000_u64, 0..2000_u64).prop_map(|(parameters, optimizer, activations, logits)| {
        Model { parameters, optimizer, activations_per_sample: activations, logits_per_sample: logits }
    })
}

/// The measures at the end of the ladder.
fn lowest(offer: Offer, start: Measures) -> Measures {
    Measures {
        micro_batch: if offer.split { MicroBatch::ONE } else { start.micro_batch },
        loss_chunks: offer.loss_chunks,
        recompute: offer.recompute_levels,
        shard: offer.shard,
        spill: offer.spill_levels,
        narrow: offer.narrow,
        eval_micro_batch: MicroBatch::ONE,
        eval_loss_chunks: offer.loss_chunks,
    }
}

/// A run: a batch of samples a step, an evaluation after each step.
struct Run {
    guard: Guard,
    model: Model,
    line: u64,
    batch: u32,
    samples: u64,
    committed: Vec<Step>,
    /// Tries that fail although they would fit, as if another program had taken the memory for a moment.
    squeezes: Vec<bool>,
}

impl Run {
    fn fits(&mut self, need: u64) -> bool {
        let squeezed = self.squeezes.pop().unwrap_or(false);
        !squeezed && need <= self.line
    }

    fn first_failure(&mut self) -> Option<Phase> {
        let measures = self.guard.measures();
        if !self.fits(self.model.compute(measures)) {
            return Some(Phase::Backward);
        }
        (!self.fits(self.model.update(measures))).then_some(Phase::Optimizer)
    }

    /// Tells the guard of a failure; its last answer, if it gives up.
    fn failed(&mut self, step: Step, phase: Phase) -> Result<(), Stop> {
        match self.guard.on(Signal::Failed { step, phase }) {
            Action::Stop(stop) => Err(stop),
            _ => Ok(()),
        }
    }

    fn train(&mut self, step: Step) -> Result<(), Stop> {
        while let Some(phase) = self.first_failure() {
            self.failed(step, phase)?;
        }
        let measures = self.guard.measures();
        self.samples += pieces(self.batch, measures.micro_batch).map(u64::from).sum::<u64>();
        self.committed.push(step);
        let usage = Usage {
            resting: Bytes(self.model.resting(measures)),
            peak: Bytes(self.model.compute(measures)),
            line: Line::at(Bytes(self.line)).expect("not 0"),
        };
        let _ = self.guard.on(Signal::Committed { step, usage });
        Ok(())
    }

    fn evaluate(&mut self, step: Step) -> Result<(), Stop> {
        let before = self.guard.measures().micro_batch;
        let mut need = self.model.eval(self.guard.measures());
        while !self.fits(need) {
            self.failed(step, Phase::Eval)?;
            need = self.model.eval(self.guard.measures());
        }
        assert_eq!(self.guard.measures().micro_batch, before, "evaluation changed the training micro-batch");
        let _ = self.guard.on(Signal::Evaluated);
        Ok(())
    }

    fn all(&mut self, steps: u64) -> Result<(), Stop> {
        for step in (1..=steps).map(Step) {
            self.train(step)?;
            self.evaluate(step)?;
        }
        Ok(())
    }
}

const STEPS: u64 = 150;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn if_anything_allowed_fits_the_run_finishes(
        offer in offers(), start in starts(), model in models(), spare in 0..3000_u64, batch in 1..200_u32,
    ) {
        let lowest = lowest(offer, start);
        let line = model.worst(lowest) + spare;
        let limits = Limits { climb_after: 3, ..Limits::default() };
        let guard = Guard::new(Ladder { offer, limits }, start, micro_batch(batch));
        let mut run = Run { guard, model, line, batch, samples: 0, committed: Vec::new(), squeezes: Vec::new() };
        let ended = run.all(STEPS);
        prop_assert!(ended.is_ok(), "{} fits, but {:?}", lowest, ended);
        prop_assert_eq!(run.samples, STEPS * u64::from(batch), "samples were lost or seen twice");
        prop_assert_eq!(&run.committed, &(1..=STEPS).map(Step).collect::<Vec<_>>());
        // Down the whole ladder once, and at most two failures for each micro-batch on the way up.
        prop_assert!(run.guard.failures() < 64, "{} failures", run.guard.failures());
    }

    #[test]
    fn squeezes_never_lose_a_sample(
        offer in offers(), start in starts(), model in models(), spare in 0..3000_u64, batch in 1..200_u32,
        squeezes in prop::collection::vec(prop::bool::weighted(0.1), 400),
    ) {
        let line = model.worst(lowest(offer, start)) + spare;
        let limits = Limits { climb_after: 3, ..Limits::default() };
        let guard = Guard::new(Ladder { offer, limits }, start, micro_batch(batch));
        let mut run = Run { guard, model, line, batch, samples: 0, committed: Vec::new(), squeezes };
        let ended = run.all(STEPS);
        let committed = run.committed.len() as u64;
        prop_assert_eq!(run.samples, committed * u64::from(batch), "samples were lost or seen twice");
        prop_assert_eq!(&run.committed, &(1..=committed).map(Step).collect::<Vec<_>>());
        prop_assert!(ended.is_err() || committed == STEPS);
    }
}

#[test]
fn a_run_with_room_to_spare_never_asks() {
    let model = Model { parameters: 10, optimizer: 20, activations_per_sample: 5, logits_per_sample: 5 };
    let start = Measures::new(micro_batch(8), micro_batch(8));
    let guard = Guard::new(Ladder::default(), start, micro_batch(8));
    let mut run = Run { guard, model, line: 10_000, batch: 8, samples: 0, committed: Vec::new(), squeezes: Vec::new() };
    assert_eq!(run.all(STEPS), Ok(()));
    assert_eq!(run.guard.failures(), 0);
    assert_eq!(run.guard.measures(), start);
}
