//! Work that is recorded and replayed.

use lowtide_core::Bytes;
use lowtide_torch::cuda;
use lowtide_torch::tch::{Kind, Tensor};
use lowtide_torch::{GraphPool, TorchError, attempt, gradients, rng, set_deterministic, use_own_stream};

use super::{GPU, gpu, shape};
use crate::model::{Model, Shape};

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
