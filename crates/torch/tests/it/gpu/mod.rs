//! What only a GPU can show. Ignored by default; `make gpu-check SUITE=engine` runs them all.
//!
//! The allocator's limit is the process's, so the tests take turns.

use std::num::NonZeroU32;
use std::sync::{Mutex, MutexGuard, OnceLock};

use lowtide_core::Bytes;
use lowtide_oom::Place;
use lowtide_torch::cuda::{self, Deterministic};
use lowtide_torch::tch::{Cuda, Device, Kind, Reduction, Tensor, no_grad};
use lowtide_torch::{
    AdamW, AdamWRule, Autocast, DeviceChoice, DeviceFacts, GradScaler, GradientRange, GraphPool, Keep, LayerNorm,
    NarrowWeights, ScalerRule, Segment, Shared, TorchError, attempt, embed, fused_kernels_problem, gelu, gradients,
    linear, linear_cross_entropy, loss_kernel_problem, recompute, rng, set_deterministic, start, use_own_stream,
};

use crate::fused::{Block, Lookup};
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

fn shape() -> Shape {
    Shape { blocks: 4, width: 256, heads: 4, tokens: 256, vocabulary: 1000, dropout: 0.1 }
}

#[test]
#[ignore = "needs a GPU"]
fn out_of_memory_is_caught_and_training_goes_on() {
    let turn = gpu();
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
    let line = turn.facts.context.saturating_add(Bytes::from_mib(512 + 20 + 64));
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

fn relative_error(wanted: &[Tensor], found: &[Tensor]) -> f64 {
    let (mut difference, mut size) = (0.0, 0.0);
    for (wanted, found) in wanted.iter().zip(found) {
        difference += (wanted - found).square().sum(Kind::Double).double_value(&[]);
        size += wanted.square().sum(Kind::Double).double_value(&[]);
    }
    (difference / size).sqrt()
}

/// Vocabularies that the kernel takes and one that it leaves to LibTorch; every kind of number.
#[test]
#[ignore = "needs a GPU"]
fn the_loss_head_is_that_of_the_plain_way() {
    let _turn = gpu();
    assert_eq!(loss_kernel_problem(0), None);
    for vocabulary in [8, 1000, 1003, 50304] {
        for (kind, bound) in [(Kind::Float, 1e-4), (Kind::BFloat16, 0.02), (Kind::Half, 0.005)] {
            for chunks in [1, 3] {
                let error = loss_head_error(vocabulary, kind, chunks);
                println!("vocabulary {vocabulary}, {kind:?}, {chunks} chunks: relative error {error:.2e}");
                assert!(error < bound, "vocabulary {vocabulary}, {kind:?}, {chunks} chunks: {error}");
            }
        }
    }
}

/// Widths that the kernels take, with one to four columns times four a thread, and one that they leave to LibTorch.
#[test]
#[ignore = "needs a GPU"]
fn fused_parts_of_a_block_are_plain_operations() {
    let _turn = gpu();
    assert_eq!(fused_kernels_problem(0), None);
    for width in [32, 34, 768, 1600, 2304, 4608] {
        for (kind, bound) in [(Kind::Float, 1e-4), (Kind::BFloat16, 0.03), (Kind::Half, 0.005)] {
            let [wanted, found] = Block::new(GPU, width).both(kind);
            for (index, (wanted, found)) in wanted.iter().zip(&found).enumerate() {
                let error = ((wanted - found).norm() / wanted.norm()).double_value(&[]);
                assert!(error < bound, "width {width}, {kind:?}, tensor {index}: relative error {error:.2e}");
            }
        }
    }
}

/// What does not begin where four numbers can be read at once goes LibTorch's way.
#[test]
#[ignore = "needs a GPU"]
fn fused_parts_take_a_tensor_that_begins_anywhere() {
    let _turn = gpu();
    let whole = Tensor::randn([3 * 64 + 1], (Kind::Float, GPU));
    let odd = whole.narrow(0, 1, 3 * 64).view([3, 64]);
    let ones = Tensor::ones([64], (Kind::Float, GPU));
    let zeros = Tensor::zeros([64], (Kind::Float, GPU));
    let (_, normed) = LayerNorm { weight: &ones, bias: &zeros, epsilon: 1e-5 }.apply(&odd);
    let wanted = odd.layer_norm([64], Some(&ones), Some(&zeros), 1e-5, true);
    assert!(relative_error(&[wanted], &[normed]) < 1e-5);
    assert!(relative_error(&[odd.gelu("none")], &[gelu(&odd.shallow_clone().into())]) < 1e-5);
}

/// The same input gives the same bits, gradients of biases and gains among them.
#[test]
#[ignore = "needs a GPU"]
fn fused_parts_of_a_block_give_the_same_bits_again() {
    let _turn = gpu();
    let block = Block::new(GPU, 768);
    let [first, again] = [block.both(Kind::BFloat16), block.both(Kind::BFloat16)].map(|[_, fused]| fused);
    assert!(first.iter().zip(&again).all(|(first, again)| first.equal(again)));
}

/// Numbers that are met once, often, and by several blocks; the gradient is added to the one that is there, in the same order each time.
#[test]
#[ignore = "needs a GPU"]
fn an_embedding_is_plain_operations() {
    let _turn = gpu();
    let rows = 300;
    let drawn = |most: i64| Tensor::randint(most, [5, 203], (Kind::Int64, GPU));
    let often = drawn(rows).where_self(&drawn(2).eq(0), &Tensor::from(7_i64).to_device(GPU));
    let all_one = Tensor::full([5, 203], 299, (Kind::Int64, GPU));
    for width in [4, 64, 768, 2304, 6] {
        let columns = Tensor::randint(rows, [5, 204], (Kind::Int64, GPU)).narrow(1, 1, 203);
        let all = [
            ("drawn", drawn(rows)),
            ("columns", columns),
            ("often", often.copy()),
            ("two", drawn(2)),
            ("one", all_one.copy()),
        ];
        for (name, ids) in all {
            let lookup = Lookup::new(&ids, rows, width);
            let [wanted, found] = lookup.both();
            assert!(wanted[0].equal(&found[0]), "{name}, width {width}");
            let error = relative_error(&wanted, &found);
            assert!(error < 1e-5, "{name}, width {width}: relative error {error:.2e}");
            let [_, again] = lookup.both();
            assert!(found.iter().zip(&again).all(|(found, again)| found.equal(again)), "{name}, width {width}");
        }
    }
}

#[test]
#[ignore = "needs a GPU"]
fn a_number_that_an_embedding_does_not_have_makes_nan_and_writes_nowhere() {
    let _turn = gpu();
    let ids = Tensor::from_slice(&[0_i64, 9, -1, 2]).view([1, 4]).to_device(GPU);
    let lookup = Lookup::new(&ids, 3, 8);
    let out = embed(&lookup.ids, &lookup.table, &lookup.positions);
    let is_nan: Vec<f64> =
        Vec::try_from(out.isnan().to_kind(Kind::Double).mean_dim(2, false, Kind::Double).view(-1)).unwrap();
    assert_eq!(is_nan, [0.0, 1.0, 1.0, 0.0]);
    out.sum(Kind::Float).backward();
    let sums: Vec<f64> = Vec::try_from(lookup.table.grad().sum_dim_intlist(1, false, Kind::Double)).unwrap();
    assert_eq!(sums, [8.0, 0.0, 8.0]);
}

/// Whichever program makes a product, it is the same up to rounding, with its gradients; and the same again once one is chosen.
#[test]
#[ignore = "needs a GPU"]
fn products_by_a_chosen_program_are_those_of_libtorch() {
    let _turn = gpu();
    for kind in [Kind::BFloat16, Kind::Half] {
        let x = Tensor::randn([2, 2048, 1024], (Kind::Float, GPU)).set_requires_grad(true);
        let weight = (Tensor::randn([1536, 1024], (Kind::Float, GPU)) / 32).set_requires_grad(true);
        let bias = Tensor::randn([1536], (Kind::Float, GPU)).set_requires_grad(true);
        let run = |bias: Option<&Tensor>| {
            let learned = [x.shallow_clone(), weight.shallow_clone()];
            gradients::release(&learned);
            let out = {
                let _narrow = Autocast::enter(GPU, kind);
                linear(&x, &weight, bias)
            };
            let weights = Tensor::arange(out.numel() as i64, (Kind::Float, GPU)).sin().view_as(&out);
            (&out * weights).sum(Kind::Float).backward();
            [out.detach(), x.grad().copy(), weight.grad().copy()]
        };
        for bias in [None, Some(&bias)] {
            set_deterministic(true).unwrap();
            let wanted = run(bias);
            set_deterministic(false).unwrap();
            let [found, again] = [run(bias), run(bias)];
            let error = relative_error(&wanted, &found);
            assert!(error < 0.005, "{kind:?}: relative error {error:.2e}");
            assert!(found.iter().zip(&again).all(|(found, again)| found.equal(again)), "{kind:?}");
        }
    }
}

/// A value that is not finite must reach the gradients, where the loss scale and the person can see it.
#[test]
#[ignore = "needs a GPU"]
fn the_loss_head_hides_no_nan() {
    let _turn = gpu();
    for kind in [Kind::Float, Kind::BFloat16, Kind::Half] {
        let start = Tensor::ones([4, 64], (Kind::Float, GPU));
        let _ = start.get(2).fill_(f64::NAN);
        let hidden = start.set_requires_grad(true);
        let weight = Tensor::randn([1000, 64], (Kind::Float, GPU));
        let targets = Tensor::zeros([4], (Kind::Int64, GPU));
        let loss = {
            let _narrow = (kind != Kind::Float).then(|| Autocast::enter(GPU, kind));
            linear_cross_entropy(&hidden, &weight, &targets, NonZeroU32::MIN)
        };
        loss.backward();
        let finite = hidden.grad().isfinite().all_dim(1, false);
        assert!(finite.equal(&Tensor::from_slice(&[true, true, false, true]).to_device(GPU)), "{kind:?}: {finite:?}");
        assert!(!loss.double_value(&[]).is_finite());
    }
}

/// The largest relative error of loss and gradients against fp32 in LibTorch's own way.
fn loss_head_error(vocabulary: i64, kind: Kind, chunks: u32) -> f64 {
    let hidden = Tensor::randn([300, 64], (Kind::Float, GPU)).set_requires_grad(true);
    let weight = (Tensor::randn([vocabulary, 64], (Kind::Float, GPU)) * 0.3).set_requires_grad(true);
    let targets = Tensor::randint(vocabulary, [300], (Kind::Int64, GPU));
    let _ = targets.narrow(0, 10, 20).fill_(-100);
    let run = |loss: &dyn Fn() -> Tensor| {
        gradients::release(&[hidden.shallow_clone(), weight.shallow_clone()]);
        let loss = loss();
        (&loss / 280.0).backward();
        [loss.detach(), hidden.grad().copy(), weight.grad().copy()]
    };
    let wanted = run(&|| {
        let logits = hidden.linear::<Tensor>(&weight, None);
        logits.cross_entropy_loss::<Tensor>(&targets, None, Reduction::Sum, -100, 0.0)
    });
    let found = run(&|| {
        let _narrow = (kind != Kind::Float).then(|| Autocast::enter(GPU, kind));
        linear_cross_entropy(&hidden, &weight, &targets, NonZeroU32::new(chunks).unwrap())
    });
    let errors =
        wanted.iter().zip(&found).map(|(wanted, found)| ((wanted - found).norm() / wanted.norm()).double_value(&[]));
    errors.fold(0.0, f64::max)
}

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

/// Gradients and random numbers after three backward passes over different samples, with and without a graph.
fn three_passes(shape: &Shape, again: bool, with_graph: bool) -> (Vec<Vec<f32>>, Tensor) {
    rng::seed(GPU, 7).unwrap();
    let model = Model::new(shape, GPU);
    let samples: Vec<Tensor> = (0..4).map(|_| Tensor::randint(1000, [4, 256], (Kind::Int64, GPU))).collect();
    let memory: Vec<Tensor> = model.parameters.iter().map(|tensor| tensor.detach().zeros_like()).collect();
    let pass = |ids: &Tensor| model.loss(ids, again).backward();
    gradients::begin_in(&model.parameters, &memory).unwrap();
    // Whatever is used for the first time is used here.
    attempt(|| pass(&samples[3])).unwrap();
    gradients::begin_in(&model.parameters, &memory).unwrap();
    rng::seed(GPU, 8).unwrap();
    if with_graph {
        let input = samples[3].copy();
        let pool = GraphPool::new(0).unwrap();
        let graph = pool.record(None, || pass(&input)).unwrap();
        assert!(memory.iter().all(|gradient| gradient.abs().max().double_value(&[]) == 0.0), "nothing is done yet");
        let reading = cuda::stats(0).unwrap();
        for ids in &samples[..3] {
            input.shallow_clone().copy_(ids);
            graph.replay().unwrap();
        }
        assert_eq!(cuda::stats(0).unwrap().reserved_peak, reading.reserved_peak, "a replay allocates nothing");
    } else {
        samples[..3].iter().for_each(pass);
    }
    let bits = memory.iter().map(|gradient| Vec::try_from(gradient.flatten(0, -1)).unwrap()).collect();
    (bits, rng::state(GPU).unwrap().cuda.unwrap())
}

#[test]
#[ignore = "needs a GPU"]
fn a_replayed_graph_has_the_bits_of_the_work_it_recorded() {
    let _turn = gpu();
    set_deterministic(true).unwrap();
    use_own_stream(0).unwrap();
    for (dropout, again) in [(0.0, false), (0.0, true), (0.1, false)] {
        let shape = Shape { dropout, ..shape() };
        let (plain, replayed) = (three_passes(&shape, again, false), three_passes(&shape, again, true));
        assert!(plain.0 == replayed.0, "dropout {dropout}, recompute {again}: gradients differ");
        assert_eq!(plain.1, replayed.1, "dropout {dropout}, recompute {again}: random numbers differ");
    }
    set_deterministic(false).unwrap();
    cuda::empty_cache().unwrap();
}

#[test]
#[ignore = "needs a GPU"]
fn work_that_cannot_be_recorded_leaves_nothing_behind() {
    let _turn = gpu();
    use_own_stream(0).unwrap();
    let shape = Shape { dropout: 0.1, ..shape() };
    let before = three_passes(&shape, false, false);
    cuda::empty_cache().unwrap();
    let level = cuda::stats(0).unwrap();
    let model = Model::new(&shape, GPU);
    let ids = Tensor::randint(1000, [4, 256], (Kind::Int64, GPU));
    for _ in 0..3 {
        let pool = GraphPool::new(0).unwrap();
        let waits = || assert!(model.loss(&ids, false).double_value(&[]).is_nan());
        let error = pool.record(None, waits).expect_err("it waits for the device");
        assert!(matches!(&error, TorchError::Engine(text) if text.contains("captur")), "{error:?}");
        drop(Tensor::randn([4], (Kind::Float, GPU)));
    }
    let many = Tensor::randint(1000, [256, 256], (Kind::Int64, GPU));
    cuda::set_limit(0, Bytes::from_mib(512)).unwrap();
    for _ in 0..3 {
        let pool = GraphPool::new(0).unwrap();
        let error = pool.record(None, || model.loss(&many, false).backward()).expect_err("it does not fit");
        assert!(matches!(error, TorchError::Oom { .. }), "{error:?}");
        gradients::release(&model.parameters);
    }
    cuda::set_memory_fraction(0, 1.0).unwrap();
    drop((many, ids, model));
    cuda::empty_cache().unwrap();
    assert_eq!(cuda::stats(0).unwrap().allocated, level.allocated);
    assert_eq!(cuda::stats(0).unwrap().reserved, level.reserved, "the pool is given back");
    let after = three_passes(&shape, false, true);
    assert_eq!(before.1, after.1, "random numbers go on as before");
}
