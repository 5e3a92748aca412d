//! Layers that several models have. Fresh values are drawn as PyTorch's layers draw theirs.

use lowtide_torch::tch::{Kind, Tensor};

use crate::store::Store;

/// A linear layer over the last dimension.
pub(crate) struct Linear {
    pub(crate) weight: Tensor,
    pub(crate) bias: Tensor,
}

/// Normalisation over the last dimension.
pub(crate) struct Norm {
    weight: Tensor,
    bias: Tensor,
}

impl Linear {
    pub(crate) fn apply(&self, x: &Tensor) -> Tensor {
        x.linear(&self.weight, Some(&self.bias))
    }
}

impl Norm {
    pub(crate) fn apply(&self, x: &Tensor) -> Tensor {
        x.layer_norm(self.bias.size(), Some(&self.weight), Some(&self.bias), 1e-5, true)
    }
}

impl Store {
    pub(crate) fn linear(&mut self, name: &str, input: i64, output: i64) -> Linear {
        let (weight, bias) = self.weight_and_bias(name, &[output, input], output);
        Linear { weight, bias }
    }

    pub(crate) fn norm(&mut self, name: &str, width: i64) -> Norm {
        let ones = Tensor::ones([width], (Kind::Float, self.device));
        let weight = self.keep(format!("{name}.weight"), ones);
        Norm { weight, bias: self.zeros(format!("{name}.bias"), &[width]) }
    }

    /// Weight and bias, even between plus and minus 1 / sqrt(values that a dimension past the first holds).
    pub(crate) fn weight_and_bias(&mut self, name: &str, shape: &[i64], biases: i64) -> (Tensor, Tensor) {
        let bound = 1.0 / (shape[1..].iter().product::<i64>() as f64).sqrt();
        let weight = self.uniform(format!("{name}.weight"), shape, bound);
        (weight, self.uniform(format!("{name}.bias"), &[biases], bound))
    }
}
