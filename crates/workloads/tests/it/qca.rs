//! The cellular automaton: its size, its step, its figures, and that it learns.

use std::num::NonZeroU32;

use lowtide_core::Event;
use lowtide_settings::RunSettings;
use lowtide_testkit::alone;
use lowtide_torch::tch::{Device, Kind, Tensor, no_grad};
use lowtide_torch::{Keep, recompute, rng};
use lowtide_train::Workload;
use lowtide_workloads::CATALOGUE;
use lowtide_workloads::qca::{Metrics, ModelSettings, Operator, OperatorName, Qca, metrics};

use crate::kit::{open, shipped, train_workload};

const OPERATORS: [OperatorName; 2] = [OperatorName::UnetUnitary, OperatorName::UnetConvlstm];

fn tiny(operator: OperatorName) -> ModelSettings {
    ModelSettings {
        operator,
        d_state: 2,
        hidden_channels: 4,
        grid_size: 16,
        qca_steps: 7,
        segment_steps: 3,
        symmetry: true,
    }
}

/// The same automaton each time; its output layer is away from zero, so that it moves.
fn moving(settings: &ModelSettings) -> Qca {
    open();
    let qca = Qca::new(settings, 1, Device::Cpu).unwrap();
    for (index, (_, parameter)) in qca.state().into_iter().enumerate() {
        let waves = (Tensor::arange(parameter.numel() as i64, (Kind::Float, Device::Cpu)) + index as i64).sin() * 0.3;
        no_grad(|| parameter.shallow_clone().copy_(&waves.view_as(&parameter)));
    }
    qca
}

fn values(tensor: &Tensor) -> Vec<f32> {
    Vec::try_from(tensor.detach().flatten(0, -1)).unwrap()
}

fn parameters(settings: &ModelSettings) -> usize {
    let (_, parameters) = Operator::new(settings, Device::Cpu);
    parameters.values().map(Tensor::numel).sum()
}

#[test]
fn operators_have_the_parameters_of_their_models() {
    let _alone = alone();
    open();
    let full = ModelSettings::default();
    let half = ModelSettings { hidden_channels: 64, ..full };
    assert_eq!(parameters(&full), 27_714_076);
    assert_eq!(parameters(&half), 6_938_908);
    let memory = ModelSettings { operator: OperatorName::UnetConvlstm, ..half };
    let gates = 4 * 512 * (2 * 512 * 9 + 1);
    assert_eq!(parameters(&memory), 6_938_908 + gates);
}

#[test]
fn names_are_those_of_the_reference() {
    let _alone = alone();
    open();
    let (_, parameters) = Operator::new(&tiny(OperatorName::UnetUnitary), Device::Cpu);
    let weights: Vec<&str> = parameters.keys().filter_map(|name| name.strip_suffix(".weight")).collect();
    let expect = [
        "d1.0", "d2.0", "d3.0", "e1.0", "e1.2", "e2.0", "e2.2", "e3.0", "e3.2", "e4.0", "e4.2", "out", "u1", "u2", "u3",
    ];
    assert_eq!(weights, expect);
    assert_eq!(parameters.len(), 2 * expect.len());
}

#[test]
fn a_step_keeps_the_norm_of_every_state() {
    let _alone = alone();
    for operator in OPERATORS {
        let qca = moving(&tiny(operator));
        let batch = qca.train_batch(0, 2);
        let mut carried = batch.inputs;
        let start = carried[0].shallow_clone();
        for segment in qca.segments() {
            carried = no_grad(|| segment.run(&carried));
        }
        let sums = |states: &Tensor| values(&states.square().sum_dim_intlist([1i64, 2, 3].as_slice(), false, None));
        assert_eq!(carried[0].size(), [4, 4, 16, 16]);
        assert_ne!(values(&carried[0].narrow(0, 0, 2)), values(&start), "it moves");
        for mass in sums(&carried[0]) {
            assert!((mass - 1024.0).abs() < 0.05, "{mass}");
        }
    }
}

