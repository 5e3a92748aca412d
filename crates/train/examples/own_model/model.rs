//! A model of one's own: a small network that learns a curve.

use std::collections::BTreeMap;
use std::num::NonZeroU32;

use lowtide_torch::tch::{Device, Kind, Reduction, Tensor, no_grad};
use lowtide_torch::{Segment, Shared};
use lowtide_train::{Batch, Mode, Workload};

/// Evaluation samples are numbered from here.
const EVALUATION: u64 = 1 << 40;

/// Learns the sine of numbers between -3 and 3.
pub(crate) struct Curve {
    mode: Mode,
    parameters: Vec<(String, Tensor)>,
    /// The running mean of what the first layer sees: a buffer, which is saved and not trained.
    mean: Tensor,
    segments: Vec<Segment>,
}

impl Curve {
    /// Draws its parameters from the engine's generator, so seed that first.
    pub(crate) fn new(width: i64) -> Curve {
        let mode = Mode::default();
        let fresh = |size: &[i64]| (Tensor::randn(size, (Kind::Float, Device::Cpu)) * 0.5).set_requires_grad(true);
        let layers = [fresh(&[width, 1]), fresh(&[width]), fresh(&[1, width]), fresh(&[1])];
        let names = ["in.weight", "in.bias", "out.weight", "out.bias"];
        let parameters = names.iter().zip(&layers).map(|(name, layer)| (name.to_string(), layer.shallow_clone()));
        let parameters = parameters.collect();
        let mean = Tensor::zeros([1], (Kind::Float, Device::Cpu));

        // A segment is what can be computed again in backward; it shares the tensors that it uses.
        let [w1, b1, w2, b2] = layers;
        let first = Shared::new((w1, b1, mean.shallow_clone(), mode.clone()));
        let second = Shared::new((w2, b2));
        let segments = vec![
            Segment::new(move |inputs| {
                let (weight, bias, mean, mode) = &*first;
                if mode.is_training() {
                    let batch_mean = inputs[0].mean_dim(0, false, Kind::Float);
                    let _ = no_grad(|| mean.shallow_clone().lerp_(&batch_mean, 0.1));
                }
                vec![inputs[0].linear(weight, Some(bias)).tanh().dropout(0.1, mode.is_training())]
            })
            .with_buffers(&[mean.shallow_clone()]),
            Segment::new(move |inputs| vec![inputs[0].linear(&second.0, Some(&second.1))]),
        ];
        Curve { mode, parameters, mean, segments }
    }
}

impl Workload for Curve {
    fn name(&self) -> &str {
        "curve"
    }

    fn state(&self) -> BTreeMap<String, Tensor> {
        let named = self.parameters.iter().map(|(name, value)| (name.clone(), value.shallow_clone()));
        named.chain([("mean".to_owned(), self.mean.shallow_clone())]).collect()
    }

    fn parameter_groups(&self) -> Vec<(f64, Vec<(String, Tensor)>)> {
        let all = self.parameters.iter().map(|(name, value)| (name.clone(), value.shallow_clone()));
        let (weights, biases) = all.partition(|(name, _)| name.ends_with("weight"));
        vec![(1.0, weights), (0.0, biases)]
    }

    fn mode(&self) -> &Mode {
        &self.mode
    }

    fn segments(&self) -> &[Segment] {
        &self.segments
    }

    fn loss_sum(&self, outputs: &[Tensor], batch: &Batch, _chunks: NonZeroU32) -> Tensor {
        outputs[0].mse_loss(&batch.targets[0], Reduction::Sum)
    }

    fn train_batch(&self, first: u64, count: u32) -> Batch {
        // A sample depends on its number alone, so that a step can be repeated and a run resumed.
        let golden = |number: u64| ((number as f64 * 0.618_033_988_75).fract() * 6.0 - 3.0) as f32;
        let numbers: Vec<f32> = (first..first + u64::from(count)).map(golden).collect();
        let inputs = Tensor::from_slice(&numbers).unsqueeze(1);
        Batch { targets: vec![inputs.sin()], inputs: vec![inputs], targets_per_sample: 1 }
    }

    fn eval_batch(&self, first: u64, count: u32) -> Batch {
        self.train_batch(EVALUATION + first, count)
    }

    fn targets_per_sample(&self) -> u64 {
        1
    }
}
