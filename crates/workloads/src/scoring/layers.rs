//! The layers of the models.
//!
//! Shapes: b samples, t steps, n nodes, f features in, h features out.

use lowtide_torch::tch::Tensor;

use crate::layers::Store;

/// One layer of an LSTM.
pub(crate) struct Lstm {
    weight_input: Tensor,
    weight_hidden: Tensor,
    bias_input: Tensor,
    bias_hidden: Tensor,
}

/// A graph convolution as Kipf and Welling's: each node becomes a weighted sum of itself and its neighbours.
pub(crate) struct GraphConvolution {
    weight: Tensor,
    bias: Tensor,
}

impl Lstm {
    /// What it shows after each step.
    pub(crate) fn apply(&self, x_btf: &Tensor) -> Tensor {
        let hidden = self.weight_hidden.size()[1];
        let start = Tensor::zeros([1, x_btf.size()[0], hidden], (x_btf.kind(), x_btf.device()));
        let weights = [&self.weight_input, &self.weight_hidden, &self.bias_input, &self.bias_hidden];
        // Always as in training, which keeps what backward needs where there is one. No dropout between layers here:
        // cuDNN would draw it from a state of its own, which no checkpoint holds.
        let (shown_bth, _, _) = x_btf.lstm(&[&start, &start], &weights, true, 1, 0.0, true, false, true);
        shown_bth
    }
}

impl GraphConvolution {
    /// A padded node comes out as the bias, and no other node sees it.
    pub(crate) fn apply(&self, x_bnf: &Tensor, adjacency_bnn: &Tensor) -> Tensor {
        adjacency_bnn.matmul(&x_bnf.linear::<Tensor>(&self.weight, None)) + &self.bias
    }
}

/// Fresh values are drawn as PyTorch's layers draw theirs.
impl Store {
    /// Layer `index` of an LSTM.
    pub(crate) fn lstm(&mut self, name: &str, index: u32, input: i64, hidden: i64) -> Lstm {
        let bound = 1.0 / (hidden as f64).sqrt();
        let mut draw = |part: &str, shape: &[i64]| self.uniform(format!("{name}.{part}_l{index}"), shape, bound);
        Lstm {
            weight_input: draw("weight_ih", &[4 * hidden, input]),
            weight_hidden: draw("weight_hh", &[4 * hidden, hidden]),
            bias_input: draw("bias_ih", &[4 * hidden]),
            bias_hidden: draw("bias_hh", &[4 * hidden]),
        }
    }

    pub(crate) fn graph_convolution(&mut self, name: &str, input: i64, output: i64) -> GraphConvolution {
        // Glorot's bound, as torch_geometric draws it; the bias starts at zero there too.
        let bound = (6.0 / (input + output) as f64).sqrt();
        let weight = self.uniform(format!("{name}.lin.weight"), &[output, input], bound);
        let bias = self.zeros(format!("{name}.bias"), &[output]);
        GraphConvolution { weight, bias }
    }
}
