//! Recompute: same gradients, less memory, and nothing that goes wrong inside it aborts.

use std::sync::{Arc, Mutex};

use lowtide_torch::tch::{Device, Kind, Tensor, no_grad_guard};
use lowtide_torch::{Autocast, Keep, Segment, Shared, TorchError, attempt, gradients, host, recompute, rng};

use crate::kit::alone;
use crate::model::{Model, Shape};

const CPU: (Kind, Device) = (Kind::Float, Device::Cpu);

fn small(dropout: f64) -> Model {
    let shape = Shape { blocks: 3, width: 32, heads: 4, tokens: 16, vocabulary: 40, dropout };
    Model::new(&shape, Device::Cpu)
}

fn ids() -> Tensor {
    Tensor::randint(40, [4, 16], (Kind::Int64, Device::Cpu))
}

/// Loss and gradients from a given random state.
fn run(model: &Model, ids: &Tensor, random: &rng::RngState, again: bool) -> (f64, Vec<Tensor>) {
    rng::set_state(Device::Cpu, random).unwrap();
    gradients::release(&model.parameters);
    let loss = model.loss(ids, again);
    loss.backward();
    (loss.double_value(&[]), copies(model))
}

fn assert_same(a: &[Tensor], b: &[Tensor]) {
    assert!(!a.is_empty() && a.len() == b.len());
    for (index, (a, b)) in a.iter().zip(b).enumerate() {
        assert!(a.equal(b), "gradient {index} differs by {:?}", (a - b).abs().max());
    }
}

#[test]
fn same_loss_and_gradients_with_dropout() {
    let _alone = alone();
    let (model, ids) = (small(0.2), ids());
    let random = rng::state(Device::Cpu).unwrap();
    let (plain_loss, plain) = run(&model, &ids, &random, false);
    let after_plain = rng::state(Device::Cpu).unwrap();
    let (again_loss, again) = run(&model, &ids, &random, true);
    let after_again = rng::state(Device::Cpu).unwrap();
    assert_eq!(plain_loss, again_loss);
    assert_same(&plain, &again);
    assert!(after_plain.cpu.equal(&after_again.cpu), "the second run of a segment must not move the generator");
}

#[test]
fn inputs_are_kept_joined_where_a_segment_says_how() {
    let _alone = alone();
    let square = |inputs: &[Tensor]| {
        let sum = match inputs {
            [x, more] => x + more,
            _ => inputs[0].shallow_clone(),
        };
        vec![&sum * &sum]
    };
    let taken = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&taken);
    let segment = Segment::new(move |inputs| {
        seen.lock().unwrap().push(inputs.len());
        square(inputs)
    })
    .joining(|inputs| vec![inputs.iter().skip(1).fold(inputs[0].shallow_clone(), |sum, more| sum + more)]);

    let leaf = || Tensor::rand([8], CPU).set_requires_grad(true);
    let (x, more) = (leaf(), leaf());
    let gradients_of = |outputs: Vec<Tensor>| {
        outputs[0].sum(Kind::Float).backward();
        let both = [x.grad().copy(), more.grad().copy()];
        gradients::release(&[x.shallow_clone(), more.shallow_clone()]);
        both
    };
    let parts = [&x * 1.0, &more * 1.0];
    let plain = gradients_of(square(&parts));
    let again = gradients_of(recompute(&segment, &parts, Keep::OnDevice));
    assert_same(&plain, &again);
    assert_eq!(*taken.lock().unwrap(), [1, 1], "both runs take the sum");
}

#[test]
fn same_gradients_under_autocast() {
    let _alone = alone();
    let (model, ids) = (small(0.1), ids());
    let random = rng::state(Device::Cpu).unwrap();
    let narrow = |again| {
        rng::set_state(Device::Cpu, &random).unwrap();
        gradients::release(&model.parameters);
        let loss = {
            let _narrow = Autocast::enter(Device::Cpu, Kind::BFloat16);
            model.loss(&ids, again)
        };
        // Outside the region: the second run must bring the autocast of the first with it.
        loss.backward();
        copies(&model)
    };
    let (plain, again) = (narrow(false), narrow(true));
    assert_same(&plain, &again);
    let (_, full) = run(&model, &ids, &random, false);
    assert!(!plain[4].equal(&full[4]), "autocast had no effect, so this test shows nothing");
}