#[test]
fn a_memory_is_carried_through_the_episode() {
    let _alone = alone();
    let qca = moving(&tiny(OperatorName::UnetConvlstm));
    let mut carried = qca.train_batch(0, 1).inputs;
    let mut before: Option<Vec<f32>> = None;
    for segment in qca.segments() {
        carried = no_grad(|| segment.run(&carried));
        let sizes: Vec<Vec<i64>> = carried.iter().map(Tensor::size).collect();
        assert_eq!(sizes, [vec![2, 4, 16, 16], vec![2, 32, 2, 2], vec![2, 32, 2, 2]]);
        let held = values(&carried[2]);
        assert_ne!(Some(&held), before.as_ref());
        before = Some(held);
    }
}

#[test]
fn an_untrained_automaton_stands_still_which_is_not_acceptable() {
    let _alone = alone();
    open();
    for operator in OPERATORS {
        let qca = Qca::new(&tiny(operator), 1, Device::Cpu).unwrap();
        let measured = qca.measure(0, 2).unwrap();
        assert!(measured.survival.abs() < 1e-5, "{measured:?}");
        assert!(measured.symmetry.unwrap().abs() < 1e-9, "{measured:?}");
        assert!((measured.activity - 1.0).abs() < 1e-5, "{measured:?}");
        assert!(!measured.is_acceptable());
    }
}

fn close(value: f64, expect: f64) {
    assert!((value - expect).abs() < 1e-5, "{value}, not {expect}");
}

/// One complex channel on an 8 x 8 grid, its real part 1 in the four middle cells.
fn dot() -> Tensor {
    let state = Tensor::zeros([1, 2, 8, 8], (Kind::Float, Device::Cpu));
    let _ = state.narrow(1, 0, 1).narrow(2, 3, 2).narrow(3, 3, 2).fill_(1.0);
    state
}

#[test]
fn figures_of_states_made_by_hand() {
    let _alone = alone();
    open();
    let start = dot();
    let turned = start.rot90(1, [2, 3]);

    let still = metrics(&start, &start, Some(&turned));
    close(still.survival, 0.0);
    close(still.activity, 1.0);
    close(still.symmetry.unwrap(), 0.0);

    // Times i: another phase is the same state.
    let phase = metrics(&start, &start.roll(1, 1), None);
    close(phase.activity, 1.0);
    close(phase.survival, 0.0);
    assert_eq!(phase.symmetry, None);

    // One cell to the right: half of the mass is still inside, and half of the overlap is left.
    let shift = |states: &Tensor| states.roll(1, 3);
    let shifted = metrics(&start, &shift(&start), Some(&shift(&turned)));
    close(shifted.survival, 2f64.ln());
    close(shifted.activity, 0.25);
    // The shift goes right in one and, turned, up in the other: they share one of four cells.
    close(shifted.symmetry.unwrap(), 6.0 / 8.0);

    // Half way round the torus both ways: a map that knows no direction.
    let far = |states: &Tensor| states.roll([4, 4], [2, 3]);
    let moved = metrics(&start, &far(&start), Some(&far(&turned)));
    close(moved.symmetry.unwrap(), 0.0);
    close(moved.activity, 0.0);
    assert!(moved.survival > 80.0 && moved.survival.is_finite(), "{moved:?}");
}

#[test]
fn the_disc_holds_95_percent_of_the_start() {
    let _alone = alone();
    open();
    // 96 percent in the middle and 4 percent in a corner: the corner is outside.
    let start = dot();
    let _ = start.narrow(2, 0, 1).narrow(3, 0, 1).narrow(1, 0, 1).fill_((4.0f64 / 24.0).sqrt());
    let middle = dot();
    close(metrics(&start, &middle, None).survival, 0.0);
    let corner = &start - &middle;
    assert!(metrics(&start, &corner, None).survival > 80.0);
}

#[test]
fn acceptable_is_below_all_three_bounds() {
    let _alone = alone();
    let good = Metrics { survival: 0.9, symmetry: Some(0.4), activity: 0.4 };
    assert!(good.is_acceptable());
    assert!(!Metrics { survival: 1.0, ..good }.is_acceptable());
    assert!(!Metrics { symmetry: Some(0.5), ..good }.is_acceptable());
    assert!(!Metrics { symmetry: None, ..good }.is_acceptable());
    assert!(!Metrics { activity: 0.5, ..good }.is_acceptable());
    assert!(!Metrics { survival: f64::NAN, ..good }.is_acceptable());
}

