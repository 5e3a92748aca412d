//! What only a GPU can show. Ignored by default; `make gpu-check SUITE=engine` runs them all.
//!
//! The allocator's limit is the process's, so the tests take turns.

mod again;
mod graphs;
mod kernels;
mod nccl;
mod transfer;
mod update;

use std::sync::{Mutex, MutexGuard, OnceLock};

use lowtide_core::Bytes;
use lowtide_oom::Place;
use lowtide_torch::cuda::{self, Deterministic};
use lowtide_torch::tch::{Device, Kind, Tensor};
use lowtide_torch::{
    AdamW, AdamWRule, Autocast, DeviceChoice, DeviceFacts, GradScaler, GradientRange, ScalerRule, TorchError, attempt,
    gradients, rng, start,
};

use crate::model::{Model, Shape};

const GPU: Device = Device::Cuda(0);

struct Turn {
    _alone: MutexGuard<'static, ()>,
    facts: &'static DeviceFacts,
}

/// The GPU for one test, as it was at the start.
fn gpu() -> Turn {
    static ALONE: Mutex<()> = Mutex::new(());
    static FACTS: OnceLock<DeviceFacts> = OnceLock::new();
    let alone = ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let facts = FACTS.get_or_init(|| {
        cuda::set_environment("expandable_segments:True", Deterministic::Yes);
        start(DeviceChoice::Cuda(0)).expect("this test needs a GPU")
    });
    cuda::set_memory_fraction(0, 1.0).unwrap();
    cuda::empty_cache().unwrap();
    cuda::reset_peaks(0).unwrap();
    rng::seed(GPU, 1).unwrap();
    Turn { _alone: alone, facts }
}

fn mib(count: i64) -> Tensor {
    Tensor::zeros([count << 20], (Kind::Uint8, GPU))
}

fn relative_error(wanted: &[Tensor], found: &[Tensor]) -> f64 {
    let (mut difference, mut size) = (0.0, 0.0);
    for (wanted, found) in wanted.iter().zip(found) {
        difference += (wanted - found).square().sum(Kind::Double).double_value(&[]);
        size += wanted.square().sum(Kind::Double).double_value(&[]);
    }
    (difference / size).sqrt()
}

fn shape() -> Shape {
    Shape { blocks: 4, width: 256, heads: 4, tokens: 256, vocabulary: 1000, dropout: 0.1 }
}

#[test]
#[ignore = "needs a GPU"]
fn out_of_memory_is_caught_and_training_goes_on() {
    let _turn = gpu();
    // Libraries that other tests have loaded stay.
    let context = cuda::context(0).unwrap();
    let model = Model::new(&shape(), GPU);
    let groups = vec![(0.1, model.parameters.iter().map(Tensor::shallow_clone).collect())];
    let mut optimizer = AdamW::new(AdamWRule::default(), groups);
    optimizer.allocate().unwrap();
    let mut step = |samples: i64| {
        let ids = Tensor::randint(1000, [samples, 256], (Kind::Int64, GPU));
        let loss = attempt(|| {
            let loss = model.loss(&ids, false);
            loss.backward();
            loss.double_value(&[])
        });
        let made = loss.and_then(|loss| optimizer.step(1e-3).map(|()| loss));
        gradients::release(&model.parameters);
        made
    };
    let first = step(2).unwrap();
    let level = cuda::stats(0).unwrap().allocated;
    cuda::set_limit(0, Bytes::from_mib(512)).unwrap();
    for _ in 0..3 {
        let error = step(256).expect_err("256 samples do not fit into 512 MiB");
        let TorchError::Oom { oom, message } = &error else { panic!("{error:?}") };
        assert_eq!(oom.place, Place::Device);
        assert_eq!(oom.device, Some(0));
        assert!(oom.requested.is_some() && oom.limit.is_some() && oom.capacity.is_some(), "{message}");
        assert_eq!(cuda::stats(0).unwrap().allocated, level, "the failed step left memory behind");
        assert!(step(2).unwrap() < first + 1.0);
    }
    let memory = cuda::memory(0).unwrap();
    let used = memory.total.saturating_sub(memory.free);
    let line = context.saturating_add(Bytes::from_mib(512 + 20 + 64));
    assert!(used <= line, "the driver sees {used}, and the line with 64 MiB of late kernels is {line}");
}

