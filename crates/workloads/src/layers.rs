//! What models are made of: parameters by name, and layers. Fresh values are drawn as PyTorch's layers draw theirs, where
//! nothing else is said; each model adds layers of its own.

use std::collections::BTreeMap;

use lowtide_torch::tch::{Device, Kind, Tensor};
use lowtide_torch::{LayerNorm, Product, linear};
use lowtide_train::Mode;

/// Parameters by name, drawn from the engine's generator.
pub(crate) struct Store {
    pub(crate) device: Device,
    parameters: BTreeMap<String, Tensor>,
}

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
        linear(x, &self.weight, Some(&self.bias))
    }

    /// The same, for a function that can add the bias by itself.
    pub(crate) fn product(&self, x: &Tensor) -> Product<'_> {
        Product::of(x, &self.weight, &self.bias)
    }
}

impl Norm {
    pub(crate) fn apply(&self, x: &Tensor) -> Tensor {
        self.split(x).1
    }

    /// `x`, to go on with, and its normalised values.
    pub(crate) fn split(&self, x: &Tensor) -> (Tensor, Tensor) {
        self.layer().apply(x)
    }

    /// `x` and `more` added up, and that sum normalised.
    pub(crate) fn after_adding(&self, x: &Tensor, more: &Product<'_>) -> (Tensor, Tensor) {
        self.layer().after_adding(x, more)
    }

    fn layer(&self) -> LayerNorm<'_> {
        LayerNorm { weight: &self.weight, bias: &self.bias, epsilon: 1e-5 }
    }
}

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

/// A 3 x 3 convolution that sees zeros beyond the frame.
pub(crate) struct PlainConv {
    weight: Tensor,
    bias: Tensor,
}

impl PlainConv {
    /// Pixels that an output sees to each side.
    pub(crate) const REACH: u32 = 1;

    pub(crate) fn apply(&self, x: &Tensor) -> Tensor {
        x.conv2d(&self.weight, Some(&self.bias), 1, 1, 1, 1)
    }
}

/// Drops values in training and nothing in evaluation.
#[derive(Clone)]
pub(crate) struct Dropout {
    share: f64,
    mode: Mode,
}

impl Dropout {
    /// Drops `share` of the values while `mode` says that the model trains.
    pub(crate) fn new(share: f64, mode: &Mode) -> Dropout {
        Dropout { share, mode: mode.clone() }
    }

    /// The share that is dropped now.
    pub(crate) fn rate(&self) -> f64 {
        if self.mode.is_training() { self.share } else { 0.0 }
    }

    pub(crate) fn apply(&self, x: Tensor) -> Tensor {
        if self.rate() == 0.0 { x } else { x.dropout(self.share, true) }
    }

    /// What a layer gives, with values dropped.
    pub(crate) fn of<'a>(&self, layer: &'a Linear, x: &Tensor) -> Product<'a> {
        if self.rate() == 0.0 { layer.product(x) } else { self.apply(layer.apply(x)).into() }
    }

    /// The same from its values alone, and the bias of the layer: where values are dropped it is among them.
    pub(crate) fn product<'a>(&self, values: Tensor, bias: &'a Tensor) -> Product<'a> {
        Product { values, bias: (self.rate() == 0.0).then_some(bias) }
    }
}

impl Store {
    pub(crate) fn new(device: Device) -> Store {
        Store { device, parameters: BTreeMap::new() }
    }

    pub(crate) fn into_parameters(self) -> BTreeMap<String, Tensor> {
        self.parameters
    }

    /// Even between plus and minus `bound`.
    pub(crate) fn uniform(&mut self, name: String, shape: &[i64], bound: f64) -> Tensor {
        let value = (Tensor::rand(shape, (Kind::Float, self.device)) * 2.0 - 1.0) * bound;
        self.keep(name, value)
    }

    pub(crate) fn zeros(&mut self, name: String, shape: &[i64]) -> Tensor {
        let value = Tensor::zeros(shape, (Kind::Float, self.device));
        self.keep(name, value)
    }

    pub(crate) fn keep(&mut self, name: String, value: Tensor) -> Tensor {
        let value = value.set_requires_grad(true);
        self.parameters.insert(name, value.shallow_clone());
        value
    }

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

    pub(crate) fn plain_conv(&mut self, name: &str, input: u32, output: u32) -> PlainConv {
        let (input, output) = (i64::from(input), i64::from(output));
        // He's: values keep their size through the chain.
        let bound = (6.0 / (input * 9) as f64).sqrt();
        let weight = self.uniform(format!("{name}.weight"), &[output, input, 3, 3], bound);
        PlainConv { weight, bias: self.zeros(format!("{name}.bias"), &[output]) }
    }

    /// A convolution that starts at zero.
    pub(crate) fn zero_conv(&mut self, name: &str, input: u32, output: u32) -> PlainConv {
        let (input, output) = (i64::from(input), i64::from(output));
        let weight = self.zeros(format!("{name}.weight"), &[output, input, 3, 3]);
        PlainConv { weight, bias: self.zeros(format!("{name}.bias"), &[output]) }
    }
}
