//! What an evaluation finds, and what it holds meanwhile.

use std::cell::RefCell;

use lowtide_core::{Bytes, Event, Metrics, MicroBatch};
use lowtide_settings::{MicroBatchChoice, RunSettings};
use lowtide_torch::host;
use lowtide_torch::tch::{Kind, Reduction, Tensor};
use lowtide_train::{Batch, Metric, Outcome, RunEnding, Start, Tally};

use crate::kit::{FLOATS, Hooked, RunExtras, alone, curve, settings, train, train_with};

/// The loss again, and the sum of the outputs, in this order.
fn figures<'a>() -> Vec<Metric<'a>> {
    vec![
        Metric::mean("error", |outputs, batch| outputs[0].mse_loss(&batch.targets[0], Reduction::Sum)),
        Metric::mean("bias", |outputs, _| outputs[0].sum(Kind::Float)),
    ]
}

fn run(hooked: &Hooked<'_>, settings: &RunSettings) -> (Outcome, Vec<Event>) {
    let folder = tempfile::tempdir().unwrap();
    let (outcome, events) = train(hooked, settings, folder.path(), Start::New, || {});
    (outcome.unwrap(), events)
}

fn pieces_of(samples: u32) -> RunSettings {
    let mut settings = settings();
    settings.train.micro_batch = MicroBatchChoice::Samples(MicroBatch::new(samples).unwrap());
    settings.eval.batches = 3;
    settings
}

#[test]
fn metrics_are_means_over_all_samples_and_in_the_summary() {
    let _alone = alone();
    let hooked = Hooked { metrics: &figures, ..Hooked::new(curve(16)) };
    let (outcome, events) = run(&hooked, &pieces_of(8));
    let summary = outcome.summary;
    let names: Vec<&str> = summary.metrics.iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["error", "bias"], "as the workload orders them");
    // This model has one target a sample, so the loss is a mean over samples too.
    assert_eq!(summary.metrics.get("error"), summary.eval_loss);
    let told: Vec<&Metrics> = events
        .iter()
        .filter_map(|event| match event {
            Event::Evaluated { metrics, .. } => Some(metrics),
            _ => None,
        })
        .collect();
    assert_eq!(told.len(), 2);
    assert_eq!(told[1], &summary.metrics, "those of the last evaluation");
    assert_ne!(told[0], told[1]);
}

#[test]
fn memory_after_an_evaluation_is_told() {
    let _alone = alone();
    let (outcome, events) = run(&Hooked::new(curve(16)), &settings());
    let resting = events.iter().find_map(|event| match event {
        Event::StepDone { allocated, .. } => Some(*allocated),
        _ => None,
    });
    let evaluations = events.iter().filter_map(|event| match event {
        Event::Evaluated { allocated, reserved, .. } => Some((*allocated, *reserved)),
        _ => None,
    });
    assert_eq!(evaluations.collect::<Vec<_>>(), [(resting, resting); 2], "as after a step: nothing stays");
    assert_eq!(outcome.summary.idle_after_eval_bytes, Some(0), "the CPU caches nothing");

    let mut settings = settings();
    settings.eval.every = None;
    assert_eq!(run(&Hooked::new(curve(16)), &settings).0.summary.idle_after_eval_bytes, None);
}

#[test]
fn metrics_are_the_same_in_smaller_pieces() {
    let _alone = alone();
    // Nothing is learned, so that only the pieces of the evaluation differ.
    let metrics = |samples| {
        let hooked = Hooked { metrics: &figures, ..Hooked::new(curve(16)) };
        let mut settings = pieces_of(samples);
        (settings.optimizer.learning_rate, settings.optimizer.min_learning_rate) = (0.0, 0.0);
        run(&hooked, &settings).0.summary.metrics
    };
    let whole = metrics(8);
    for samples in [1, 3, 4] {
        for ((name, value), (_, expect)) in metrics(samples).iter().zip(whole.iter()) {
            assert!((value - expect).abs() < 1e-5, "{name} in pieces of {samples}: {value}, not {expect}");
        }
    }
}

/// Something of all targets, which no sum over a piece tells.
struct Of(fn(&mut Vec<f64>) -> f64, Vec<f64>);