/// How backward goes through the chain.
#[derive(Clone, Copy)]
enum Way {
    /// All activations kept, one backward.
    Whole,
    /// All segments recomputed but the last, as the loop does it.
    Recomputed,
    /// All activations kept, a backward for each segment, as one would do it by hand.
    ByHand,
}

/// The gradients of one batch.
fn gradients(qca: &Qca, way: Way) -> Vec<Vec<f32>> {
    let batch = qca.train_batch(3, 2);
    let mut carried: Vec<Tensor> = batch.inputs.iter().map(Tensor::shallow_clone).collect();
    let mut cuts = Vec::new();
    let (last, others) = qca.segments().split_last().unwrap();
    for segment in others {
        carried = match way {
            Way::Recomputed => recompute(segment, &carried, Keep::OnDevice),
            Way::Whole | Way::ByHand => segment.run(&carried),
        };
        if let Way::ByHand = way {
            let leaves: Vec<Tensor> = carried.iter().map(|value| value.detach().set_requires_grad(true)).collect();
            cuts.push((std::mem::take(&mut carried), leaves.iter().map(Tensor::shallow_clone).collect::<Vec<_>>()));
            carried = leaves;
        }
    }
    qca.loss_sum(&last.run(&carried), &batch, NonZeroU32::MIN).backward();
    for (outputs, leaves) in cuts.into_iter().rev() {
        let parts = outputs.iter().zip(&leaves).map(|(output, leaf)| (output * leaf.grad()).sum(None));
        parts.reduce(|sum, part| sum + part).unwrap().backward();
    }
    qca.state()
        .into_values()
        .map(|mut parameter| {
            let gradient = values(&parameter.grad());
            parameter.zero_grad();
            gradient
        })
        .collect()
}

fn length(values: impl Iterator<Item = f32>) -> f64 {
    values.map(|value| f64::from(value).powi(2)).sum::<f64>().sqrt()
}

/// The operator is used in every segment, so a parameter's gradient is a sum over them. Adding it up segment by segment
/// rounds in another order than one backward through the whole: the same mathematics, and other last bits.
#[test]
fn recompute_gives_the_same_gradients() {
    let _alone = alone();
    for operator in OPERATORS {
        let qca = moving(&tiny(operator));
        let recomputed = gradients(&qca, Way::Recomputed);
        assert!(recomputed == gradients(&qca, Way::ByHand), "bit for bit");
        assert!(recomputed == gradients(&qca, Way::Recomputed), "bit for bit");
        for (whole, recomputed) in gradients(&qca, Way::Whole).iter().zip(&recomputed) {
            let difference = length(whole.iter().zip(recomputed).map(|(whole, again)| whole - again));
            let size = length(whole.iter().copied());
            assert!(size > 0.0 && difference < 1e-4 * size, "{difference} of {size}");
        }
    }
}

#[test]
fn without_symmetry_there_is_one_episode_and_two_terms() {
    let _alone = alone();
    let settings = ModelSettings { symmetry: false, ..tiny(OperatorName::UnetUnitary) };
    let qca = moving(&settings);
    let both = moving(&tiny(OperatorName::UnetUnitary));
    let batch = qca.eval_batch(0, 2);
    let end = qca
        .segments()
        .iter()
        .fold(batch.inputs.iter().map(Tensor::shallow_clone).collect(), |values: Vec<_>, segment| segment.run(&values));
    assert_eq!(end[0].size(), [2, 4, 16, 16]);
    let loss = qca.loss_sum(&end, &batch, NonZeroU32::MIN).double_value(&[]);
    let measured = qca.measure(0, 2).unwrap();
    assert_eq!(measured.symmetry, None);
    assert!((loss / 2.0 - measured.survival - measured.activity).abs() < 1e-4);
    let with = both.measure(0, 2).unwrap();
    assert!((with.survival - measured.survival).abs() < 1e-4 && with.symmetry.unwrap() > 0.0);
}

