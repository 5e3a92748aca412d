//! A small GPT for the tests: token ids in, loss out, a segment a block.

use lowtide_torch::tch::{Device, Kind, Reduction, Tensor};
use lowtide_torch::{Keep, Segment, Shared, recompute};

pub(crate) struct Shape {
    pub(crate) blocks: usize,
    pub(crate) width: i64,
    pub(crate) heads: i64,
    pub(crate) tokens: i64,
    pub(crate) vocabulary: i64,
    pub(crate) dropout: f64,
}

pub(crate) struct Model {
    pub(crate) parameters: Vec<Tensor>,
    pub(crate) segments: Vec<Segment>,
    head: Tensor,
}

struct Block {
    weights: Vec<Tensor>,
    heads: i64,
    dropout: f64,
}

impl Model {
    pub(crate) fn new(shape: &Shape, device: Device) -> Model {
        let options = (Kind::Float, device);
        let fresh = |size: &[i64]| (Tensor::randn(size, options) * 0.05).set_requires_grad(true);
        let c = shape.width;
        let tokens = fresh(&[shape.vocabulary, c]);
        let positions = fresh(&[shape.tokens, c]);
        let mut parameters = vec![tokens.shallow_clone(), positions.shallow_clone()];
        let embedding = Shared::new((tokens.shallow_clone(), positions));
        let mut segments = vec![Segment::new(move |inputs| {
            vec![Tensor::embedding(&embedding.0, &inputs[0], -1, false, false) + &embedding.1]
        })];
        for _ in 0..shape.blocks {
            let sizes = [vec![3 * c, c], vec![c, c], vec![4 * c, c], vec![c, 4 * c]];
            let weights: Vec<Tensor> = sizes.iter().map(|size| fresh(size)).collect();
            parameters.extend(weights.iter().map(Tensor::shallow_clone));
            let block = Shared::new(Block { weights, heads: shape.heads, dropout: shape.dropout });
            segments.push(Segment::new(move |inputs| vec![block.apply(&inputs[0])]));
        }
        Model { parameters, segments, head: tokens }
    }

    /// The mean loss; all segments but the last are recomputed where asked.
    pub(crate) fn loss(&self, ids: &Tensor, again: bool) -> Tensor {
        let mut values = vec![ids.shallow_clone()];
        for (index, segment) in self.segments.iter().enumerate() {
            values = if again && index + 1 < self.segments.len() {
                recompute(segment, &values, Keep::OnDevice)
            } else {
                segment.run(&values)
            };
        }
        let logits = values[0].linear::<Tensor>(&self.head, None);
        let vocabulary = logits.size()[2];
        logits.view([-1, vocabulary]).cross_entropy_loss::<Tensor>(&ids.view([-1]), None, Reduction::Mean, -100, 0.0)
    }
}

impl Block {
    fn apply(&self, x: &Tensor) -> Tensor {
        let (b, t, c) = x.size3().expect("hidden values have three dimensions");
        let norm = |x: &Tensor| x.layer_norm::<Tensor>(&[c], None, None, 1e-5, true);
        let qkv = norm(x).linear::<Tensor>(&self.weights[0], None);
        let qkv = qkv.view([b, t, 3, self.heads, c / self.heads]).permute([2, 0, 3, 1, 4]);
        let y = Tensor::scaled_dot_product_attention::<Tensor>(
            &qkv.get(0),
            &qkv.get(1),
            &qkv.get(2),
            None,
            0.0,
            true,
            None,
            false,
        );
        let y = y.transpose(1, 2).reshape([b, t, c]).linear::<Tensor>(&self.weights[1], None);
        let x = x + y.dropout(self.dropout, true);
        let z = norm(&x).linear::<Tensor>(&self.weights[2], None).gelu("none").linear::<Tensor>(&self.weights[3], None);
        x + z.dropout(self.dropout, true)
    }
}
