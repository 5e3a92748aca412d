//! Errors on demand, many of them: each is recovered from, or the run ends with a checkpoint that goes on.

use std::path::Path;

use lowtide_core::{Ending, Event};
use lowtide_settings::{RunSettings, SaveSettings};
use lowtide_train::{Injection, Outcome, Result, RunEnding, Schedule, Start, Summary};

use crate::kit::{RunExtras, alone, curve, settings, train_with};

/// Evaluates and saves after every step.
fn busy() -> RunSettings {
    let mut settings = settings();
    settings.eval.every = Some(1);
    settings.save.every = Some(1);
    settings
}

fn run(folder: &Path, begin: Start, extras: RunExtras) -> (Result<Outcome>, Vec<Event>) {
    run_with(&busy(), folder, begin, extras)
}

fn run_with(settings: &RunSettings, folder: &Path, begin: Start, extras: RunExtras) -> (Result<Outcome>, Vec<Event>) {
    train_with(&curve(16), settings, folder, begin, extras)
}

/// A run in a folder of its own.
fn summary(injections: &[Injection]) -> Summary {
    let folder = tempfile::tempdir().unwrap();
    let extras = RunExtras { injections: injections.to_vec(), ..RunExtras::default() };
    run(folder.path(), Start::New, extras).0.unwrap().summary
}

fn injection(text: &str) -> Injection {
    text.parse().unwrap()
}

/// One failure in each phase of each step, as many as cleaning alone answers: 13 in all.
fn every_phase(turn: u64) -> Vec<Injection> {
    // No more than a phase has, or the count would go on in the next step.
    let (few, two) = (1 + turn % 4, 1 + turn % 2);
    let mut all = Vec::new();
    for step in 1..=4 {
        let compute = if (step + turn).is_multiple_of(2) { "forward" } else { "backward" };
        all.push(injection(&format!("step={step},phase={compute},alloc={few}")));
        all.push(injection(&format!("step={step},phase=eval,alloc={few}")));
        all.push(injection(&format!("step={step},phase=save,alloc={two}")));
    }
    // Last, since four steps in a row are as many as cleaning alone answers in forward and backward.
    all.push(injection(&format!("step=4,phase=optimizer,alloc={two}")));
    all
}

#[test]
fn a_thousand_errors_leave_no_trace() {
    let _alone = alone();
    let undisturbed = summary(&[]);
    assert_eq!(undisturbed.oom_errors, 0);
    let mut met = 0;
    for turn in 0..80 {
        let disturbed = summary(&every_phase(turn));
        assert_eq!(disturbed.weights_sha256, undisturbed.weights_sha256, "turn {turn}");
        assert_eq!(disturbed.final_loss, undisturbed.final_loss, "turn {turn}");
        assert_eq!(disturbed.eval_loss, undisturbed.eval_loss, "turn {turn}");
        assert_eq!((disturbed.oom_errors, disturbed.oom_recovered), (13, 13), "turn {turn}");
        assert_eq!((disturbed.samples_seen, disturbed.samples_lost, disturbed.micro_batch_final), (32, 0, 8));
        met += disturbed.oom_errors;
    }
    assert!(met >= 1000, "only {met}");
}

#[test]
fn an_error_that_stays_ends_the_run_and_a_resume_ends_it_well() {
    let _alone = alone();
    let undisturbed = summary(&[]);
    for phase in ["forward", "backward", "optimizer", "save"] {
        for step in 1..=4 {
            let folder = tempfile::tempdir().unwrap();
            let injections = vec![injection(&format!("step={step},phase={phase},times=1000"))];
            let (outcome, events) = run(folder.path(), Start::New, RunExtras { injections, ..RunExtras::default() });
            let at_line = matches!(events.last(), Some(Event::Stopped { ending: Ending::Line { .. }, .. }));
            assert!(at_line, "{phase} of step {step}: {:?}", events.last());
            if phase == "save" {
                outcome.expect_err("there is no newer checkpoint to tell of");
            } else {
                assert_eq!(outcome.unwrap().summary.steps, step - 1);
            }
            let resumed = run(folder.path(), Start::Resume, RunExtras::default()).0.unwrap().summary;
            assert_eq!(resumed.weights_sha256, undisturbed.weights_sha256, "{phase} of step {step}");
            assert_eq!((resumed.samples_seen, resumed.samples_lost), (32, 0));
        }
    }
}

