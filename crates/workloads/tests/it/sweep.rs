//! Failures on demand in all workloads, at many allocations of every phase: nothing of them is left in the numbers.

use std::path::Path;

use lowtide_core::{Ending, Event, Phase, Step};
use lowtide_settings::RunSettings;
use lowtide_testkit::alone;
use lowtide_torch::rng;
use lowtide_train::{Injection, Outcome, Result, RunEnding, Schedule, Start, Summary};
use lowtide_workloads::CATALOGUE;

use crate::kit::{Disturbance, open, train_in};

const PHASES: [Phase; 5] = [Phase::Forward, Phase::Backward, Phase::Optimizer, Phase::Eval, Phase::Save];
const STEPS: u64 = 3;

/// A workload so small that a run of three steps takes a fraction of a second.
struct Tiny {
    name: &'static str,
    text: &'static str,
    batch: u64,
    /// Allocations that each of [`PHASES`] makes at least, for positions to be chosen from.
    allocations: [u64; 5],
}

/// Dropout draws random numbers, so a step that is made again must draw the same ones.
const GPT: Tiny = Tiny {
    name: "gpt",
    text: "workload: gpt\nmodel: {n_layer: 2, n_head: 2, n_embd: 16, block_size: 8, dropout: 0.2}",
    batch: 4,
    allocations: [120, 90, 30, 55, 1],
};

const QCA: Tiny = Tiny {
    name: "qca, unet_unitary",
    text: "workload: qca\nmodel: {operator: unet_unitary, d_state: 1, hidden_channels: 2, grid_size: 8, qca_steps: 2, \
           segment_steps: 1}",
    batch: 2,
    allocations: [240, 800, 32, 250, 1],
};

const QCA_WITH_MEMORY: Tiny = Tiny {
    name: "qca, unet_convlstm",
    text: "workload: qca\nmodel: {operator: unet_convlstm, d_state: 1, hidden_channels: 2, grid_size: 8, qca_steps: 2, \
           segment_steps: 1}",
    batch: 2,
    allocations: [270, 880, 34, 285, 1],
};

/// The model of the three that has all the layers of the others and draws random numbers of its own.
const SCORING: Tiny = Tiny {
    name: "scoring, gvae",
    text: "workload: scoring\ndata: {count: 40}\nmodel: {run: [gvae], lstm_hidden: 4, lstm_layers: 2, graph_hidden: 4, \
           head_hidden: 4, dropout: 0.2, gvae: {latent: 3}}",
    batch: 4,
    allocations: [90, 90, 25, 60, 1],
};

const WORKLOADS: [Tiny; 4] = [GPT, QCA, QCA_WITH_MEMORY, SCORING];

/// What a run is given beside its settings.
#[derive(Default)]
struct RunExtras {
    injections: Vec<Injection>,
    schedule: Option<Schedule>,
    save: Save,
}

/// When a run saves.
#[derive(Clone, Copy, Default)]
enum Save {
    #[default]
    EveryStep,
    /// Where it starts and ends, so that an end at the line has to write its own checkpoint.
    AtItsEnds,
}

impl RunExtras {
    fn to_fail(injections: Vec<Injection>) -> RunExtras {
        RunExtras { injections, ..RunExtras::default() }
    }
}

impl Tiny {
    /// Trains in `folder`, with an evaluation after every step.
    fn train(&self, folder: &Path, begin: Start, extras: RunExtras) -> (Result<Outcome>, Vec<Event>) {
        let RunExtras { injections, schedule, save } = extras;
        let save = match save {
            Save::EveryStep => "1",
            Save::AtItsEnds => "null",
        };
        let facts = open();
        let (text, batch) = (self.text, self.batch);
        let text = format!(
            "{text}\ntrain: {{steps: {STEPS}, batch: {batch}, micro_batch: {batch}}}\n\
             optimizer: {{learning_rate: 0.01, min_learning_rate: 0.01, warmup_steps: 0}}\n\
             eval: {{every: 1, batches: 1}}\nsave: {{every: {save}}}\n"
        );
        let loaded = RunSettings::load(Some((Path::new("tiny.yaml"), &text)), &[]).unwrap();
        rng::seed(facts.device, loaded.settings.seed).unwrap();
        let built = CATALOGUE.build(&loaded, &facts).unwrap();
        let disturbance = Disturbance { injections, schedule };
        train_in(folder, begin, &*built.workload, &built.settings, &facts, disturbance)
    }