#[test]
fn a_batch_may_be_cut() {
    let _alone = alone();
    let qca = moving(&tiny(OperatorName::UnetUnitary));
    // The loss, then the metrics.
    let figures = |first, count| {
        let batch = qca.train_batch(first, count);
        let end = qca
            .segments()
            .iter()
            .fold(batch.inputs.iter().map(Tensor::shallow_clone).collect(), |values: Vec<_>, segment| {
                no_grad(|| segment.run(&values))
            });
        let mut figures = vec![qca.loss_sum(&end, &batch, NonZeroU32::MIN).double_value(&[])];
        figures.extend(qca.metrics().into_iter().map(|mut metric| {
            metric.tally.add(&end, &batch);
            metric.tally.finish() * f64::from(count)
        }));
        figures
    };
    let (whole, first, second) = (figures(0, 2), figures(0, 1), figures(1, 1));
    assert_eq!(whole.len(), 4);
    assert!((whole[0] - whole[1..].iter().sum::<f64>()).abs() < 1e-6 * whole[0].abs(), "{whole:?}");
    for ((whole, first), second) in whole.iter().zip(first).zip(second) {
        let parts = first + second;
        assert!((whole - parts).abs() < 1e-3 * whole.abs(), "{whole} and {parts}");
    }
}

fn load(text: &str) -> lowtide_settings::LoadedSettings {
    RunSettings::load(Some((std::path::Path::new("qca.yaml"), text)), &[]).unwrap()
}

#[test]
fn wrong_settings_are_refused_by_name() {
    let _alone = alone();
    let problem = |model: &str| {
        let loaded = load(&format!("workload: qca\nmodel: {{{model}}}\n"));
        CATALOGUE.build(&loaded, &open()).err().unwrap().to_string()
    };
    for (model, expect) in [
        ("grid_size: 20", "multiple of 8"),
        ("qca_steps: 0", "at least 1"),
        ("operator: unet", "unet_convlstm"),
        ("hidden: 8", "hidden"),
    ] {
        let problem = problem(model);
        assert!(problem.contains(expect), "{problem}");
    }
}

#[test]
fn shipped_configurations_are_understood() {
    let _alone = alone();
    for name in ["qca", "qca-low-memory", "qca-tiny"] {
        let loaded = shipped(name, &[]);
        let built = CATALOGUE.build(&loaded, &open()).unwrap();
        assert_eq!(built.workload.name(), "qca");
        assert_eq!(built.settings.model, loaded.settings.model, "{name} says all there is to say");
    }
}

#[test]
fn a_run_lowers_the_loss() {
    let _alone = alone();
    let facts = open();
    rng::seed(facts.device, 1).unwrap();
    let mut settings = RunSettings { workload: "qca".to_owned(), ..RunSettings::default() };
    settings.train.steps = 25;
    settings.train.batch = 1;
    settings.optimizer.learning_rate = 0.015;
    settings.optimizer.beta2 = 0.999;
    settings.optimizer.warmup_steps = 0;
    settings.eval.every = None;
    settings.save.every = None;
    let model =
        ModelSettings { hidden_channels: 8, qca_steps: 10, segment_steps: 5, ..tiny(OperatorName::UnetUnitary) };
    let qca = Qca::new(&model, settings.seed, facts.device).unwrap();

    let (summary, events) = train_workload(&qca, &settings, &facts).unwrap();
    let loss = |event: &Event| match event {
        Event::StepDone { loss, .. } => Some(*loss),
        _ => None,
    };
    let losses: Vec<f64> = events.iter().filter_map(loss).collect();
    assert_eq!((summary.steps, summary.samples_seen), (25, 25));
    let (first, last) = (losses[0], losses[24]);
    assert!((first - 1.0).abs() < 1e-4 && last < 0.5, "{first} to {last}");
    let measured = qca.measure(0, 2).unwrap();
    assert!(measured.is_acceptable(), "{measured:?}");
}
