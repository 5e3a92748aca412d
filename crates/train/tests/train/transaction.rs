//! A step happens as a whole or not at all, whatever fails in it.

use std::collections::BTreeMap;
use std::num::NonZeroU32;

use lowtide_core::{Event, Rung};
use lowtide_torch::tch::{Device, Kind, Tensor};
use lowtide_torch::{Segment, host};
use lowtide_train::{Batch, Mode, Start, Summary, Workload};

use crate::kit::{Curve, alone, curve, settings, train};

/// A whole run in which the allocations `nth .. nth + times` fail.
fn run_with_failures(nth: u64, times: u64) -> Summary {
    let folder = tempfile::tempdir().unwrap();
    let curve = curve(16);
    let (outcome, _) = train(&curve, &settings(), folder.path(), Start::New, || host::fail_nth(nth, times));
    host::fail_nth(1, 0);
    outcome.unwrap_or_else(|error| panic!("allocation {nth}: {error}")).summary
}

#[test]
fn any_allocation_may_fail_once_and_the_weights_are_the_same() {
    let _alone = alone();
    let undisturbed = run_with_failures(1, 0);
    let mut met = 0;
    for nth in 1.. {
        let summary = run_with_failures(nth, 1);
        assert_eq!(summary.weights_sha256, undisturbed.weights_sha256, "allocation {nth}");
        assert_eq!(summary.final_loss, undisturbed.final_loss, "allocation {nth}");
        assert_eq!((summary.samples_seen, summary.samples_lost, summary.micro_batch_final), (32, 0, 8));
        assert_eq!(summary.oom_recovered, summary.oom_errors, "allocation {nth}");
        if summary.oom_errors == 0 {
            break;
        }
        met += 1;
    }
    assert!(met > 100, "only {met} allocations");
}

#[test]
fn failures_that_stay_a_while_split_the_batch_and_keep_the_numbers() {
    let _alone = alone();
    let undisturbed = run_with_failures(1, 0);
    for nth in (1..120).step_by(17) {
        let summary = run_with_failures(nth, 3);
        assert_eq!((summary.samples_seen, summary.samples_lost), (32, 0));
        assert_eq!((summary.oom_errors, summary.oom_recovered), (3, 3));
        // Other pieces draw other dropout, so the losses are only alike.
        let (loss, expect) = (summary.final_loss.unwrap(), undisturbed.final_loss.unwrap());
        assert!((loss - expect).abs() < 0.3 * expect, "{loss} and {expect}");
    }
}

/// A model whose evaluation needs far more than its training.
struct HeavyEvaluation(Curve);

impl Workload for HeavyEvaluation {
    fn name(&self) -> &str {
        self.0.name()
    }
    fn state(&self) -> BTreeMap<String, Tensor> {
        self.0.state()
    }
    fn parameter_groups(&self) -> Vec<(f64, Vec<(String, Tensor)>)> {
        self.0.parameter_groups()
    }
    fn mode(&self) -> &Mode {
        self.0.mode()
    }
    fn segments(&self) -> &[Segment] {
        self.0.segments()
    }
    fn loss_sum(&self, outputs: &[Tensor], batch: &Batch, chunks: NonZeroU32) -> Tensor {
        self.0.loss_sum(outputs, batch, chunks)
    }
    fn train_batch(&self, first: u64, count: u32) -> Batch {
        self.0.train_batch(first, count)
    }
    fn eval_batch(&self, first: u64, count: u32) -> Batch {
        let _ballast = Tensor::zeros([1 << 20], (Kind::Float, Device::Cpu));
        self.0.eval_batch(first, count)
    }
    fn targets_per_sample(&self) -> u64 {
        self.0.targets_per_sample()
    }
}

#[test]
fn an_evaluation_that_does_not_fit_costs_its_figure_only() {
    let _alone = alone();
    let mut settings = settings();
    settings.memory.line = "1MiB".parse().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let heavy = HeavyEvaluation(curve(16));
    let (outcome, events) = train(&heavy, &settings, folder.path(), Start::New, || {});
    let summary = outcome.unwrap().summary;
    assert_eq!((summary.stopped, summary.steps, summary.eval_loss), ("finished", 4, None));
    assert_eq!(summary.micro_batch_final, 8, "training is left alone");
    let failed: Vec<u64> = events
        .iter()
        .filter_map(|event| match event {
            Event::EvaluationFailed { step, .. } => Some(step.get()),
            _ => None,
        })
        .collect();
    assert_eq!(failed, [2, 4]);
    let rungs = events.iter().filter(|event| matches!(event, Event::RungTaken { rung: Rung::Split, .. })).count();
    assert_eq!(rungs, 3, "8 to 1, once");

    settings.eval.every = None;
    let folder = tempfile::tempdir().unwrap();
    let curve = curve(16);
    let (outcome, _) = train(&curve, &settings, folder.path(), Start::New, || {});
    assert_eq!(outcome.unwrap().summary.weights_sha256, summary.weights_sha256);
}
