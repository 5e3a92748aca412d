//! Numbers: narrower kinds against fp32, loss scaling, random state, determinism, clipping and AdamW, on the CPU.

use std::env;
use std::ops::Range;
use std::process::Command;

use lowtide_torch::tch::{Device, Kind, Tensor, no_grad};
use lowtide_torch::{
    AdamW, AdamWRule, Autocast, GradScaler, GradientRange, ScalerRule, attempt, gradients, host, rng, set_deterministic,
};

use crate::kit::alone;
use crate::model::{Model, Shape};

const CPU: (Kind, Device) = (Kind::Float, Device::Cpu);

struct Setup {
    model: Model,
    ids: Tensor,
}

impl Setup {
    fn new(dropout: f64) -> Setup {
        let shape = Shape { blocks: 4, width: 64, heads: 4, tokens: 32, vocabulary: 64, dropout };
        let ids = Tensor::randint(shape.vocabulary, [8, shape.tokens], (Kind::Int64, Device::Cpu));
        Setup { model: Model::new(&shape, Device::Cpu), ids }
    }

    /// The gradients of `factor` times the loss, computed in `kind`.
    fn gradients(&self, kind: Kind, factor: f64) -> Vec<Tensor> {
        gradients::release(&self.model.parameters);
        let loss = {
            let _narrow = Autocast::enter(Device::Cpu, kind);
            self.model.loss(&self.ids, false)
        };
        (loss * factor).backward();
        gradients::of(&self.model.parameters)
    }
}

/// The length of the difference as a share of the length of `wanted`, over all tensors together.
fn relative_error(found: &[Tensor], wanted: &[Tensor]) -> f64 {
    assert!(!wanted.is_empty() && found.len() == wanted.len());
    let length = |tensors: &mut dyn Iterator<Item = Tensor>| {
        tensors.map(|tensor| tensor.to_kind(Kind::Double).square().sum(Kind::Double).double_value(&[])).sum::<f64>()
    };
    let difference = length(&mut found.iter().zip(wanted).map(|(found, wanted)| found - wanted));
    (difference / length(&mut wanted.iter().map(Tensor::shallow_clone))).sqrt()
}

/// Half the distance between neighbours, as a share: bf16 has 8 bits of precision, fp16 has 11.
const BF16_ROUNDING: f64 = 1.0 / 256.0;
const FP16_ROUNDING: f64 = 1.0 / 2048.0;

#[test]
fn narrow_gradients_stay_close_to_fp32() {
    let _alone = alone();
    let setup = Setup::new(0.0);
    let full = setup.gradients(Kind::Float, 1.0);
    let bf16 = relative_error(&setup.gradients(Kind::BFloat16, 1.0), &full);
    let scaler = GradScaler::new(ScalerRule { initial: 1024.0, ..ScalerRule::default() });
    let scaled = setup.gradients(Kind::Half, scaler.scale());
    assert_eq!(scaler.unscale(&scaled).unwrap(), GradientRange::Finite);
    let fp16 = relative_error(&scaled, &full);
    println!("relative error of the gradients: bf16 {bf16:.5}, fp16 with scaler {fp16:.5}");
    // Each product rounds its two inputs and its output once, to either side, so the errors along the chain of layers add
    // up like a random walk: about 1.6 roundings for these four blocks, in both kinds. Twice that is the bound.
    assert!(bf16 < 3.0 * BF16_ROUNDING, "{bf16} is {:.1} roundings", bf16 / BF16_ROUNDING);
    assert!(fp16 < 3.0 * FP16_ROUNDING, "{fp16} is {:.1} roundings", fp16 / FP16_ROUNDING);
    assert!(bf16 > 0.3 * BF16_ROUNDING && fp16 > 0.3 * FP16_ROUNDING, "autocast had no effect");
}

#[test]
fn small_gradients_need_the_scaler() {
    let _alone = alone();
    let setup = Setup::new(0.0);
    let small = 1e-5;
    let full = setup.gradients(Kind::Float, small);
    let bare = relative_error(&setup.gradients(Kind::Half, small), &full);
    let scaler = GradScaler::new(ScalerRule::default());
    let scaled = setup.gradients(Kind::Half, small * scaler.scale());
    assert_eq!(scaler.unscale(&scaled).unwrap(), GradientRange::Finite);
    let with_scaler = relative_error(&scaled, &full);
    println!("relative error of small gradients in fp16: {bare:.4} bare, {with_scaler:.5} with scaler");
    assert!(bare > 0.5, "{bare}: nothing is lost without the scaler, so this test shows nothing");
    assert!(with_scaler < 4.0 * FP16_ROUNDING, "{with_scaler}");
}

