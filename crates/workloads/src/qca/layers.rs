//! The layers of an operator.

use lowtide_torch::tch::Tensor;

use crate::store::Store;

/// A 3 x 3 convolution on the torus.
pub(crate) struct Conv {
    weight: Tensor,
    bias: Tensor,
}

/// A transposed convolution that doubles both sides.
pub(crate) struct Double {
    weight: Tensor,
    bias: Tensor,
}

/// A 1 x 1 convolution that starts at zero.
pub(crate) struct Output {
    weight: Tensor,
    bias: Tensor,
}

impl Conv {
    pub(crate) fn apply(&self, x: &Tensor) -> Tensor {
        x.pad([1, 1, 1, 1], "circular", None).conv2d(&self.weight, Some(&self.bias), 1, 0, 1, 1)
    }
}

impl Double {
    pub(crate) fn apply(&self, x: &Tensor) -> Tensor {
        x.conv_transpose2d(&self.weight, Some(&self.bias), 2, 0, 0, 1, 1)
    }
}

impl Output {
    pub(crate) fn apply(&self, x: &Tensor) -> Tensor {
        x.conv2d(&self.weight, Some(&self.bias), 1, 0, 1, 1)
    }
}

/// Fresh values are drawn as PyTorch's layers draw theirs.
impl Store {
    pub(crate) fn conv(&mut self, name: &str, input: i64, output: i64) -> Conv {
        let (weight, bias) = self.weight_and_bias(name, &[output, input, 3, 3], output);
        Conv { weight, bias }
    }

    pub(crate) fn double(&mut self, name: &str, input: i64, output: i64) -> Double {
        let (weight, bias) = self.weight_and_bias(name, &[input, output, 2, 2], output);
        Double { weight, bias }
    }

    pub(crate) fn output(&mut self, name: &str, input: i64, output: i64) -> Output {
        let weight = self.zeros(format!("{name}.weight"), &[output, input, 1, 1]);
        Output { weight, bias: self.zeros(format!("{name}.bias"), &[output]) }
    }
}