#[test]
fn a_segment_of_token_ids_trains_its_parameters() {
    let _alone = alone();
    let table = Tensor::randn([10, 4], CPU).set_requires_grad(true);
    let shared = Shared::new(table.shallow_clone());
    let segment = Segment::new(move |inputs| vec![Tensor::embedding(&shared, &inputs[0], -1, false, false)]);
    let ids = Tensor::from_slice(&[1i64, 3, 3]);
    let out = recompute(&segment, &[ids.shallow_clone()], Keep::OnDevice);
    assert!(out[0].requires_grad());
    out[0].sum(Kind::Float).backward();
    let expect = Tensor::zeros([10, 4], CPU);
    let _ = expect.get(1).fill_(1.0);
    let _ = expect.get(3).fill_(2.0);
    assert!(table.grad().equal(&expect));
}

#[test]
fn batch_statistics_are_updated_once() {
    let _alone = alone();
    let run = |again: bool| {
        rng::seed(Device::Cpu, 5).unwrap();
        let weight = Tensor::randn([6, 3, 3, 3], CPU).set_requires_grad(true);
        let (mean, variance) = (Tensor::zeros([6], CPU), Tensor::ones([6], CPU));
        let inner = Shared::new((weight.shallow_clone(), mean.shallow_clone(), variance.shallow_clone()));
        let segment = Segment::new(move |inputs| {
            let y = inputs[0].conv2d::<Tensor>(&inner.0, None, [1, 1], [1, 1], [1, 1], 1);
            vec![
                y.f_batch_norm(None::<&Tensor>, None, Some(&inner.1), Some(&inner.2), true, 0.1, 1e-5, false)
                    .unwrap()
                    .relu(),
            ]
        })
        .with_buffers(&[mean.shallow_clone(), variance.shallow_clone()]);
        for _ in 0..3 {
            let x = Tensor::randn([2, 3, 8, 8], CPU);
            let out = if again { recompute(&segment, &[x], Keep::OnDevice) } else { segment.run(&[x]) };
            out[0].square().sum(Kind::Float).backward();
        }
        (mean, variance, weight.grad())
    };
    let (plain, again) = (run(false), run(true));
    assert!(plain.0.equal(&again.0) && plain.1.equal(&again.1), "the running statistics differ");
    assert!(plain.2.equal(&again.2), "the gradients differ");
    assert!(!plain.0.equal(&Tensor::zeros([6], CPU)));
}

#[test]
fn nests_and_passes_input_gradients() {
    let _alone = alone();
    let weight = Tensor::randn([8, 8], CPU).set_requires_grad(true);
    let shared = Shared::new(weight.shallow_clone());
    let inner = Segment::new(move |inputs| vec![inputs[0].matmul(&shared).tanh().dropout(0.3, true)]);
    let middle = inner.clone();
    let outer = Segment::new(move |inputs| {
        let once = recompute(&middle, inputs, Keep::OnDevice);
        recompute(&middle, &once, Keep::OnDevice)
    });
    let run = |again: bool| {
        rng::seed(Device::Cpu, 9).unwrap();
        gradients::release(std::slice::from_ref(&weight));
        let x = Tensor::randn([4, 8], CPU).set_requires_grad(true);
        let y = if again {
            recompute(&outer, &[x.shallow_clone()], Keep::OnHost)
        } else {
            let once = inner.run(&[x.shallow_clone()]);
            inner.run(&once)
        };
        y[0].square().sum(Kind::Float).backward();
        (x.grad().copy(), weight.grad().copy())
    };
    let (plain, again) = (run(false), run(true));
    assert!(plain.0.equal(&again.0), "the input's gradient differs");
    assert!(plain.1.equal(&again.1), "the weight's gradient differs");
}

#[test]
fn several_outputs_some_unused_some_whole_numbers_some_aliases() {
    let _alone = alone();
    let segment = Segment::new(|inputs| {
        vec![&inputs[0] * 2.0, &inputs[0] * 3.0, inputs[0].argmax(0, false), inputs[0].shallow_clone()]
    });
    let x = Tensor::from_slice(&[1.0f32, 2.0]).set_requires_grad(true);
    let out = recompute(&segment, &[x.shallow_clone()], Keep::OnDevice);
    assert_eq!(out.len(), 4);
    (&out[0] + &out[3]).sum(Kind::Float).backward();
    assert!(x.grad().equal(&Tensor::from_slice(&[3.0f32, 3.0])));
    assert!(!out[2].requires_grad());
}

