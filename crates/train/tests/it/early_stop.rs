//! Runs that end because their evaluations get no better.

use std::path::Path;
use std::sync::atomic::Ordering;

use lowtide_core::{Event, Step};
use lowtide_settings::RunSettings;
use lowtide_train::{Outcome, Requests, RunEnding, Start, Summary};
use serde_json::Value;

use crate::kit::{Hooked, RunExtras, alone, curve, settings, train, train_with};

/// Up to 40 steps, evaluated after each, with so long strides that the loss goes up and down.
fn restless(patience: Option<u64>) -> RunSettings {
    let mut settings = settings();
    settings.train.steps = 40;
    (settings.eval.every, settings.eval.patience) = (Some(1), patience);
    settings.save.every = Some(3);
    (settings.optimizer.learning_rate, settings.optimizer.min_learning_rate) = (0.05, 0.05);
    settings
}

fn run(settings: &RunSettings, folder: &Path, begin: Start) -> (Outcome, Vec<Event>) {
    let curve = curve(16);
    let (outcome, events) = train(&curve, settings, folder, begin, || {});
    (outcome.unwrap(), events)
}

fn losses(events: &[Event]) -> Vec<f64> {
    let loss = |event: &Event| match event {
        Event::Evaluated { loss, .. } => Some(*loss),
        _ => None,
    };
    events.iter().filter_map(loss).collect()
}

/// The step at which patience runs out.
fn expected_end(losses: &[f64], patience: usize) -> usize {
    let is_best = |at: &usize| losses[..*at].iter().all(|loss| losses[*at] < *loss);
    let bests: Vec<usize> = (0..losses.len()).filter(is_best).collect();
    let gap = bests.windows(2).find(|pair| pair[1] - pair[0] > patience);
    gap.map_or(*bests.last().unwrap(), |pair| pair[0]) + patience + 1
}

#[test]
fn a_run_ends_when_patience_runs_out() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let (_, whole) = run(&restless(None), &folder.path().join("whole"), Start::New);
    let losses = losses(&whole);
    assert_eq!(losses.len(), 40);
    let end = expected_end(&losses, 3);
    assert!((6..40).contains(&end), "better and worse ones before the end: {losses:?}");

    let early = folder.path().join("early");
    let (outcome, events) = run(&restless(Some(3)), &early, Start::New);
    let Summary { stopped, steps, stopped_early_at, eval_loss, .. } = outcome.summary;
    assert_eq!((stopped, steps, stopped_early_at), (RunEnding::Finished, end as u64, Some(end as u64)));
    assert_eq!(eval_loss, Some(losses[end - 1]), "evaluated once at its last step");
    let best = losses[..end].iter().copied().reduce(f64::min);
    let told = Event::StoppedEarly { step: Step(end as u64), evaluations: 3, best };
    assert_eq!(events.iter().filter(|event| matches!(event, Event::StoppedEarly { .. })).collect::<Vec<_>>(), [&told]);
    let summary: Value = serde_json::from_str(&std::fs::read_to_string(early.join("summary.json")).unwrap()).unwrap();
    assert_eq!((&summary["stopped"], &summary["stopped_early_at"]), (&"finished".into(), &end.into()));
}

#[test]
fn a_run_that_ended_early_does_not_go_on_unless_patience_grows() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let first = run(&restless(Some(3)), folder.path(), Start::New).0.summary;
    let (again, events) = run(&restless(Some(3)), folder.path(), Start::Resume);
    assert_eq!(again.summary.stopped_early_at, first.stopped_early_at);
    assert_eq!(again.summary.weights_sha256, first.weights_sha256);
    assert_eq!(again.summary.eval_loss, first.eval_loss);
    assert!(!events.iter().any(|event| matches!(event, Event::StepDone { .. })));

    let on = run(&restless(None), folder.path(), Start::Resume).0.summary;
    let whole = tempfile::tempdir().unwrap();
    let whole = run(&restless(None), whole.path(), Start::New).0.summary;
    assert_eq!((on.steps, on.stopped_early_at), (40, None));
    assert_eq!(on.weights_sha256, whole.weights_sha256);
}

#[test]
fn patience_is_counted_over_all_starts() {
    let _alone = alone();
    let settings = restless(Some(3));
    let folder = tempfile::tempdir().unwrap();
    let whole = run(&settings, &folder.path().join("whole"), Start::New).0.summary;
    for first in 1..whole.steps {
        let path = folder.path().join(first.to_string());
        let mut short = restless(Some(3));
        short.train.steps = first;
        run(&short, &path, Start::New);
        let resumed = run(&settings, &path, Start::Resume).0.summary;
        assert_eq!(resumed.stopped_early_at, whole.stopped_early_at, "resumed after step {first}");
        assert_eq!(resumed.weights_sha256, whole.weights_sha256, "resumed after step {first}");
    }
}

#[test]
fn an_evaluation_that_was_cut_off_is_made_when_the_run_goes_on() {
    let _alone = alone();
    let mut settings = restless(Some(3));
    // Two batches, so that the run can be asked to end between them.
    settings.eval.batches = 2;
    let folder = tempfile::tempdir().unwrap();
    let (whole, events) = run(&settings, &folder.path().join("whole"), Start::New);
    let whole = whole.summary;
    for cut in 1..=whole.steps {
        let path = folder.path().join(cut.to_string());
        let requests = Requests::default();
        let batches = std::cell::Cell::new(0);
        let ask = || {
            batches.set(batches.get() + 1);
            if batches.get() == 2 * cut - 1 {
                requests.stop.store(true, Ordering::Relaxed);
            }
        };
        let hooked = Hooked { before_eval_batch: &ask, ..Hooked::new(curve(16)) };
        let extras = RunExtras { requests: requests.clone(), ..RunExtras::default() };
        let (first, before) = train_with(&hooked, &settings, &path, Start::New, extras);
        assert_eq!(first.unwrap().summary.stopped, RunEnding::Interrupted);
        let (resumed, after) = run(&settings, &path, Start::Resume);
        assert_eq!(resumed.summary.stopped_early_at, whole.stopped_early_at, "cut off at step {cut}");
        assert_eq!(resumed.summary.weights_sha256, whole.weights_sha256, "cut off at step {cut}");
        assert_eq!([losses(&before), losses(&after)].concat(), losses(&events), "cut off at step {cut}");
    }
}
