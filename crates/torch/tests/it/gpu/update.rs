//! The optimizer's kernel.

use lowtide_torch::cuda;
use lowtide_torch::tch::{Device, Kind, Tensor, no_grad};
use lowtide_torch::{AdamW, AdamWRule, Autocast, NarrowWeights, attempt, gradients, linear, rng, set_deterministic};

use super::{GPU, gpu, shape};
use crate::model::Model;

#[test]
#[ignore = "needs a GPU"]
fn the_fused_update_is_that_of_the_cpu() {
    let _turn = gpu();
    let start = Tensor::randn([100, 30], (Kind::Float, Device::Cpu));
    let gradient = Tensor::randn([100, 30], (Kind::Float, Device::Cpu));
    let run = |device: Device| {
        let weight = start.to_device(device).copy().set_requires_grad(true);
        let gradient = gradient.to_device(device);
        let mut optimizer = AdamW::new(AdamWRule::default(), vec![(0.1, vec![weight.shallow_clone()])]);
        for _ in 0..5 {
            (&weight * &gradient).sum(Kind::Float).backward();
            optimizer.step(0.01).unwrap();
            gradients::release(std::slice::from_ref(&weight));
        }
        weight.detach().to_device(Device::Cpu)
    };
    let difference = (run(GPU) - run(Device::Cpu)).abs().max().double_value(&[]);
    assert!(difference < 5e-6, "{difference} after five updates of values around 1");
}

/// Sizes around packs and blocks, and more parameters than one launch takes.
fn sizes_to_update() -> Vec<i64> {
    [1, 3, 4, 255, 8191, 8192, 8193, 40_000].into_iter().chain((0..90).map(|number| 5 + 37 * number)).collect()
}

/// Three updates of parameters of all sizes with gradients times `factor`; each rank of `ranks` updates its part of them.
fn updated(ranks: i64, factor: Option<f64>) -> Vec<Tensor> {
    rng::seed(GPU, 3).unwrap();
    let start: Vec<Tensor> = sizes_to_update().iter().map(|size| Tensor::randn([*size], (Kind::Float, GPU))).collect();
    let slopes: Vec<Tensor> = start.iter().map(Tensor::randn_like).collect();
    let weights: Vec<Tensor> = start.iter().map(|start| start.copy().set_requires_grad(true)).collect();
    let mut optimizers: Vec<AdamW> = (0..ranks)
        .map(|rank| {
            let groups = weights.chunks(80).map(|group| (0.1, group.iter().map(Tensor::shallow_clone).collect()));
            let mut optimizer = AdamW::new(AdamWRule::default(), groups.collect());
            if ranks > 1 {
                let part = |number: usize, of: i64| sizes_to_update()[number] * of / ranks;
                optimizer.hold(|number| part(number, rank)..part(number, rank + 1));
            }
            assert!(optimizer.takes_factor(), "there is a kernel");
            optimizer
        })
        .collect();
    let factor = factor.map(|factor| Tensor::from(factor as f32).to_device(GPU));
    for _ in 0..3 {
        weights.iter().zip(&slopes).for_each(|(weight, slope)| (weight * slope).sum(Kind::Float).backward());
        for optimizer in &mut optimizers {
            optimizer.step_by(0.01, factor.as_ref()).unwrap();
        }
        gradients::release(&weights);
    }
    weights.iter().map(|weight| weight.detach()).collect()
}

#[test]
#[ignore = "needs a GPU"]
fn an_update_in_parts_has_the_bits_of_one() {
    let _turn = gpu();
    assert_eq!(updated(1, Some(0.3)), updated(3, Some(0.3)));
    assert_ne!(updated(1, Some(0.3)), updated(1, None));
    assert_eq!(updated(1, Some(1.0)), updated(1, None));
}

#[test]
#[ignore = "needs a GPU"]
fn an_update_by_a_factor_is_that_of_gradients_that_were_scaled() {
    let _turn = gpu();
    let found = updated(1, Some(0.3));
    rng::seed(GPU, 3).unwrap();
    let start: Vec<Tensor> = sizes_to_update().iter().map(|size| Tensor::randn([*size], (Kind::Float, GPU))).collect();
    let slopes: Vec<Tensor> = start.iter().map(Tensor::randn_like).collect();
    for ((start, slope), found) in start.iter().zip(&slopes).zip(&found) {
        // The formula in fp64.
        let slope = slope.to_kind(Kind::Double) * 0.3f32 as f64;
        let mut value = start.to_kind(Kind::Double);
        let (mut mean, mut square) = (slope.zeros_like(), slope.zeros_like());
        for number in 1..=3 {
            value *= 1.0 - 0.01 * 0.1;
            mean = mean * 0.9 + &slope * 0.1;
            square = square * 0.95 + &slope * &slope * 0.05;
            let root = (&square / (1.0 - 0.95f64.powi(number))).sqrt() + 1e-8;
            value -= &mean / (1.0 - 0.9f64.powi(number)) / root * 0.01;
        }
        let difference = (found.to_kind(Kind::Double) - &value).abs().max().double_value(&[]);
        let largest = value.abs().max().double_value(&[]);
        assert!(difference <= 4e-7 * largest.max(1.0), "{difference} of {largest}");
    }
}