#[test]
fn an_overflow_is_found_and_the_scale_backs_off_until_it_fits() {
    let _alone = alone();
    let setup = Setup::new(0.0);
    let full = setup.gradients(Kind::Float, 1.0);
    let absurd = 2f64.powi(40);
    let mut scaler = GradScaler::new(ScalerRule { initial: absurd, ..ScalerRule::default() });
    let found = loop {
        let found = setup.gradients(Kind::Half, scaler.scale());
        let outcome = scaler.unscale(&found).unwrap();
        scaler.update(outcome);
        if outcome == GradientRange::Finite {
            break found;
        }
        assert!(scaler.scale() > 1.0, "the scale backs off without end");
    };
    assert!(scaler.skipped() >= 10, "{} is not absurd", absurd);
    assert_eq!(scaler.scale(), absurd * 0.5f64.powi(scaler.skipped() as i32));
    assert!(relative_error(&found, &full) < 4.0 * FP16_ROUNDING);
}

/// The engine warns on stderr, where a test cannot look at itself: another process runs the test above.
#[test]
fn autocast_prints_no_warning() {
    let _alone = alone();
    let output = Command::new(env::current_exe().unwrap())
        .args(["--exact", "precision::narrow_gradients_stay_close_to_fp32", "--nocapture"])
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stderr) + String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
    let lower = text.to_lowercase();
    assert!(!lower.contains("warn") && !lower.contains("deprecat"), "{text}");
}

#[test]
fn the_random_state_goes_back() {
    let _alone = alone();
    let draw = || (Tensor::randn([7], CPU), Tensor::rand([5], CPU).dropout(0.5, true), Tensor::randperm(9, CPU));
    let _ = draw();
    let state = rng::state(Device::Cpu).unwrap();
    let first = draw();
    let moved = rng::state(Device::Cpu).unwrap();
    assert!(!state.cpu.equal(&moved.cpu), "drawing moves the state");
    rng::set_state(Device::Cpu, &state).unwrap();
    assert!(rng::state(Device::Cpu).unwrap().cpu.equal(&state.cpu));
    let second = draw();
    assert!(first.0.equal(&second.0) && first.1.equal(&second.1) && first.2.equal(&second.2));
    assert!(rng::state(Device::Cpu).unwrap().cpu.equal(&moved.cpu));
}

#[test]
fn the_same_bits_twice_with_and_without_the_deterministic_mode() {
    let _alone = alone();
    let setup = Setup::new(0.1);
    let random = rng::state(Device::Cpu).unwrap();
    let bits = || {
        rng::set_state(Device::Cpu, &random).unwrap();
        setup.gradients(Kind::Float, 1.0)
    };
    // Without `accumulate` the order of writes to one place is open: the engine has no deterministic way for it.
    let in_open_order = || attempt(|| Tensor::zeros([2], CPU).put_(&indices(), &Tensor::ones([2], CPU), false));
    let off = bits();
    set_deterministic(true).unwrap();
    let on = [bits(), bits()];
    let refused = in_open_order();
    set_deterministic(false).unwrap();
    let off_again = bits();
    for index in 0..off.len() {
        assert!(on[0][index].equal(&on[1][index]), "gradient {index} differs between two runs in the mode");
        assert!(off[index].equal(&off_again[index]), "gradient {index} differs between two runs without it");
    }
    assert!(refused.is_err_and(|error| error.to_string().contains("deterministic")));
    assert!(in_open_order().is_ok());
}

fn indices() -> Tensor {
    Tensor::from_slice(&[0i64, 1])
}

#[test]
fn clipping_follows_the_formula() {
    let _alone = alone();
    let start: Vec<Tensor> = [3, 40, 500].map(|size| Tensor::randn([size], CPU)).into();
    let norm = start.iter().flat_map(values).map(|value| value * value).sum::<f64>().sqrt();
    for limit in [0.25 * norm, norm, 4.0 * norm] {
        let found: Vec<Tensor> = start.iter().map(Tensor::copy).collect();
        let before = gradients::norm(&found).unwrap().double_value(&[]);
        assert!((before / norm - 1.0).abs() < 1e-6, "{before} is not {norm}");
        let factor = (limit / (norm + 1e-6)).min(1.0);
        let asked = gradients::clip_factor(&found, limit).unwrap().double_value(&[]);
        assert!((asked / factor - 1.0).abs() < 1e-6, "{asked} is not {factor}");
        gradients::clip(&found, limit).unwrap();
        for (found, start) in found.iter().flat_map(values).zip(start.iter().flat_map(values)) {
            assert!((found - factor * start).abs() <= 1e-6 * start.abs(), "{found} is not {factor} * {start}");
        }
    }
}

