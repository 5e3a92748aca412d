//! The parts between the products of a block against plain operations: here on the CPU, in [`crate::gpu`] by their kernels.

use lowtide_torch::tch::{Device, Kind, Tensor};
use lowtide_torch::{Autocast, LayerNorm, Product, add, embed, gelu, heads, rng};

use crate::kit::alone;

const EPSILON: f64 = 1e-5;
const HEADS: i64 = 2;

/// A small block, with all that learns in it.
pub(crate) struct Block {
    x: Tensor,
    gains: [Tensor; 2],
    shifts: [Tensor; 2],
    /// Weight and bias of four linear layers: to the heads, from them, to the wide values, and back.
    layers: [(Tensor, Tensor); 4],
}

impl Block {
    pub(crate) fn new(device: Device, width: i64) -> Block {
        rng::seed(device, 3).unwrap();
        let random =
            |shape: &[i64], by: f64| (Tensor::randn(shape, (Kind::Float, device)) * by).set_requires_grad(true);
        let layer = |from: i64, to: i64| (random(&[to, from], 1.0 / (from as f64).sqrt()), random(&[to], 0.5));
        Block {
            x: random(&[3, 5, width], 1.0),
            gains: [random(&[width], 1.0), random(&[width], 1.0)],
            shifts: [random(&[width], 1.0), random(&[width], 1.0)],
            layers: [layer(width, 3 * width), layer(width, width), layer(width, 2 * width), layer(2 * width, width)],
        }
    }

    fn learned(&self) -> Vec<Tensor> {
        let layers = self.layers.iter().flat_map(|(weight, bias)| [weight, bias]);
        let all = [&self.x].into_iter().chain(&self.gains).chain(&self.shifts).chain(layers);
        all.map(Tensor::shallow_clone).collect()
    }

    fn attend([q, k, v]: [Tensor; 3]) -> Tensor {
        let (b, h, t, d) = q.size4().unwrap();
        let out = Tensor::scaled_dot_product_attention::<Tensor>(&q, &k, &v, None, 0.0, true, None, false);
        out.transpose(1, 2).reshape([b, t, h * d])
    }

    fn plain(&self) -> Tensor {
        let linear = |x: &Tensor, at: usize| x.linear(&self.layers[at].0, Some(&self.layers[at].1));
        let norm = |x: &Tensor, at: usize| {
            x.layer_norm(self.gains[at].size(), Some(&self.gains[at]), Some(&self.shifts[at]), EPSILON, true)
        };
        let (b, t, c) = self.x.size3().unwrap();
        let joined = linear(&norm(&self.x, 0), 0).view([b, t, 3, HEADS, c / HEADS]).permute([2, 0, 3, 1, 4]);
        let parts = <[Tensor; 3]>::try_from(joined.unbind(0)).unwrap();
        let x = &self.x + linear(&Block::attend(parts), 1);
        &x + linear(&linear(&norm(&x, 1), 2).gelu("none"), 3)
    }

    fn fused(&self) -> Tensor {
        let product = |x: &Tensor, at: usize| Product::of(x, &self.layers[at].0, &self.layers[at].1);
        let norm = |at: usize| LayerNorm { weight: &self.gains[at], bias: &self.shifts[at], epsilon: EPSILON };
        let (x, normed) = norm(0).apply(&self.x);
        let attended = Block::attend(heads(&normed, &self.layers[0].0, &self.layers[0].1, HEADS));
        let (x, normed) = norm(1).after_adding(&x, &product(&attended, 1));
        add(&x, &product(&gelu(&product(&normed, 2)), 3))
    }

    /// What comes out, and all gradients of its weighted sum.
    fn run(&self, kind: Kind, forward: impl FnOnce() -> Tensor) -> Vec<Tensor> {
        lowtide_torch::gradients::release(&self.learned());
        let device = self.x.device();
        let out = {
            let _narrow = (kind != Kind::Float).then(|| Autocast::enter(device, kind));
            forward()
        };
        let weights = Tensor::arange(out.numel() as i64, (Kind::Float, device)).sin().view_as(&out);
        (&out * weights).sum(Kind::Float).backward();
        [out.detach()].into_iter().chain(self.learned().iter().map(|tensor| tensor.grad().copy())).collect()
    }

