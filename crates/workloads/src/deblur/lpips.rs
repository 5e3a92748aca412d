//! LPIPS: how far apart two frames look, by the features of AlexNet (Zhang and others, 2018; version 0.1).
//!
//! The weights come from a file in safetensors with the names that the Python package `lpips` gives them. They are kept as
//! plain bytes, so that no line counts them while the model trains; a layer's are tensors while it is computed.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use lowtide_torch::Autocast;
use lowtide_torch::tch::{Device, Kind, Tensor};
use safetensors::{Dtype, SafeTensors};

/// The convolutions of AlexNet: name, channels in and out, pixels along each side, stride, and whether a pool goes before.
const LAYERS: [Layer; 5] = [
    Layer { name: "net.slice1.0", input: 3, output: 64, side: 11, stride: 4, pooled: false },
    Layer { name: "net.slice2.3", input: 64, output: 192, side: 5, stride: 1, pooled: true },
    Layer { name: "net.slice3.6", input: 192, output: 384, side: 3, stride: 1, pooled: true },
    Layer { name: "net.slice4.8", input: 384, output: 256, side: 3, stride: 1, pooled: false },
    Layer { name: "net.slice5.10", input: 256, output: 256, side: 3, stride: 1, pooled: false },
];
/// What colours from -1 to 1 are shifted and scaled by.
const SHIFT: [f32; 3] = [-0.030, -0.088, -0.188];
const SCALE: [f32; 3] = [0.458, 0.448, 0.450];
/// Keeps features that are all zero from being divided by zero.
const TINY: f64 = 1e-10;
/// More than the weights take, 10 MB.
const LARGEST: u64 = 256 << 20;

/// The least rows and columns of a frame that can be compared: of fewer, the last pool leaves nothing.
pub(crate) const LEAST_SIDE: u32 = 31;

struct Layer {
    name: &'static str,
    input: i64,
    output: i64,
    side: i64,
    stride: i64,
    pooled: bool,
}

/// A file that holds no weights for LPIPS.
#[derive(Debug, thiserror::Error)]
pub enum LpipsError {
    /// The system refused.
    #[error("{}: {source}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// It is something else.
    #[error("{}: these are not the weights of LPIPS with AlexNet: {problem}", path.display())]
    Other {
        /// The file.
        path: PathBuf,
        /// In what it differs.
        problem: String,
    },
}

/// The weights.
pub struct Lpips {
    layers: Vec<Weights>,
}

/// Of one layer: its convolution, and what a channel's difference counts.
struct Weights {
    weight: Values,
    bias: Values,
    linear: Values,
}

/// Numbers of 32 bits as they lie in the file.
struct Values {
    bytes: Vec<u8>,
    shape: Vec<i64>,
}

impl Lpips {
    /// Reads the weights. Tensors of other names in the file do not matter.
    ///
    /// # Errors
    ///
    /// [`LpipsError::Other`] names the first tensor that is missing or has another shape.
    pub fn open(path: &Path) -> Result<Lpips, LpipsError> {
        let unreadable = |source| LpipsError::Unreadable { path: path.to_owned(), source };
        let other = |problem: String| LpipsError::Other { path: path.to_owned(), problem };
        let length = fs::metadata(path).map_err(unreadable)?.len();
        if length > LARGEST {
            return Err(other(format!("it has {length} bytes, which is too many")));
        }
        let bytes = fs::read(path).map_err(unreadable)?;
        let file = SafeTensors::deserialize(&bytes)
            .map_err(|error| other(format!("it is not a safetensors file ({error})")))?;
        let tensor = |name: String, shape: &[i64]| {
            let view = file.tensor(&name).map_err(|_| other(format!("`{name}` is not there")))?;
            let there: Vec<i64> = view.shape().iter().map(|length| *length as i64).collect();
            if view.dtype() != Dtype::F32 || there != shape {
                return Err(other(format!("`{name}` is {:?} {there:?}, and must be F32 {shape:?}", view.dtype())));
            }
            Ok(Values { bytes: view.data().to_vec(), shape: there })
        };
        let mut layers = Vec::new();
        for (index, Layer { name, input, output, side, .. }) in LAYERS.iter().enumerate() {
            layers.push(Weights {
                weight: tensor(format!("{name}.weight"), &[*output, *input, *side, *side])?,
                bias: tensor(format!("{name}.bias"), &[*output])?,
                linear: tensor(format!("lin{index}.model.1.weight"), &[1, *output, 1, 1])?,
            });
        }
        Ok(Lpips { layers })
    }

    /// The distance of two frames \[3, rows, columns\] of values from 0 to 1, at least 31 by 31; 0 where they are equal.
    #[must_use]
    pub fn distance(&self, frame: &Tensor, reference: &Tensor, device: Device) -> f64 {
        // In 32 bits, whatever the run's precision is.
        let _wide = Autocast::enter(device, Kind::Float);
        let mut values = [frame, reference].map(|frame| prepared(frame, device));
        let mut distance = 0.0;
        for (layer, weights) in LAYERS.iter().zip(&self.layers) {
            let [weight, bias, linear] =
                [&weights.weight, &weights.bias, &weights.linear].map(|values| values.on(device));
            values = values.map(|values| layer.apply(&values, &weight, &bias));
            let difference = (unit(&values[0]) - unit(&values[1])).square();
            distance += difference.conv2d::<Tensor>(&linear, None, 1, 0, 1, 1).mean(Kind::Float).double_value(&[]);
        }
        distance
    }
}

impl Values {
    fn on(&self, device: Device) -> Tensor {
        Tensor::from_data_size(&self.bytes, &self.shape, Kind::Float).to_device(device)
    }
}

impl Layer {
    fn apply(&self, values: &Tensor, weight: &Tensor, bias: &Tensor) -> Tensor {
        let padding = if self.stride == 1 { self.side / 2 } else { 2 };
        let convolve = |values: &Tensor| values.conv2d(weight, Some(bias), self.stride, padding, 1, 1).relu();
        if self.pooled { convolve(&values.max_pool2d(3, 2, 0, 1, false)) } else { convolve(values) }
    }
}

/// One image as the network wants it.
fn prepared(frame: &Tensor, device: Device) -> Tensor {
    let colours = |values: [f32; 3]| Tensor::from_slice(&values).view([1, 3, 1, 1]).to_device(device);
    let values = frame.to_device(device).to_kind(Kind::Float).clamp(0.0, 1.0).unsqueeze(0) * 2.0 - 1.0;
    (values - colours(SHIFT)) / colours(SCALE)
}

/// Features of length 1 at every place.
fn unit(features: &Tensor) -> Tensor {
    features / (features.square().sum_dim_intlist([1i64].as_slice(), true, Kind::Float).sqrt() + TINY)
}