    /// A run in a folder of its own, to a good end.
    fn run(&self, extras: RunExtras) -> (Summary, Vec<Event>) {
        let folder = tempfile::tempdir().unwrap();
        let (outcome, events) = self.train(folder.path(), Start::New, extras);
        (outcome.unwrap().summary, events)
    }

    /// One of the allocations of a phase; another one for each number.
    fn allocation(&self, phase: Phase, number: u64) -> u64 {
        let most = PHASES.iter().zip(self.allocations).find(|(other, _)| **other == phase).unwrap().1;
        // A prime that divides none of the counts, so that all positions have their turn.
        1 + number * 7919 % most
    }

    fn undisturbed(&self) -> Summary {
        let (summary, _) = self.run(RunExtras::default());
        assert_eq!((summary.oom_errors, summary.samples_seen), (0, STEPS * self.batch));
        summary
    }
}

/// The phase and step of every failure that a run told of.
fn failures(events: &[Event]) -> Vec<(Phase, Step)> {
    let failure = |event: &Event| match event {
        Event::OutOfMemory { step, phase, .. } => Some((*phase, *step)),
        _ => None,
    };
    events.iter().filter_map(failure).collect()
}

#[track_caller]
fn same_numbers(summary: &Summary, undisturbed: &Summary, place: &str) {
    assert_eq!(summary.weights_sha256, undisturbed.weights_sha256, "{place}");
    assert_eq!(summary.final_loss, undisturbed.final_loss, "{place}");
    assert_eq!(summary.eval_loss, undisturbed.eval_loss, "{place}");
    assert_eq!((summary.samples_seen, summary.samples_lost), (undisturbed.samples_seen, 0), "{place}");
}

/// Fails the allocations of a phase in step 2 one after the other, each in a run of its own, as long as the phase has
/// one; the failures met.
fn every_allocation(tiny: &Tiny, phase: Phase, undisturbed: &Summary) -> u64 {
    let step = Step(2);
    let mut met = 0;
    for alloc in 1.. {
        let place = format!("{}: allocation {alloc} in {phase}", tiny.name);
        let (summary, events) = tiny.run(RunExtras::to_fail(vec![Injection { step, phase, times: 1, alloc, rank: 0 }]));
        same_numbers(&summary, undisturbed, &place);
        assert_eq!((summary.oom_errors, summary.oom_recovered), (1, 1), "{place}");
        met += summary.oom_errors;
        // The count went on in the next step: this phase makes fewer allocations.
        if failures(&events) != [(phase, step)] {
            break;
        }
    }
    met
}

/// Failures in all phases of all steps, as many as cleaning alone answers.
fn everywhere(tiny: &Tiny, turn: u64) -> Vec<Injection> {
    let mut all = Vec::new();
    for step in 1..=STEPS {
        let mut fail = |phase, times| {
            let alloc = tiny.allocation(phase, turn * STEPS + step);
            all.push(Injection { step: Step(step), phase, times, alloc, rank: 0 });
        };
        // One of the two in a step: a second failure would split the batch.
        fail(if (step + turn).is_multiple_of(2) { Phase::Forward } else { Phase::Backward }, 1);
        if step == 1 + turn % STEPS {
            fail(Phase::Optimizer, 1);
        }
        fail(Phase::Eval, 1);
        fail(Phase::Save, 1 + (turn + step) % 3);
    }
    all
}

/// Whole runs with failures everywhere; the failures met.
fn many_at_once(tiny: &Tiny, turn: u64, undisturbed: &Summary) -> u64 {
    let injections = everywhere(tiny, turn);
    let mut told: Vec<_> = injections
        .iter()
        .flat_map(|told| std::iter::repeat_n((told.phase, told.step), usize::try_from(told.times).unwrap()))
        .collect();
    let place = format!("{}, turn {turn}", tiny.name);
    let (summary, events) = tiny.run(RunExtras::to_fail(injections));
    same_numbers(&summary, undisturbed, &place);
    assert_eq!(u64::from(summary.micro_batch_final), tiny.batch, "{place}");
    assert_eq!(summary.oom_recovered, summary.oom_errors, "{place}");
    let mut met = failures(&events);
    met.sort();
    told.sort();
    assert_eq!(met, told, "{place}");
    summary.oom_errors
}

