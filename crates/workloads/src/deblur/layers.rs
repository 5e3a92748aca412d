//! The layers of the network.

use lowtide_torch::tch::{Kind, Tensor};

use crate::store::Store;

/// A 3 x 3 convolution that sees zeros beyond the frame.
pub(crate) struct PlainConv {
    weight: Tensor,
    bias: Tensor,
}

/// A linear layer over the last dimension.
pub(crate) struct Linear {
    weight: Tensor,
    bias: Tensor,
}

/// Normalisation over the last dimension.
pub(crate) struct Norm {
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

    /// A linear layer, drawn as PyTorch's are.
    pub(crate) fn mixer(&mut self, name: &str, input: u32, output: u32) -> Linear {
        let (input, output) = (i64::from(input), i64::from(output));
        let bound = 1.0 / (input as f64).sqrt();
        let weight = self.uniform(format!("{name}.weight"), &[output, input], bound);
        Linear { weight, bias: self.uniform(format!("{name}.bias"), &[output], bound) }
    }

    pub(crate) fn channel_norm(&mut self, name: &str, channels: u32) -> Norm {
        let ones = Tensor::ones([i64::from(channels)], (Kind::Float, self.device));
        let weight = self.keep(format!("{name}.weight"), ones);
        Norm { weight, bias: self.zeros(format!("{name}.bias"), &[i64::from(channels)]) }
    }

    pub(crate) fn zeros(&mut self, name: String, shape: &[i64]) -> Tensor {
        let value = Tensor::zeros(shape, (Kind::Float, self.device));
        self.keep(name, value)
    }
}