#[test]
#[ignore = "needs a GPU"]
fn narrow_weights_are_written_with_the_update() {
    let _turn = gpu();
    let mut narrow = NarrowWeights::default();
    narrow.keep(true);
    let weight = Tensor::randn([70, 36], (Kind::Float, GPU)).set_requires_grad(true);
    let x = Tensor::randn([10, 36], (Kind::Float, GPU));
    let mut optimizer = AdamW::new(AdamWRule::default(), vec![(0.1, vec![weight.shallow_clone()])]);
    let _scope = Autocast::enter(GPU, Kind::BFloat16);
    let narrowed = || linear(&Tensor::eye(36, (Kind::Float, GPU)), &weight, None).transpose(0, 1);
    for _ in 0..3 {
        linear(&x, &weight, None).sum(Kind::Float).backward();
        optimizer.step(0.1).unwrap();
        gradients::release(std::slice::from_ref(&weight));
        let wanted = weight.detach().to_kind(Kind::BFloat16);
        assert_eq!(narrowed().detach(), wanted, "written by the update");
        narrow.refresh(std::slice::from_ref(&weight)).unwrap();
        assert_eq!(narrowed().detach(), wanted, "and left alone afterwards");
    }
    // Changed by something else, it is refreshed.
    let _ = attempt(|| no_grad(|| weight.shallow_clone().g_mul_scalar_(2.0))).unwrap();
    narrow.refresh(std::slice::from_ref(&weight)).unwrap();
    assert_eq!(narrowed().detach(), weight.detach().to_kind(Kind::BFloat16));
}

#[test]
#[ignore = "needs a GPU"]
fn an_update_allocates_nothing() {
    let _turn = gpu();
    let model = Model::new(&shape(), GPU);
    let groups = vec![(0.1, model.parameters.iter().map(Tensor::shallow_clone).collect())];
    let mut optimizer = AdamW::new(AdamWRule::default(), groups);
    optimizer.allocate().unwrap();
    model.loss(&Tensor::randint(1000, [2, 256], (Kind::Int64, GPU)), false).backward();
    cuda::reset_peaks(0).unwrap();
    let before = cuda::stats(0).unwrap().allocated_peak;
    optimizer.step(1e-3).unwrap();
    assert_eq!(cuda::stats(0).unwrap().allocated_peak, before);
}

#[test]
#[ignore = "needs a GPU"]
fn spilled_moments_leave_the_device_and_change_no_number() {
    let _turn = gpu();
    set_deterministic(true).unwrap();
    // Larger than a slice, so that it passes through the stage in pieces.
    let start = Tensor::randn([5000, 5000], (Kind::Float, GPU));
    let slope = Tensor::randn([5000, 5000], (Kind::Float, GPU));
    let run = |spilled: bool| {
        let weight = start.copy().set_requires_grad(true);
        let mut optimizer = AdamW::new(AdamWRule::default(), vec![(0.1, vec![weight.shallow_clone()])]);
        let rest = cuda::stats(0).unwrap().allocated;
        for number in 1..=4 {
            if spilled && number == 2 {
                optimizer.spill().unwrap();
                let held = cuda::stats(0).unwrap().allocated.saturating_sub(rest);
                assert!(held.get() < optimizer.stage_bytes() + 4096, "{held} stay on the device");
            }
            (&weight * &slope).sum(Kind::Float).backward();
            cuda::reset_peaks(0).unwrap();
            let before = cuda::stats(0).unwrap().allocated_peak;
            optimizer.step(0.01).unwrap();
            assert!(number == 1 || cuda::stats(0).unwrap().allocated_peak == before, "step {number} allocates");
            gradients::release(std::slice::from_ref(&weight));
        }
        let (mean, square) = optimizer.moments().next().map(|(a, b)| (a.to_device(GPU), b.to_device(GPU))).unwrap();
        [weight.detach(), mean, square]
    };
    assert_eq!(run(true), run(false));
    set_deterministic(false).unwrap();
}