#[test]
fn a_thousand_passing_failures_leave_no_trace() {
    let _alone = alone();
    let mut met = 0;
    for tiny in WORKLOADS {
        let undisturbed = tiny.undisturbed();
        met += (0..20).map(|turn| many_at_once(&tiny, turn, &undisturbed)).sum::<u64>();
    }
    let undisturbed = GPT.undisturbed();
    met += PHASES.map(|phase| every_allocation(&GPT, phase, &undisturbed)).iter().sum::<u64>();
    assert!(met >= 1000, "only {met}");
}

/// A run that meets a failure which stays, and its resume without it.
fn fails_for_good(tiny: &Tiny, told: Injection, undisturbed: &Summary) {
    let place = format!("{}: allocation {} in {} of step {}", tiny.name, told.alloc, told.phase, told.step);
    let folder = tempfile::tempdir().unwrap();
    let save = if told.phase == Phase::Save { Save::EveryStep } else { Save::AtItsEnds };
    let failing = RunExtras { save, ..RunExtras::to_fail(vec![told]) };
    let (outcome, events) = tiny.train(folder.path(), Start::New, failing);
    if told.phase == Phase::Eval {
        // Figures are missing, and the run is none the worse for it.
        let summary = outcome.unwrap().summary;
        assert_eq!((summary.stopped, summary.eval_loss), (RunEnding::Finished, None), "{place}");
        assert_eq!(summary.weights_sha256, undisturbed.weights_sha256, "{place}");
    } else {
        let at_line = matches!(events.last(), Some(Event::Stopped { ending: Ending::Line { .. }, .. }));
        assert!(at_line, "{place}: {:?}", events.last());
        assert!(failures(&events).iter().all(|failure| *failure == (told.phase, told.step)), "{place}");
    }
    let (resumed, _) = tiny.train(folder.path(), Start::Resume, RunExtras { save, ..RunExtras::default() });
    let resumed = resumed.unwrap().summary;
    // An evaluation that failed is computed in smaller pieces from then on, which only changes rounding.
    let (found, expect) = (resumed.eval_loss.unwrap(), undisturbed.eval_loss.unwrap());
    assert!((found - expect).abs() < 1e-5 * expect.abs(), "{place}: {found} is not {expect}");
    assert!(told.phase == Phase::Eval || found == expect, "{place}: {found} is not {expect}");
    same_numbers(&Summary { eval_loss: undisturbed.eval_loss, ..resumed }, undisturbed, &place);
}

#[test]
fn a_failure_that_stays_ends_the_run_and_a_resume_ends_it_well() {
    let _alone = alone();
    for tiny in WORKLOADS {
        let undisturbed = tiny.undisturbed();
        for phase in PHASES {
            for (step, alloc) in [(Step(1), 1), (Step(3), tiny.allocation(phase, 3))] {
                fails_for_good(&tiny, Injection { step, phase, times: 1000, alloc, rank: 0 }, &undisturbed);
            }
        }
    }
}

#[test]
fn a_run_that_had_to_split_is_made_again_from_its_schedule() {
    let _alone = alone();
    for tiny in WORKLOADS {
        for (step, times, phase) in
            [(1, 2, Phase::Forward), (2, 2, Phase::Backward), (2, 4, Phase::Forward), (3, 3, Phase::Backward)]
        {
            let place = format!("{}: {times} times in {phase} of step {step}", tiny.name);
            let split = tempfile::tempdir().unwrap();
            let alloc = tiny.allocation(phase, times);
            let extras = RunExtras::to_fail(vec![Injection { step: Step(step), phase, times, alloc, rank: 0 }]);
            let (outcome, events) = tiny.train(split.path(), Start::New, extras);
            let outcome = outcome.unwrap().summary;
            assert!(u64::from(outcome.micro_batch_final) < tiny.batch, "{place}");
            assert_eq!((outcome.oom_errors, outcome.oom_recovered), (times, times), "{place}");
            assert_eq!(failures(&events), vec![(phase, Step(step)); usize::try_from(times).unwrap()], "{place}");

            let again = tempfile::tempdir().unwrap();
            let extras = RunExtras { schedule: Some(Schedule::read(split.path()).unwrap()), ..RunExtras::default() };
            let followed = tiny.train(again.path(), Start::New, extras).0.unwrap().summary;
            same_numbers(&followed, &outcome, &place);
            assert_eq!(followed.oom_errors, 0, "{place}");
            let text = |folder: &Path| std::fs::read_to_string(folder.join("schedule.jsonl")).unwrap();
            assert_eq!(text(again.path()), text(split.path()), "{place}");
        }
    }
}
