//! What a run chooses before its first step, what it may do when all else fails, and errors while it loads.

use std::path::Path;

use lowtide_core::{Bytes, Event, LineSpec, MicroBatch, Phase, Rung};
use lowtide_settings::{MicroBatchChoice, Precision, RunSettings};
use lowtide_train::{Injection, Outcome, Result, RunEnding, Schedule, Start, Summary, TrainError};

use crate::kit::{RunExtras, alone, curve, settings, train_with};

fn run(settings: &RunSettings, folder: &Path, begin: Start, extras: RunExtras) -> (Result<Outcome>, Vec<Event>) {
    train_with(&curve(64), settings, folder, begin, extras)
}

fn told(injection: &str) -> RunExtras {
    RunExtras { injections: vec![injection.parse::<Injection>().unwrap()], ..RunExtras::default() }
}

/// A run in a folder of its own.
fn whole(settings: &RunSettings, extras: RunExtras) -> (Summary, Vec<Event>) {
    let folder = tempfile::tempdir().unwrap();
    let (outcome, events) = run(settings, folder.path(), Start::New, extras);
    (outcome.unwrap().summary, events)
}

/// The micro-batches that were tried out, and the one that was taken.
fn sized(events: &[Event]) -> (Vec<u32>, Option<u32>) {
    let probed = events.iter().filter_map(|event| match event {
        Event::Probed { micro_batch, .. } => Some(micro_batch.get()),
        _ => None,
    });
    let taken = events.iter().find_map(|event| match event {
        Event::Sized { measures } => Some(measures.micro_batch.get()),
        _ => None,
    });
    (probed.collect(), taken)
}

#[test]
fn trying_out_leaves_no_trace() {
    let _alone = alone();
    let mut named = settings();
    named.train.micro_batch = MicroBatchChoice::Samples(MicroBatch::new(8).unwrap());
    let (expect, events) = whole(&named, RunExtras::default());
    assert_eq!(sized(&events), (vec![], None));

    let (found, events) = whole(&settings(), RunExtras::default());
    assert_eq!(sized(&events), (vec![1], Some(8)));
    assert_eq!(found.weights_sha256, expect.weights_sha256);
    assert_eq!((found.final_loss, found.eval_loss), (expect.final_loss, expect.eval_loss));
}

#[test]
fn under_a_line_the_largest_that_fits_is_taken_and_nothing_fails() {
    let _alone = alone();
    let mut settings = settings();
    settings.train.batch = 4096;
    let (roomy, _) = whole(&settings, RunExtras::default());
    settings.memory.line = LineSpec::Size(Bytes(roomy.peak_allocated_bytes / 4));
    let (summary, events) = whole(&settings, RunExtras::default());
    let (probed, taken) = sized(&events);
    let taken = taken.unwrap();
    assert!(probed.ends_with(&[taken]) && (256..2048).contains(&taken), "{probed:?}, then {taken}");
    assert_eq!((summary.oom_errors, summary.samples_lost, summary.micro_batch_final), (0, 0, taken));
    assert!(summary.peak_allocated_bytes <= summary.line_bytes.unwrap());
}

#[test]
fn fp32_becomes_bf16_where_that_is_allowed_and_nothing_else_is_left() {
    let _alone = alone();
    // One cleaning, three splits, two levels of recompute.
    let persistent = "step=2,phase=backward,times=7";
    let mut settings = settings();
    let folder = tempfile::tempdir().unwrap();
    let (outcome, _) = run(&settings, folder.path(), Start::New, told(persistent));
    assert_eq!(outcome.unwrap().summary.stopped, RunEnding::Line, "it is not allowed unless it is asked for");

    settings.memory.narrow = true;
    let folder = tempfile::tempdir().unwrap();
    let (outcome, events) = run(&settings, folder.path(), Start::New, told(persistent));
    let narrow = outcome.unwrap().summary;
    assert_eq!((narrow.stopped, narrow.precision.as_str(), narrow.samples_lost), (RunEnding::Finished, "bf16", 0));
    let rungs: Vec<Rung> = events
        .iter()
        .filter_map(|event| if let Event::RungTaken { rung, .. } = event { Some(*rung) } else { None })
        .collect();
    use Rung::{Clean, Narrow, Recompute, Split};
    assert_eq!(rungs, [Clean, Split, Split, Split, Recompute, Recompute, Narrow]);

    let schedule = Some(Schedule::read(folder.path()).unwrap());
    let (followed, _) = whole(&settings, RunExtras { schedule, ..RunExtras::default() });
    assert_eq!(followed.weights_sha256, narrow.weights_sha256);
    assert_eq!((followed.precision.as_str(), followed.oom_errors), ("bf16", 0));
}