    pub(crate) fn both(&self, kind: Kind) -> [Vec<Tensor>; 2] {
        [self.run(Kind::Float, || self.plain()), self.run(kind, || self.fused())]
    }
}

#[test]
fn on_the_cpu_it_is_plain_operations_to_the_bit() {
    let _alone = alone();
    for width in [16, 6] {
        let [wanted, found] = Block::new(Device::Cpu, width).both(Kind::Float);
        for (wanted, found) in wanted.iter().zip(&found) {
            assert!(wanted.equal(found), "width {width}: {wanted:?}");
        }
    }
}

#[test]
fn heads_that_do_not_come_out_even_are_refused() {
    let zeros = |shape: &[i64]| Tensor::zeros(shape, (Kind::Float, Device::Cpu));
    let refused = lowtide_torch::attempt(|| heads(&zeros(&[1, 2, 4]), &zeros(&[20, 4]), &zeros(&[20]), 3)).unwrap_err();
    assert!(refused.to_string().contains("with 3 heads"), "{refused}");
}

/// A table and positions, and what is looked up there.
pub(crate) struct Lookup {
    pub(crate) ids: Tensor,
    pub(crate) table: Tensor,
    pub(crate) positions: Tensor,
}

impl Lookup {
    pub(crate) fn new(ids: &Tensor, rows: i64, width: i64) -> Lookup {
        let device = ids.device();
        let learned = |rows| Tensor::randn([rows, width], (Kind::Float, device)).set_requires_grad(true);
        Lookup { ids: ids.shallow_clone(), table: learned(rows), positions: learned(ids.size()[1]) }
    }

    fn plain(&self) -> Tensor {
        Tensor::embedding(&self.table, &self.ids, -1, false, false) + &self.positions
    }

    fn fused(&self) -> Tensor {
        embed(&self.ids, &self.table, &self.positions)
    }

    /// What comes out, and both gradients after two rounds: the second adds to those of the first.
    fn run(&self, forward: impl Fn() -> Tensor) -> [Tensor; 3] {
        let learned = [self.table.shallow_clone(), self.positions.shallow_clone()];
        lowtide_torch::gradients::release(&learned);
        let once = |round: i64| {
            let out = forward();
            let weights = (Tensor::arange(out.numel() as i64, (Kind::Float, out.device())) * round).sin().view_as(&out);
            (&out * weights).sum(Kind::Float).backward();
            out
        };
        let _ = once(1);
        let out = once(2);
        [out.detach(), self.table.grad().copy(), self.positions.grad().copy()]
    }

    pub(crate) fn both(&self) -> [[Tensor; 3]; 2] {
        [self.run(|| self.plain()), self.run(|| self.fused())]
    }
}

#[test]
fn on_the_cpu_an_embedding_is_plain_operations_to_the_bit() {
    let _alone = alone();
    let ids = Tensor::randint(7, [3, 5], (Kind::Int64, Device::Cpu));
    let [wanted, found] = Lookup::new(&ids, 7, 6).both();
    assert!(wanted.iter().zip(&found).all(|(wanted, found)| wanted.equal(found)));
}

#[test]
fn positions_for_another_number_of_tokens_are_refused() {
    let zeros = |shape: &[i64]| Tensor::zeros(shape, (Kind::Float, Device::Cpu));
    let ids = Tensor::zeros([2, 3], (Kind::Int64, Device::Cpu));
    let refused = lowtide_torch::attempt(|| embed(&ids, &zeros(&[5, 4]), &zeros(&[2, 4]))).unwrap_err();
    assert!(refused.to_string().contains("positions (t, c)"), "{refused}");
}