#[test]
fn without_gradients_it_just_runs() {
    let _alone = alone();
    let segment = Segment::new(|inputs| vec![&inputs[0] * 2.0]);
    let _no_grad = no_grad_guard();
    let x = Tensor::from_slice(&[1.0f32]).set_requires_grad(true);
    assert!(!recompute(&segment, &[x], Keep::OnDevice)[0].requires_grad());
}

#[test]
fn an_error_in_the_second_run_is_an_error_outside() {
    let _alone = alone();
    let runs = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let seen = runs.clone();
    let segment = Segment::new(move |inputs| {
        let first = seen.fetch_add(1, std::sync::atomic::Ordering::SeqCst) == 0;
        let other = Tensor::ones([if first { 2 } else { 3 }], CPU);
        vec![&inputs[0] * other]
    });
    let x = Tensor::ones([2], CPU).set_requires_grad(true);
    let out = recompute(&segment, &[x], Keep::OnDevice);
    let error = attempt(|| out[0].sum(Kind::Float).backward()).expect_err("the shapes do not fit");
    assert!(matches!(error, TorchError::Engine(ref text) if text.contains("size")), "{error:?}");
    assert_eq!(runs.load(std::sync::atomic::Ordering::SeqCst), 2);
}

#[test]
fn a_panic_in_the_second_run_is_an_error_outside() {
    let _alone = alone();
    let first = std::sync::atomic::AtomicBool::new(true);
    let segment = Segment::new(move |inputs| {
        assert!(first.swap(false, std::sync::atomic::Ordering::SeqCst), "not again");
        vec![&inputs[0] * 2.0]
    });
    let x = Tensor::ones([2], CPU).set_requires_grad(true);
    let out = recompute(&segment, &[x], Keep::OnDevice);
    let error = attempt(|| out[0].sum(Kind::Float).backward()).expect_err("the segment panicked");
    assert!(matches!(error, TorchError::Panic(ref text) if text.contains("not again")), "{error:?}");
}

#[test]
fn a_panic_in_the_first_run_stays_a_panic() {
    let _alone = alone();
    let segment = Segment::new(|_| std::panic::resume_unwind(Box::new("first")));
    let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        attempt(|| recompute(&segment, &[Tensor::ones([1], CPU)], Keep::OnDevice))
    }));
    assert!(caught.is_err());
    assert!(Tensor::ones([1], CPU).set_requires_grad(true).g_add_scalar(1.0).requires_grad(), "gradients stay on");
}

#[test]
fn backward_twice_through_a_freed_graph_is_an_error() {
    let _alone = alone();
    let segment = Segment::new(|inputs| vec![&inputs[0] * 2.0]);
    let x = Tensor::ones([2], CPU).set_requires_grad(true);
    let loss = recompute(&segment, &[x], Keep::OnDevice)[0].sum(Kind::Float);
    loss.backward();
    assert!(attempt(|| loss.backward()).is_err());
}

/// The peak of a step above what is held before it.
fn peak(model: &Model, ids: &Tensor, again: bool) -> u64 {
    gradients::release(&model.parameters);
    host::reset_peak();
    let before = host::stats().allocated;
    model.loss(ids, again).backward();
    host::stats().peak.saturating_sub(before).get()
}

#[test]
fn twelve_blocks_peak_at_most_two_fifths_of_the_plain_step() {
    let _alone = alone();
    let shape = Shape { blocks: 12, width: 64, heads: 4, tokens: 64, vocabulary: 64, dropout: 0.1 };
    let model = Model::new(&shape, Device::Cpu);
    let ids = Tensor::randint(64, [16, 64], (Kind::Int64, Device::Cpu));
    let (plain, again) = (peak(&model, &ids, false), peak(&model, &ids, true));
    let ratio = again as f64 / plain as f64;
    println!("peak of a step: plain {plain}, recomputed {again}, ratio {ratio:.3}");
    assert!(ratio <= 0.40, "{again} is {ratio:.3} of {plain}");
}

fn copies(model: &Model) -> Vec<Tensor> {
    gradients::of(&model.parameters).iter().map(Tensor::copy).collect()
}
