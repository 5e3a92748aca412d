//! The layers of an operator, and the store that makes and names their parameters.

use std::collections::BTreeMap;

use lowtide_torch::tch::{Device, Kind, Tensor};

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

/// Makes parameters and remembers them by name. Fresh values are drawn as PyTorch's layers draw theirs.
pub(crate) struct Store {
    device: Device,
    parameters: BTreeMap<String, Tensor>,
}

impl Store {
    pub(crate) fn new(device: Device) -> Store {
        Store { device, parameters: BTreeMap::new() }
    }

    pub(crate) fn into_parameters(self) -> BTreeMap<String, Tensor> {
        self.parameters
    }

    pub(crate) fn conv(&mut self, name: &str, input: i64, output: i64) -> Conv {
        let (weight, bias) = self.uniform(name, &[output, input, 3, 3], output);
        Conv { weight, bias }
    }

    pub(crate) fn double(&mut self, name: &str, input: i64, output: i64) -> Double {
        let (weight, bias) = self.uniform(name, &[input, output, 2, 2], output);
        Double { weight, bias }
    }

    pub(crate) fn output(&mut self, name: &str, input: i64, output: i64) -> Output {
        let zeros = |shape: &[i64]| Tensor::zeros(shape, (Kind::Float, self.device));
        let (weight, bias) = (zeros(&[output, input, 1, 1]), zeros(&[output]));
        let weight = self.keep(format!("{name}.weight"), weight);
        Output { weight, bias: self.keep(format!("{name}.bias"), bias) }
    }

    /// Weight and bias, even between plus and minus 1 / sqrt(values that a dimension past the first holds).
    fn uniform(&mut self, name: &str, shape: &[i64], biases: i64) -> (Tensor, Tensor) {
        let bound = 1.0 / (shape[1..].iter().product::<i64>() as f64).sqrt();
        let draw = |shape: &[i64]| (Tensor::rand(shape, (Kind::Float, self.device)) * 2.0 - 1.0) * bound;
        let (weight, bias) = (draw(shape), draw(&[biases]));
        (self.keep(format!("{name}.weight"), weight), self.keep(format!("{name}.bias"), bias))
    }

    fn keep(&mut self, name: String, value: Tensor) -> Tensor {
        let value = value.set_requires_grad(true);
        self.parameters.insert(name, value.shallow_clone());
        value
    }
}