impl Tally for Of {
    fn add(&mut self, _outputs: &[Tensor], batch: &Batch) {
        self.1.extend(Vec::<f64>::try_from(batch.targets[0].to_kind(Kind::Double).view([-1])).unwrap());
    }

    fn finish(mut self: Box<Self>) -> f64 {
        (self.0)(&mut self.1)
    }
}

/// The median of the targets, and how many there were.
fn of_targets<'a>() -> Vec<Metric<'a>> {
    let median = |targets: &mut Vec<f64>| {
        targets.sort_by(f64::total_cmp);
        targets[targets.len() / 2]
    };
    let count = |targets: &mut Vec<f64>| targets.len() as f64;
    vec![Metric::new("median", Of(median, Vec::new())), Metric::new("count", Of(count, Vec::new()))]
}

#[test]
fn a_tally_sees_every_sample_once() {
    let _alone = alone();
    let hooked = || Hooked { metrics: &of_targets, ..Hooked::new(curve(16)) };
    let whole = run(&hooked(), &pieces_of(8)).0.summary.metrics;
    assert_eq!(whole.get("count"), Some(24.0), "three batches, anew in each evaluation");
    assert_eq!(run(&hooked(), &pieces_of(3)).0.summary.metrics, whole);

    // The try that fails has taken in some pieces; the next one begins with nothing.
    let folder = tempfile::tempdir().unwrap();
    let extras = RunExtras { injections: vec!["step=4,phase=eval,alloc=40".parse().unwrap()], ..RunExtras::default() };
    let (outcome, events) = train_with(&hooked(), &pieces_of(3), folder.path(), Start::New, extras);
    assert!(events.iter().any(|event| matches!(event, Event::OutOfMemory { .. })));
    assert_eq!(outcome.unwrap().summary.metrics, whole);
}

#[test]
fn no_sample_is_evaluated_twice() {
    let _alone = alone();
    for (there_are, batches) in [(1, 1), (8, 1), (9, 2), (24, 3), (100, 3)] {
        let hooked = Hooked { metrics: &of_targets, eval_samples: Some(there_are), ..Hooked::new(curve(16)) };
        let (outcome, events) = run(&hooked, &pieces_of(3));
        assert_eq!(outcome.summary.metrics.get("count"), Some(there_are.min(24) as f64));
        let told = events.iter().find_map(|event| match event {
            Event::Evaluated { batches, .. } => Some(*batches),
            _ => None,
        });
        assert_eq!(told, Some(batches), "of {there_are}");
    }
}

#[test]
fn a_workload_without_metrics_has_none() {
    let _alone = alone();
    let summary = run(&Hooked::new(curve(16)), &settings()).0.summary;
    assert!(summary.eval_loss.is_some() && summary.metrics.is_empty());
    assert_eq!(serde_json::to_value(&summary).unwrap()["metrics"], serde_json::json!({}));
}

#[test]
fn a_metric_that_is_no_number_is_null_in_the_summary() {
    let _alone = alone();
    let endless = || vec![Metric::mean("endless", |_, _| Tensor::full([1], f64::INFINITY, FLOATS))];
    let summary = run(&Hooked { metrics: &endless, ..Hooked::new(curve(16)) }, &settings()).0.summary;
    assert_eq!(serde_json::to_value(&summary).unwrap()["metrics"], serde_json::json!({"endless": null}));
}

/// The loss again, and something that takes 4 MiB.
fn heavy<'a>() -> Vec<Metric<'a>> {
    let heavy = Metric::mean("heavy", |_, _| Tensor::zeros([1 << 20], FLOATS).sum(Kind::Float));
    let mut metrics = figures();
    metrics.insert(1, heavy);
    metrics
}

