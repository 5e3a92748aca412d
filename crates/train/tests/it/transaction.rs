//! A step happens as a whole or not at all, whatever fails in it.

use lowtide_core::{Event, Rung};
use lowtide_torch::host;
use lowtide_torch::tch::Tensor;
use lowtide_train::{RunEnding, Start, Summary};

use crate::kit::{FLOATS, Hooked, alone, curve, settings, train};

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

#[test]
fn an_evaluation_that_does_not_fit_costs_its_figure_only() {
    let _alone = alone();
    let mut settings = settings();
    settings.memory.line = "1MiB".parse().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let heavy = Hooked { before_eval_batch: &|| drop(Tensor::zeros([1 << 20], FLOATS)), ..Hooked::new(curve(16)) };
    let (outcome, events) = train(&heavy, &settings, folder.path(), Start::New, || {});
    let summary = outcome.unwrap().summary;
    assert_eq!((summary.stopped, summary.steps, summary.eval_loss), (RunEnding::Finished, 4, None));
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
