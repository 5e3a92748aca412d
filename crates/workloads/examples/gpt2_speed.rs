//! How fast does GPT-2 124M train on this GPU? The same work as `lab/torch_gpt.py`, to be run beside it.

#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::num::NonZeroU32;
use std::time::Instant;

use lowtide_torch::cuda::{self, Deterministic};
use lowtide_torch::tch::{Cuda, Device, Kind, Tensor};
use lowtide_torch::{
    AdamW, AdamWRule, Autocast, DeviceChoice, MatmulPrecision, gradients, rng, set_matmul_precision, start,
};
use lowtide_train::Mode;
use lowtide_workloads::gpt::{Model, ModelSettings};

const STEPS: usize = 30;

fn main() {
    cuda::set_environment("expandable_segments:True", Deterministic::No);
    let facts = start(DeviceChoice::Cuda(0)).expect("a GPU");
    set_matmul_precision(MatmulPrecision::High).expect("the engine takes it");
    for batch in [4, 16] {
        measure(batch, facts.device);
        cuda::empty_cache().expect("the cache empties");
    }
}

fn measure(batch: i64, device: Device) {
    let shape =
        ModelSettings { n_layer: 12, n_head: 12, n_embd: 768, block_size: 1024, vocab_size: 50304, dropout: 0.0 };
    rng::seed(device, 0).expect("the generators take a seed");
    let model = Model::new(&shape, &Mode::default(), device);
    let parameters: Vec<Tensor> = model.parameters().values().map(Tensor::shallow_clone).collect();
    let mut optimizer =
        AdamW::new(AdamWRule::default(), vec![(0.01, parameters.iter().map(Tensor::shallow_clone).collect())]);
    optimizer.allocate().expect("room for the moments");
    cuda::reset_peaks(0).expect("there is a device 0");
    let mut times = Vec::new();
    let mut value = 0.0;
    for _ in 0..STEPS {
        let ids = Tensor::randint(50304, [batch, 1024], (Kind::Int64, device));
        Cuda::synchronize(0);
        let begun = Instant::now();
        let loss = {
            let _narrow = Autocast::enter(device, Kind::BFloat16);
            let mut values = vec![ids.shallow_clone()];
            for segment in model.segments() {
                values = segment.run(&values);
            }
            model.loss_sum(&values, &ids, NonZeroU32::MIN) / (batch * 1024) as f64
        };
        loss.backward();
        optimizer.step(1e-4).expect("an update allocates nothing");
        gradients::release(&parameters);
        value = loss.double_value(&[]);
        times.push(begun.elapsed().as_secs_f64());
    }
    times.sort_by(f64::total_cmp);
    let median = times[STEPS / 2];
    let stats = cuda::stats(0).expect("there is a device 0");
    let gib = |bytes: lowtide_core::Bytes| bytes.get() as f64 / (1u64 << 30) as f64;
    println!(
        "lowtide batch {batch}: {:.2} ms, {:.0} tokens/s, allocated {:.2} GiB, reserved {:.2} GiB, last loss {value:.3}",
        median * 1e3,
        (batch * 1024) as f64 / median,
        gib(stats.allocated_peak),
        gib(stats.reserved_peak),
    );
}