/// AdamW in f64, one number at a time.
struct PlainAdamW {
    decay: f64,
    value: f64,
    first: f64,
    second: f64,
}

impl PlainAdamW {
    fn step(&mut self, rule: &AdamWRule, learning_rate: f64, number: i32, gradient: f64) {
        self.value -= learning_rate * self.decay * self.value;
        self.first = rule.beta1 * self.first + (1.0 - rule.beta1) * gradient;
        self.second = rule.beta2 * self.second + (1.0 - rule.beta2) * gradient * gradient;
        let first = self.first / (1.0 - rule.beta1.powi(number));
        let second = self.second / (1.0 - rule.beta2.powi(number));
        self.value -= learning_rate * first / (second.sqrt() + rule.epsilon);
    }
}

#[test]
fn adamw_follows_the_formula_and_allocates_nothing() {
    let _alone = alone();
    let decays = [0.1, 0.0];
    let parameters = [37, 5].map(|size| Tensor::randn([size], CPU).set_requires_grad(true));
    let without_gradient = Tensor::ones([3], CPU).set_requires_grad(true);
    let groups = vec![
        (decays[0], vec![parameters[0].shallow_clone(), without_gradient.shallow_clone()]),
        (decays[1], vec![parameters[1].shallow_clone()]),
    ];
    let rule = AdamWRule::default();
    let mut plain: Vec<Vec<PlainAdamW>> = parameters
        .iter()
        .zip(decays)
        .map(|(tensor, decay)| {
            let start = |value| PlainAdamW { decay, value, first: 0.0, second: 0.0 };
            values(tensor).into_iter().map(start).collect()
        })
        .collect();

    let mut optimizer = AdamW::new(rule, groups);
    optimizer.allocate().unwrap();
    for (number, learning_rate) in (1..=5).zip([1e-2, 1e-2, 5e-3, 2e-2, 1e-3]) {
        gradients::release(&parameters);
        let wanted = parameters.each_ref().map(Tensor::randn_like);
        for (parameter, gradient) in parameters.iter().zip(&wanted) {
            (parameter * gradient).sum(Kind::Float).backward();
        }
        let before = host::stats().allocations;
        optimizer.step(learning_rate).unwrap();
        assert_eq!(host::stats().allocations, before, "step {number} allocates");
        for (plain, gradient) in plain.iter_mut().zip(&wanted) {
            for (plain, gradient) in plain.iter_mut().zip(values(gradient)) {
                plain.step(&rule, learning_rate, number, gradient);
            }
        }
    }
    for (plain, parameter) in plain.iter().zip(&parameters) {
        for (plain, found) in plain.iter().zip(values(parameter)) {
            assert!((plain.value - found).abs() < 1e-6 * plain.value.abs().max(1.0), "{found} is not {}", plain.value);
        }
    }
    assert_eq!(values(&without_gradient), [1.0; 3], "no gradient, no decay either");
    assert_eq!(optimizer.steps, 5);
}

fn values(tensor: &Tensor) -> Vec<f64> {
    no_grad(|| Vec::try_from(tensor.to_kind(Kind::Double)).expect("a list of numbers"))
}

/// Two parameters, one of several slices, updated three times; spilled before the step that is named.
fn updated(spilled_before: Option<u64>) -> (Vec<Tensor>, AdamW) {
    rng::seed(Device::Cpu, 3).unwrap();
    let large = Tensor::randn([3000, 3000], CPU);
    // Laid out in memory column by column.
    let turned = Tensor::randn([40, 30], CPU).transpose(0, 1).detach();
    let parameters = [large, turned].map(|tensor| tensor.set_requires_grad(true));
    let groups = vec![(0.1, vec![parameters[0].shallow_clone()]), (0.0, vec![parameters[1].shallow_clone()])];
    let mut optimizer = AdamW::new(AdamWRule::default(), groups);
    for number in 1..=3 {
        if spilled_before == Some(number) {
            optimizer.spill().unwrap();
        }
        for parameter in &parameters {
            (parameter * parameter.randn_like()).sum(Kind::Float).backward();
        }
        optimizer.step(0.01).unwrap();
        gradients::release(&parameters);
    }
    (parameters.map(|tensor| tensor.detach()).into(), optimizer)
}

