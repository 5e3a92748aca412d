//! Kernels compiled at run time, and products by chosen programs, against plain operations.

use std::num::NonZeroU32;

use lowtide_torch::tch::{Kind, Reduction, Tensor};
use lowtide_torch::{
    Autocast, LayerNorm, embed, fused_kernels_problem, gelu, gradients, linear, linear_cross_entropy,
    loss_kernel_problem, set_deterministic,
};

use super::{GPU, gpu, relative_error};
use crate::fused::{Block, Lookup};

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