#[test]
fn the_checkpoint_that_is_written_at_the_line_holds_the_last_committed_state() {
    let _alone = alone();
    let undisturbed = summary(&[]);
    let settings = RunSettings { save: SaveSettings { every: None, ..busy().save }, ..busy() };
    for phase in ["forward", "backward", "optimizer"] {
        let folder = tempfile::tempdir().unwrap();
        let injections = vec![injection(&format!("step=3,phase={phase},times=1000"))];
        let (outcome, _) =
            run_with(&settings, folder.path(), Start::New, RunExtras { injections, ..RunExtras::default() });
        let outcome = outcome.unwrap();
        assert!(outcome.checkpoint.ends_with("00000002"), "{}", outcome.checkpoint.display());
        let resumed = run_with(&settings, folder.path(), Start::Resume, RunExtras::default()).0.unwrap().summary;
        assert_eq!(resumed.weights_sha256, undisturbed.weights_sha256, "{phase}");
        assert_eq!((resumed.samples_seen, resumed.samples_lost), (32, 0));
    }
}

#[test]
fn an_evaluation_that_always_fails_costs_its_figures_only() {
    let _alone = alone();
    let disturbed = summary(&[injection("step=1,phase=eval,times=1000")]);
    assert_eq!((disturbed.stopped, disturbed.eval_loss), (RunEnding::Finished, None));
    assert_eq!(disturbed.weights_sha256, summary(&[]).weights_sha256);
}

#[test]
fn a_run_that_had_to_split_is_made_again_from_its_schedule() {
    let _alone = alone();
    for (step, times) in [(1, 2), (2, 2), (3, 3), (2, 6)] {
        for phase in ["forward", "backward"] {
            let split = tempfile::tempdir().unwrap();
            let injections = vec![injection(&format!("step={step},phase={phase},times={times}"))];
            let (outcome, _) = run(split.path(), Start::New, RunExtras { injections, ..RunExtras::default() });
            let outcome = outcome.unwrap().summary;
            assert!(outcome.micro_batch_final < 8);
            assert_eq!(outcome.samples_lost, 0);

            let again = tempfile::tempdir().unwrap();
            let extras = RunExtras { schedule: Some(Schedule::read(split.path()).unwrap()), ..RunExtras::default() };
            let followed = run(again.path(), Start::New, extras).0.unwrap().summary;
            assert_eq!((followed.oom_errors, followed.samples_lost), (0, 0));
            assert_eq!(followed.weights_sha256, outcome.weights_sha256, "{times} times in {phase} of step {step}");
            let text = |folder: &Path| std::fs::read_to_string(folder.join("schedule.jsonl")).unwrap();
            assert_eq!(text(again.path()), text(split.path()));
        }
    }
}

#[test]
fn whoever_follows_a_schedule_is_still_guarded() {
    let _alone = alone();
    let first = tempfile::tempdir().unwrap();
    run(first.path(), Start::New, RunExtras::default()).0.unwrap();
    let schedule = Some(Schedule::read(first.path()).unwrap());
    for (times, micro_batch) in [(1, 8), (2, 4)] {
        let again = tempfile::tempdir().unwrap();
        let injections = vec![injection(&format!("step=2,phase=backward,times={times}"))];
        let summary =
            run(again.path(), Start::New, RunExtras { injections, schedule: schedule.clone(), ..RunExtras::default() })
                .0
                .unwrap()
                .summary;
        assert_eq!((summary.micro_batch_final, summary.samples_lost), (micro_batch, 0));
    }
}