#[test]
fn memory_that_runs_out_while_loading_is_answered() {
    let _alone = alone();
    let settings = settings();
    let (expect, _) = whole(&settings, RunExtras::default());
    let folder = tempfile::tempdir().unwrap();
    let (outcome, _) = run(&settings, folder.path(), Start::New, told("step=3,phase=forward,times=1000"));
    assert_eq!(outcome.unwrap().summary.steps, 2);

    let (stopped, _) = run(&settings, folder.path(), Start::Resume, told("step=1,phase=load,times=1000"));
    let error = stopped.unwrap_err();
    assert!(matches!(error, TrainError::Line { .. }), "{error:?}");
    let words = "memory ran out in load of step 2, and nothing that is allowed is left to try";
    assert_eq!(error.to_string(), words);

    let (outcome, events) = run(&settings, folder.path(), Start::Resume, told("step=1,phase=load,times=2"));
    let summary = outcome.unwrap().summary;
    assert_eq!(summary.weights_sha256, expect.weights_sha256);
    assert_eq!((summary.samples_seen, summary.samples_lost), (32, 0));
    let of_loading = |event: &&Event| matches!(event, Event::OutOfMemory { phase: Phase::Load, .. });
    assert_eq!(events.iter().filter(of_loading).count(), 2);
}

#[test]
fn any_allocation_of_loading_may_fail() {
    let _alone = alone();
    let settings = settings();
    let (expect, _) = whole(&settings, RunExtras::default());
    let mut met = 0;
    for alloc in 1.. {
        let folder = tempfile::tempdir().unwrap();
        run(&settings, folder.path(), Start::New, told("step=3,phase=forward,times=1000")).0.unwrap();
        let load = told(&format!("step=1,phase=load,alloc={alloc}"));
        let (outcome, events) = run(&settings, folder.path(), Start::Resume, load);
        assert_eq!(outcome.unwrap().summary.weights_sha256, expect.weights_sha256, "allocation {alloc}");
        if !events.iter().any(|event| matches!(event, Event::OutOfMemory { .. })) {
            break;
        }
        met += 1;
    }
    assert!(met > 10, "only {met}");
}

#[test]
fn a_schedule_in_another_precision_is_refused() {
    let _alone = alone();
    let mut narrow = settings();
    narrow.memory.narrow = true;
    let folder = tempfile::tempdir().unwrap();
    run(&narrow, folder.path(), Start::New, told("step=2,phase=backward,times=7")).0.unwrap();
    let refused = |settings: &RunSettings| {
        let schedule = Some(Schedule::read(folder.path()).unwrap());
        let again = tempfile::tempdir().unwrap();
        let (outcome, _) = run(settings, again.path(), Start::New, RunExtras { schedule, ..RunExtras::default() });
        let error = outcome.unwrap_err();
        let text = error.to_string();
        (text[text.find("schedule.jsonl").unwrap()..].to_owned(), error.hint("lowtide").unwrap())
    };
    let (text, hint) = refused(&settings());
    assert_eq!(text, "schedule.jsonl: its step 2 was computed in bf16, and this run computes in fp32");
    assert_eq!(hint, "use --set memory.narrow=true, as the other run did");
    let mut base = settings();
    base.train.precision = Precision::Bf16;
    let (text, hint) = refused(&base);
    assert_eq!(text, "schedule.jsonl: its step 1 was computed in fp32, and this run computes in bf16");
    assert_eq!(hint, "use --set train.precision=fp32");
}
