//! The metrics of the workloads, as whole runs tell of them.

use lowtide_core::Metrics;
use lowtide_testkit::alone;
use lowtide_train::Summary;

use crate::kit::{self, shipped};

/// Trains a shipped configuration, changed by `overrides`, on one thread of the CPU.
fn train(name: &str, overrides: &[&str]) -> Summary {
    kit::train(&shipped(name, overrides)).unwrap().0
}

fn names(metrics: &Metrics) -> Vec<&str> {
    metrics.iter().map(|(name, _)| name).collect()
}

/// Whether an automaton is acceptable, by the bounds of [`lowtide_workloads::qca::Metrics::is_acceptable`].
fn is_acceptable(metrics: &Metrics) -> bool {
    let below = |name, bound| metrics.get(name).unwrap() < bound;
    below("survival", 1.0) && below("symmetry", 0.5) && below("activity", 0.5)
}

#[test]
fn the_metrics_of_qca_are_the_terms_of_its_loss() {
    let _alone = alone();
    let short = ["train.steps=3", "eval.batches=2", "model.qca_steps=5"];
    let summary = train("qca-tiny", &short);
    assert_eq!(names(&summary.metrics), ["survival", "symmetry", "activity"]);
    let sum: f64 = summary.metrics.iter().map(|(_, value)| value).sum();
    assert!((sum - summary.eval_loss.unwrap()).abs() < 1e-6, "{summary:?}");

    let summary = train("qca-tiny", &[&short[..], &["model.symmetry=false"]].concat());
    assert_eq!(names(&summary.metrics), ["survival", "activity"], "no turned episode is run");
    let sum: f64 = summary.metrics.iter().map(|(_, value)| value).sum();
    assert!((sum - summary.eval_loss.unwrap()).abs() < 1e-6, "{summary:?}");
}

#[test]
fn training_qca_tiny_makes_an_acceptable_automaton() {
    let _alone = alone();
    let untrained = train("qca-tiny", &["train.steps=1", "optimizer.learning_rate=0", "optimizer.min_learning_rate=0"]);
    assert!(!is_acceptable(&untrained.metrics), "{}", untrained.metrics);
    let trained = train("qca-tiny", &[]);
    assert!(is_acceptable(&trained.metrics), "{}", trained.metrics);
}

#[test]
fn gpt_has_no_metrics() {
    let _alone = alone();
    let summary = train("gpt-tiny", &["train.steps=1", "train.batch=2", "eval.batches=1"]);
    assert!(summary.eval_loss.is_some() && summary.metrics.is_empty(), "{summary:?}");
}
