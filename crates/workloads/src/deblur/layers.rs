//! The convolutions of the network.

use lowtide_torch::tch::Tensor;

use crate::store::Store;

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
}
