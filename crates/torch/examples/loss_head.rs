//! What the loss head of GPT-2 takes, forward and backward, in so many pieces: its time, and memory beside weights, inputs and their
//! gradients. The same work as `lab/loss_head.py`, to be run beside it.

#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::num::NonZeroU32;
use std::time::Instant;

use lowtide_torch::cuda::{self, Deterministic};
use lowtide_torch::tch::{Cuda, Device, Kind, Tensor};
use lowtide_torch::{Autocast, DeviceChoice, NarrowWeights, linear_cross_entropy, rng, start};

const ROWS: i64 = 16 * 1024;
const WIDTH: i64 = 768;
const VOCABULARY: i64 = 50304;
const ROUNDS: usize = 9;
/// Calls of a round, so that nothing waits for the host.
const CALLS: u32 = 10;

fn main() {
    cuda::set_environment("expandable_segments:True", Deterministic::No);
    let device = start(DeviceChoice::Cuda(0)).expect("a GPU").device;
    rng::seed(device, 0).expect("the generators take a seed");
    let hidden = Tensor::randn([ROWS, WIDTH], (Kind::BFloat16, device)).set_requires_grad(true);
    let weight = (Tensor::randn([VOCABULARY, WIDTH], (Kind::Float, device)) * 0.02).set_requires_grad(true);
    let targets = Tensor::randint(VOCABULARY, [ROWS], (Kind::Int64, device));
    let mut narrow = NarrowWeights::default();
    narrow.keep(true);
    for chunks in [1, 2, 4, 8, 16, 32, 64].map(|chunks| NonZeroU32::new(chunks).expect("it is not 0")) {
        measure(&hidden, &weight, &targets, chunks, device);
    }
}

fn measure(hidden: &Tensor, weight: &Tensor, targets: &Tensor, chunks: NonZeroU32, device: Device) {
    let call = || {
        let loss = {
            let _narrow = Autocast::enter(device, Kind::BFloat16);
            linear_cross_entropy(hidden, weight, targets, chunks) / ROWS as f64
        };
        loss.backward();
    };
    // Kernels are chosen and compiled, and gradients are there.
    (0..3).for_each(|_| call());
    cuda::empty_cache().expect("the cache empties");
    cuda::reset_peaks(0).expect("there is a device 0");
    let before = cuda::stats(0).expect("there is a device 0").allocated;
    call();
    let most = cuda::stats(0).expect("there is a device 0").allocated_peak.saturating_sub(before);
    let mut times: Vec<f64> = (0..ROUNDS)
        .map(|_| {
            Cuda::synchronize(0);
            let begun = Instant::now();
            (0..CALLS).for_each(|_| call());
            Cuda::synchronize(0);
            begun.elapsed().as_secs_f64() / f64::from(CALLS)
        })
        .collect();
    times.sort_by(f64::total_cmp);
    println!(
        "head lowtide, {chunks} pieces: {:.3} ms, {:.1} MiB",
        times[ROUNDS / 2] * 1e3,
        most.get() as f64 / (1 << 20) as f64
    );
}