#[test]
#[ignore = "needs a GPU"]
fn figures_of_the_allocator_and_the_driver() {
    let turn = gpu();
    let before = cuda::stats(0).unwrap();
    let tensor = mib(64);
    let with = cuda::stats(0).unwrap();
    assert_eq!(with.allocated, before.allocated.saturating_add(Bytes::from_mib(64)));
    assert!(with.reserved >= with.allocated && with.reserved_peak >= with.reserved);
    drop(tensor);
    assert_eq!(cuda::stats(0).unwrap().allocated, before.allocated);
    assert_eq!(cuda::stats(0).unwrap().allocated_peak, with.allocated_peak);
    cuda::empty_cache().unwrap();
    assert!(cuda::stats(0).unwrap().reserved < with.reserved);
    cuda::reset_peaks(0).unwrap();
    assert_eq!(cuda::stats(0).unwrap().allocated_peak, before.allocated);
    let memory = cuda::memory(0).unwrap();
    assert!(memory.free < memory.total && turn.facts.context > Bytes::from_mib(100), "{:?}", turn.facts);
    assert!(turn.facts.context < Bytes::from_gib(3), "{:?}", turn.facts);
    println!("{}: {} in all, context {}", turn.facts.name, turn.facts.total, turn.facts.context);
}

/// The script that runs this looks at the file with PyTorch's own reader.
#[test]
#[ignore = "needs a GPU"]
fn a_snapshot_is_written() {
    let _turn = gpu();
    cuda::record_history(10_000).unwrap();
    let kept = mib(7);
    drop(mib(3));
    let folder = std::env::var_os("LOWTIDE_GPU_OUT").map_or_else(std::env::temp_dir, Into::into);
    let path = folder.join("snapshot.pickle");
    cuda::snapshot(&path).unwrap();
    cuda::record_history(0).unwrap();
    assert!(std::fs::metadata(&path).unwrap().len() > 500);
    assert!(cuda::snapshot(std::path::Path::new("/nowhere/at/all")).is_err());
    drop(kept);
}

#[test]
#[ignore = "needs a GPU"]
fn autocast_narrows_and_gradients_stay_close() {
    let _turn = gpu();
    let x = Tensor::randn([8, 8], (Kind::Float, GPU));
    let narrow = {
        let _narrow = Autocast::enter(GPU, Kind::BFloat16);
        x.matmul(&x).kind()
    };
    assert_eq!((narrow, x.matmul(&x).kind()), (Kind::BFloat16, Kind::Float));

    let model = Model::new(&Shape { dropout: 0.0, ..shape() }, GPU);
    let ids = Tensor::randint(1000, [4, 256], (Kind::Int64, GPU));
    let run = |kind: Kind| {
        let scaler = GradScaler::new(ScalerRule::default());
        let scale = if kind == Kind::Half { scaler.scale() } else { 1.0 };
        gradients::release(&model.parameters);
        let loss = {
            let _narrow = (kind != Kind::Float).then(|| Autocast::enter(GPU, kind));
            model.loss(&ids, false)
        };
        (loss * scale).backward();
        let all = gradients::of(&model.parameters);
        if kind == Kind::Half {
            assert_eq!(scaler.unscale(&all).unwrap(), GradientRange::Finite);
        }
        all.iter().map(Tensor::copy).collect::<Vec<_>>()
    };
    let full = run(Kind::Float);
    for (kind, bound) in [(Kind::BFloat16, 0.03), (Kind::Half, 0.01)] {
        let error = relative_error(&full, &run(kind));
        println!("relative gradient error of {kind:?} against fp32: {error:.5}");
        assert!(error < bound, "{kind:?}: {error}");
    }
}
