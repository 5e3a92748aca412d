//! Cleaning by the clock, as the events tell of it.

use lowtide_core::Event;
use lowtide_settings::Clean;
use lowtide_train::Start;

use crate::kit::{alone, curve, settings, train};

/// The steps at which a run of 20 steps cleans, with its hash.
fn cleaned(clean: Clean) -> (Vec<u64>, String) {
    let mut settings = settings();
    settings.memory.clean = clean;
    settings.train.steps = 20;
    (settings.eval.every, settings.eval.batches) = (Some(8), 10);
    settings.save.every = Some(15);
    let folder = tempfile::tempdir().unwrap();
    let curve = curve(16);
    let (outcome, events) = train(&curve, &settings, folder.path(), Start::New, || {});
    let steps = events.iter().filter_map(|event| match event {
        Event::Cleaned { step, .. } => Some(step.get()),
        _ => None,
    });
    (steps.collect(), outcome.unwrap().summary.weights_sha256)
}

#[test]
fn the_clock_cleans_and_changes_no_number() {
    let _alone = alone();
    let (steps, hash) = cleaned(Clean::Clock);
    let first_checkpoint = [0];
    let evaluation = |step| [step; 3];
    let expect = [
        first_checkpoint.to_vec(),
        evaluation(8).to_vec(),
        vec![10, 15],
        evaluation(16).to_vec(),
        // In the step, in the loop, the last evaluation, the last checkpoint.
        vec![20, 20],
        evaluation(20).to_vec(),
        vec![20],
    ];
    assert_eq!(steps, expect.concat());
    assert_eq!(cleaned(Clean::Auto), (Vec::new(), hash.clone()), "nothing is cached on the CPU");
    assert_eq!(cleaned(Clean::Never), (Vec::new(), hash));
}
