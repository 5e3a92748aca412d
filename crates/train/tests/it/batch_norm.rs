//! A model with batch statistics: a failure leaves its buffers alone, and its batches are never split.

use std::collections::BTreeMap;
use std::num::NonZeroU32;

use lowtide_core::{Ending, Event, MicroBatch, Phase, Rung, Step};
use lowtide_settings::{MicroBatchChoice, Recompute, RunSettings};
use lowtide_torch::rng;
use lowtide_torch::tch::{Device, Kind, Reduction, Tensor};
use lowtide_torch::{Segment, Shared};
use lowtide_train::{Batch, Injection, Mode, Outcome, Result, Start, Summary, Workload};

use crate::kit::{RunExtras, alone, curve, settings, train_with};

const PHASES: [Phase; 5] = [Phase::Forward, Phase::Backward, Phase::Optimizer, Phase::Eval, Phase::Save];
const WIDTH: i64 = 8;
const EVALUATION: u64 = 1 << 40;

/// A linear layer, BatchNorm and dropout, twice, then a linear layer to one number.
struct Normed {
    mode: Mode,
    tensors: BTreeMap<String, Tensor>,
    segments: Vec<Segment>,
}

/// A linear layer and what follows it, as one segment.
struct Block {
    weight: Tensor,
    scale: Tensor,
    shift: Tensor,
    mean: Tensor,
    variance: Tensor,
    mode: Mode,
}

impl Normed {
    fn new() -> Normed {
        let mode = Mode::default();
        let mut tensors = BTreeMap::new();
        let mut segments: Vec<Segment> = [("first", 1), ("second", WIDTH)]
            .map(|(name, inputs)| Block::segment(name, inputs, &mode, &mut tensors))
            .into();
        let last = Shared::new(parameter(&mut tensors, "last.weight", &[1, WIDTH]));
        segments.push(Segment::new(move |inputs| vec![inputs[0].linear::<Tensor>(&last, None)]));
        Normed { mode, tensors, segments }
    }
}

impl Block {
    fn segment(name: &str, inputs: i64, mode: &Mode, tensors: &mut BTreeMap<String, Tensor>) -> Segment {
        let mut buffer = |part: &str, value: f64| {
            let tensor = Tensor::full([WIDTH], value, (Kind::Float, Device::Cpu));
            tensors.insert(format!("{name}.{part}"), tensor.shallow_clone());
            tensor
        };
        let (mean, variance) = (buffer("mean", 0.0), buffer("variance", 1.0));
        let buffers = [mean.shallow_clone(), variance.shallow_clone()];
        let mut fresh = |part: &str, size: &[i64]| parameter(tensors, &format!("{name}.{part}"), size);
        let (weight, scale, shift) =
            (fresh("weight", &[WIDTH, inputs]), fresh("scale", &[WIDTH]), fresh("shift", &[WIDTH]));
        let block = Shared::new(Block { weight, scale, shift, mean, variance, mode: mode.clone() });
        Segment::new(move |inputs| vec![block.apply(&inputs[0])]).with_buffers(&buffers)
    }

    fn apply(&self, x: &Tensor) -> Tensor {
        let training = self.mode.is_training();
        let (scale, shift) = (Some(&self.scale), Some(&self.shift));
        let (mean, variance) = (Some(&self.mean), Some(&self.variance));
        x.linear::<Tensor>(&self.weight, None)
            .batch_norm(scale, shift, mean, variance, training, 0.1, 1e-5, false)
            .tanh()
            .dropout(0.2, training)
    }
}

fn parameter(tensors: &mut BTreeMap<String, Tensor>, name: &str, size: &[i64]) -> Tensor {
    let tensor = Tensor::randn(size, (Kind::Float, Device::Cpu)).set_requires_grad(true);
    tensors.insert(name.to_owned(), tensor.shallow_clone());
    tensor
}

impl Workload for Normed {
    fn name(&self) -> &str {
        "normed"
    }

    fn state(&self) -> BTreeMap<String, Tensor> {
        self.tensors.iter().map(|(name, tensor)| (name.clone(), tensor.shallow_clone())).collect()
    }

    fn parameter_groups(&self) -> Vec<(f64, Vec<(String, Tensor)>)> {
        vec![(1.0, self.state().into_iter().filter(|(_, tensor)| tensor.requires_grad()).collect())]
    }

    fn mode(&self) -> &Mode {
        &self.mode
    }

    fn segments(&self) -> &[Segment] {
        &self.segments
    }

    fn loss_sum(&self, outputs: &[Tensor], batch: &Batch, _chunks: NonZeroU32) -> Tensor {
        outputs[0].mse_loss(&batch.targets[0], Reduction::Sum)
    }

    fn train_batch(&self, first: u64, count: u32) -> Batch {
        let value = |number: u64| ((number as f64 * 0.618_033_988_75).fract() * 6.0 - 3.0) as f32;
        let values: Vec<f32> = (first..first + u64::from(count)).map(value).collect();
        let inputs = Tensor::from_slice(&values).unsqueeze(1);
        Batch { targets: vec![inputs.sin()], inputs: vec![inputs], targets_per_sample: 1 }
    }

    fn eval_batch(&self, first: u64, count: u32) -> Batch {
        self.train_batch(EVALUATION + first, count)
    }

    fn targets_per_sample(&self) -> u64 {
        1
    }