#[test]
fn spilled_moments_give_the_same_numbers() {
    let _alone = alone();
    let (plain, plain_optimizer) = updated(None);
    for spilled_before in [1, 2, 3] {
        let (spilled, optimizer) = updated(Some(spilled_before));
        assert!(optimizer.is_spilled() && !plain_optimizer.is_spilled());
        assert_eq!(spilled, plain, "spilled before step {spilled_before}");
        for (plain, spilled) in plain_optimizer.moments().zip(optimizer.moments()) {
            assert_eq!(plain, spilled);
        }
        assert_eq!(optimizer.steps, 3);
    }
}

/// Two parameters updated three times; before the step that is named, only these elements of each are held.
fn updated_in_part(held: [Range<i64>; 2], before: u64, spilled_before: Option<u64>) -> (Vec<Tensor>, AdamW) {
    rng::seed(Device::Cpu, 3).unwrap();
    let parameters = [[300, 301], [7, 10]].map(|size| Tensor::randn(size, CPU).set_requires_grad(true));
    let groups = parameters.iter().map(|parameter| (0.1, vec![parameter.shallow_clone()])).collect();
    let mut optimizer = AdamW::new(AdamWRule::default(), groups);
    for number in 1..=3 {
        if spilled_before == Some(number) {
            optimizer.spill().unwrap();
        }
        if number == before {
            optimizer.hold(|parameter| held[parameter].clone());
            let is_uncut = optimizer.is_uncut();
            host::fail_nth(1, 1);
            assert_eq!(optimizer.cut().is_err(), is_uncut, "held {held:?} before step {number}");
            host::fail_nth(1, 0);
            optimizer.cut().unwrap();
            assert!(!optimizer.is_uncut());
        }
        // Gradients do not depend on parameters, of which only some are updated.
        for parameter in &parameters {
            (parameter * parameter.randn_like()).sum(Kind::Float).backward();
        }
        optimizer.step(0.01).unwrap();
        gradients::release(&parameters);
    }
    (parameters.map(|tensor| tensor.detach().flatten(0, -1)).into(), optimizer)
}

#[test]
fn parts_of_the_moments_give_the_numbers_of_all() {
    let _alone = alone();
    let all = [0..300 * 301, 0..70];
    let (whole, optimizer) = updated_in_part(all.clone(), 1, None);
    let moments: Vec<Tensor> = optimizer.moments().map(|(first, _)| first.flatten(0, -1)).collect();
    let thirds = [[0..30_016, 0..0], [30_016..60_032, 0..0], [60_032..300 * 301, 0..70]];
    for (held, before) in thirds.iter().flat_map(|held| [1, 2, 3].map(|before| (held, before))) {
        for spilled_before in [None, Some(1), Some(2), Some(3)] {
            let (parts, optimizer) = updated_in_part(held.clone(), before, spilled_before);
            for (index, elements) in held.iter().enumerate() {
                let of = |all: &Tensor| all.narrow(0, elements.start, elements.end - elements.start);
                assert_eq!(of(&parts[index]), of(&whole[index]), "{held:?} before step {before}, {spilled_before:?}");
            }
            let found: Vec<(usize, Tensor)> = optimizer
                .held()
                .map(|(index, _)| index)
                .zip(optimizer.moments())
                .map(|(index, (first, _))| (index, first.flatten(0, -1)))
                .collect();
            for (index, first) in found {
                let elements = &held[index];
                assert_eq!(first, moments[index].narrow(0, elements.start, elements.end - elements.start));
            }
            let bytes: i64 = held.iter().map(|elements| 8 * (elements.end - elements.start)).sum();
            assert_eq!(optimizer.moment_bytes(), bytes.unsigned_abs());
        }
    }
}

#[test]
fn a_spill_that_fails_changes_nothing() {
    let _alone = alone();
    let parameter = Tensor::randn([64], CPU).set_requires_grad(true);
    let mut optimizer = AdamW::new(AdamWRule::default(), vec![(0.0, vec![parameter.shallow_clone()])]);
    (&parameter * 2.0).sum(Kind::Float).backward();
    optimizer.step(0.01).unwrap();
    let mean = optimizer.moments().next().unwrap().0.copy();
    host::fail_nth(1, 1);
    assert!(optimizer.spill().unwrap_err().is_oom());
    assert!(!optimizer.is_spilled());
    optimizer.spill().unwrap();
    assert_eq!(*optimizer.moments().next().unwrap().0, mean);
    assert_eq!(optimizer.stage_bytes(), 512);
}
