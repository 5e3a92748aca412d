//! Segments that are computed again.

use lowtide_core::Bytes;
use lowtide_torch::cuda;
use lowtide_torch::tch::{Cuda, Kind, Tensor};
use lowtide_torch::{
    Autocast, Keep, Segment, Shared, TorchError, attempt, gradients, recompute, rng, set_deterministic,
};

use super::{GPU, gpu};

#[test]
#[ignore = "needs a GPU"]
fn recompute_gives_the_same_gradients_on_device_and_from_host() {
    let _turn = gpu();
    set_deterministic(true).unwrap();
    // A weight for each segment: one that several share is narrowed once in a plain run and once a segment here, and its
    // gradients are then added in another precision.
    let weights: Vec<Tensor> =
        (0..3).map(|_| Tensor::randn([256, 256], (Kind::Float, GPU)).set_requires_grad(true)).collect();
    let segments: Vec<Segment> = weights
        .iter()
        .map(|weight| {
            let shared = Shared::new(weight.shallow_clone());
            Segment::new(move |inputs| vec![inputs[0].matmul(&shared).gelu("none").dropout(0.2, true)])
        })
        .collect();
    let x = Tensor::randn([64, 256], (Kind::Float, GPU));
    let run = |keep: Option<Keep>| {
        rng::seed(GPU, 4).unwrap();
        gradients::release(&weights);
        let mut values = vec![x.shallow_clone()];
        {
            let _narrow = Autocast::enter(GPU, Kind::BFloat16);
            for segment in &segments {
                values = match keep {
                    Some(keep) => recompute(segment, &values, keep),
                    None => segment.run(&values),
                };
            }
        }
        values[0].square().sum(Kind::Float).backward();
        let found: Vec<Tensor> = weights.iter().map(|weight| weight.grad().copy()).collect();
        (found, rng::state(GPU).unwrap().cuda.unwrap())
    };
    let plain = run(None);
    for keep in [Keep::OnDevice, Keep::OnHost] {
        let again = run(Some(keep));
        assert!(plain.0.iter().zip(&again.0).all(|(a, b)| a.equal(b)), "{keep:?}: the gradients differ");
        assert!(plain.1.equal(&again.1), "{keep:?}: the generator stands elsewhere");
    }
    set_deterministic(false).unwrap();
}

#[test]
#[ignore = "needs a GPU"]
fn recompute_uses_less_memory_and_less_still_from_host() {
    let _turn = gpu();
    let weight = Tensor::randn([1024, 1024], (Kind::Float, GPU)).set_requires_grad(true);
    let shared = Shared::new(weight.shallow_clone());
    let segment =
        Segment::new(move |inputs| vec![(0..4).fold(inputs[0].shallow_clone(), |x, _| x.matmul(&shared).gelu("none"))]);
    let x = Tensor::randn([4096, 1024], (Kind::Float, GPU));
    let peak = |keep: Option<Keep>| {
        gradients::release(std::slice::from_ref(&weight));
        cuda::reset_peaks(0).unwrap();
        let before = cuda::stats(0).unwrap().allocated;
        let mut values = vec![x.shallow_clone()];
        for _ in 0..6 {
            values = match keep {
                Some(keep) => recompute(&segment, &values, keep),
                None => segment.run(&values),
            };
        }
        values[0].square().sum(Kind::Float).backward();
        Cuda::synchronize(0);
        cuda::stats(0).unwrap().allocated_peak.saturating_sub(before)
    };
    let (plain, device, host) = (peak(None), peak(Some(Keep::OnDevice)), peak(Some(Keep::OnHost)));
    println!("peak: plain {plain}, inputs kept on the device {device}, on the host {host}");
    assert!(device.get() * 2 < plain.get() && host < device);
}

#[test]
#[ignore = "needs a GPU"]
fn errors_and_panics_on_the_backward_thread_are_errors_here() {
    let _turn = gpu();
    let backward = |second: fn(&Tensor) -> Tensor| {
        let first = std::sync::atomic::AtomicBool::new(true);
        let segment = Segment::new(move |inputs| {
            let again = !first.swap(false, std::sync::atomic::Ordering::SeqCst);
            vec![if again { second(&inputs[0]) } else { &inputs[0] * 2.0 }]
        });
        let x = Tensor::ones([16], (Kind::Float, GPU)).set_requires_grad(true);
        let out = recompute(&segment, &[x], Keep::OnDevice);
        attempt(|| out[0].sum(Kind::Float).backward()).expect_err("the second run fails")
    };
    let panicked = backward(|_| panic!("on purpose"));
    assert!(matches!(panicked, TorchError::Panic(ref text) if text.contains("on purpose")), "{panicked:?}");
    cuda::set_limit(0, Bytes::from_mib(256)).unwrap();
    let full = backward(|x| x * Tensor::zeros([1 << 30], (Kind::Float, GPU)).sum(Kind::Float));
    assert!(full.is_oom(), "{full:?}");
}