#[test]
fn a_metric_that_does_not_fit_is_missing_and_the_others_stand() {
    let _alone = alone();
    let mut settings = settings();
    settings.memory.line = "1MiB".parse().unwrap();
    let (outcome, events) = run(&Hooked { metrics: &heavy, ..Hooked::new(curve(16)) }, &settings);
    let summary = outcome.summary;
    assert_eq!((summary.stopped, summary.steps, summary.micro_batch_final), (RunEnding::Finished, 4, 8));
    let names: Vec<&str> = summary.metrics.iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["error", "bias"]);
    assert_eq!(summary.metrics.get("error"), summary.eval_loss);
    assert!(summary.oom_errors > summary.oom_recovered);
    let reason = &summary.metrics_missing["heavy"];
    assert!(reason.starts_with("memory ran out: 4.00 MiB were asked for"), "{reason}");
    let told = |event: &Event| matches!(event, Event::MetricMissing { metric, .. } if metric == "heavy");
    assert_eq!(events.iter().filter(|event| told(event)).count(), 2);

    // Who does not ask for it does not miss it.
    settings.eval.metrics = Some(vec!["loss".to_owned(), "bias".to_owned()]);
    let (outcome, events) = run(&Hooked { metrics: &heavy, ..Hooked::new(curve(16)) }, &settings);
    let names: Vec<&str> = outcome.summary.metrics.iter().map(|(name, _)| name).collect();
    assert_eq!((names, outcome.summary.metrics_missing.len()), (vec!["bias"], 0));
    assert_eq!(events.iter().filter(|event| matches!(event, Event::OutOfMemory { .. })).count(), 0);
}

#[test]
fn an_evaluation_that_is_given_up_is_without_all_its_figures() {
    let _alone = alone();
    let mut settings = settings();
    settings.memory.line = "1MiB".parse().unwrap();
    let hooked = Hooked {
        before_eval_batch: &|| drop(Tensor::zeros([1 << 20], FLOATS)),
        metrics: &figures,
        ..Hooked::new(curve(16))
    };
    let (outcome, events) = run(&hooked, &settings);
    let summary = outcome.summary;
    assert_eq!((summary.stopped, summary.eval_loss, summary.metrics.is_empty()), (RunEnding::Finished, None, true));
    let missing: Vec<&String> = summary.metrics_missing.keys().collect();
    assert_eq!(missing, ["bias", "error", "loss"]);
    assert_eq!(events.iter().filter(|event| matches!(event, Event::EvaluationFailed { .. })).count(), 2);
}

#[test]
fn a_metric_that_is_not_there_is_refused() {
    let _alone = alone();
    let mut settings = settings();
    settings.eval.metrics = Some(vec!["bias".to_owned(), "eror".to_owned()]);
    let folder = tempfile::tempdir().unwrap();
    let hooked = Hooked { metrics: &figures, ..Hooked::new(curve(16)) };
    let problem = train(&hooked, &settings, folder.path(), Start::New, || {}).0.unwrap_err();
    assert_eq!(problem.to_string(), "eval.metrics: `curve` has no metric `eror`: there are loss, error, bias");
    assert!(problem.is_users());
}

/// What the allocator says at each piece of the first evaluation, when its loss was computed: bytes in use, and the
/// most since the evaluation began.
fn held_in_evaluation(batches: u64, pieces: u32) -> Vec<(Bytes, Bytes)> {
    let seen = RefCell::new(Vec::new());
    let watching = || {
        vec![Metric::mean("seen", |_, _| {
            seen.borrow_mut().push((host::stats().allocated, host::stats().peak));
            Tensor::from(0.0)
        })]
    };
    let hooked = Hooked {
        before_eval_batch: &|| {
            if seen.borrow().is_empty() {
                host::reset_peak();
            }
        },
        metrics: &watching,
        // Wide, so that what the layers make is far more than what the samples are.
        ..Hooked::new(curve(4096))
    };
    let mut settings = pieces_of(8 / pieces);
    (settings.train.steps, settings.eval.every, settings.eval.batches) = (1, Some(1), batches);
    run(&hooked, &settings);
    seen.take()
}

#[test]
fn no_tensor_of_one_piece_lives_into_the_next() {
    let _alone = alone();
    for pieces in [1, 4] {
        let one = held_in_evaluation(1, pieces);
        let eight = held_in_evaluation(8, pieces);
        assert_eq!((one.len(), eight.len()), (pieces as usize, 8 * pieces as usize));
        assert_eq!(eight.last().unwrap().1, one.last().unwrap().1, "the peak of eight batches is that of one");
        assert!(eight.iter().all(|(allocated, _)| *allocated == one[0].0), "{eight:?}");
        assert_eq!(one.last().unwrap().1, one[0].1, "the peak of all pieces is that of the first");
    }
}