    fn splits(&self) -> bool {
        false
    }
}

/// An evaluation and a checkpoint after every step; the whole batch at once.
fn busy(recompute: Recompute) -> RunSettings {
    let mut settings = settings();
    settings.train.micro_batch = MicroBatchChoice::Samples(MicroBatch::new(settings.train.batch).unwrap());
    settings.train.recompute = recompute;
    (settings.eval.every, settings.save.every) = (Some(1), Some(1));
    settings
}

/// What came of a run: its end, its events, and the values of every buffer.
struct Came {
    outcome: Result<Outcome>,
    events: Vec<Event>,
    buffers: Vec<Vec<f32>>,
}

impl Came {
    fn summary(&self) -> &Summary {
        &self.outcome.as_ref().unwrap().summary
    }

    fn rungs(&self) -> Vec<Rung> {
        let rung = |event: &Event| match event {
            Event::RungTaken { rung, .. } => Some(*rung),
            _ => None,
        };
        self.events.iter().filter_map(rung).collect()
    }
}

fn run(settings: &RunSettings, injections: &[Injection]) -> Came {
    let folder = tempfile::tempdir().unwrap();
    // Opens the engine as all tests here do; its own parameters are not used.
    drop(curve(1));
    rng::seed(Device::Cpu, 1).unwrap();
    let normed = Normed::new();
    let extras = RunExtras { injections: injections.to_vec(), ..RunExtras::default() };
    let (outcome, events) = train_with(&normed, settings, folder.path(), Start::New, extras);
    let buffers = normed.tensors.values().filter(|tensor| !tensor.requires_grad());
    let buffers = buffers.map(|tensor| Vec::try_from(tensor).unwrap()).collect();
    Came { outcome, events, buffers }
}

#[track_caller]
fn same_numbers(came: &Came, undisturbed: &Came, place: &str) {
    let (summary, expect) = (came.summary(), undisturbed.summary());
    assert_eq!(came.buffers, undisturbed.buffers, "{place}");
    assert_eq!(summary.weights_sha256, expect.weights_sha256, "{place}");
    assert_eq!(summary.final_loss, expect.final_loss, "{place}");
    assert_eq!(summary.eval_loss, expect.eval_loss, "{place}");
}

#[test]
fn a_passing_failure_at_any_allocation_leaves_the_buffers_alone() {
    let _alone = alone();
    for recompute in [Recompute::Off, Recompute::On] {
        let settings = busy(recompute);
        let undisturbed = run(&settings, &[]);
        assert_eq!(undisturbed.buffers.len(), 4);
        assert!(undisturbed.buffers.iter().flatten().all(|value| *value != 0.0 && *value != 1.0), "they are in use");
        for phase in PHASES {
            let step = Step(2);
            let place = |alloc| format!("recompute {recompute:?}, allocation {alloc} in {phase}");
            for alloc in 1.. {
                let came = run(&settings, &[Injection { step, phase, times: 1, alloc, rank: 0 }]);
                same_numbers(&came, &undisturbed, &place(alloc));
                assert_eq!((came.summary().oom_errors, came.summary().oom_recovered), (1, 1), "{}", place(alloc));
                assert_eq!(came.rungs(), [Rung::Clean], "{}", place(alloc));
                // The count went on in the next step: this phase makes fewer allocations.
                let met = |event: &Event| matches!(event, Event::OutOfMemory { step: at, .. } if *at == step);
                if !came.events.iter().any(met) {
                    assert!(alloc > 1, "{phase}");
                    break;
                }
            }
        }
    }
}

#[test]
fn recompute_keeps_the_buffers() {
    let _alone = alone();
    same_numbers(&run(&busy(Recompute::On), &[]), &run(&busy(Recompute::Off), &[]), "recompute");
}

#[test]
fn recompute_taken_on_the_way_keeps_them_too() {
    let _alone = alone();
    let undisturbed = run(&busy(Recompute::Auto), &[]);
    for (times, levels) in [(2, 1), (3, 2)] {
        for phase in [Phase::Forward, Phase::Backward] {
            let came = run(&busy(Recompute::Auto), &[Injection { step: Step(2), phase, times, alloc: 3, rank: 0 }]);
            let mut expect = vec![Rung::Clean];
            expect.resize(1 + levels, Rung::Recompute);
            assert_eq!(came.rungs(), expect);
            same_numbers(&came, &undisturbed, &format!("{times} times in {phase}"));
        }
    }
}

#[test]
fn a_failure_that_stays_never_splits_the_batch() {
    let _alone = alone();
    for recompute in [Recompute::Off, Recompute::Auto, Recompute::On] {
        for phase in [Phase::Forward, Phase::Backward, Phase::Optimizer] {
            let came = run(&busy(recompute), &[Injection { step: Step(2), phase, times: 1000, alloc: 2, rank: 0 }]);
            let place = format!("recompute {recompute:?}, {phase}");
            let at_line = matches!(came.events.last(), Some(Event::Stopped { ending: Ending::Line { .. }, .. }));
            assert!(at_line, "{place}: {:?}", came.events.last());
            assert!(!came.rungs().contains(&Rung::Split), "{place}: {:?}", came.rungs());
            assert_eq!(came.summary().micro_batch_final, 8, "{place}");
            assert_eq!(came.summary().steps, 1, "{place}");
        }
    }
}
