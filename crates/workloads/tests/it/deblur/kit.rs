//! Small films, and the sharpener trained on them.

use lowtide_core::Event;
use lowtide_torch::tch::Tensor;
use lowtide_train::{Result, Summary};
use lowtide_workloads::deblur::{DataSettings, ModelSettings, Source};

use crate::kit::{self, shipped};

pub(crate) const MODEL: ModelSettings = ModelSettings { channels: 8, blocks: 2, heads: 2, window: 4 };
/// Frames that are no whole windows.
pub(crate) const DATA: DataSettings = DataSettings {
    source: Source::Synthetic,
    folder: None,
    eval_folder: None,
    eval_scenes: None,
    height: 61,
    width: 90,
    crop: 16,
    frames: 2,
    moments: 4,
    speed: 5.0,
};

/// Trains the tiny configuration, changed by `overrides`, on one thread of the CPU.
pub(crate) fn train(overrides: &[&str]) -> Result<(Summary, Vec<Event>)> {
    kit::train(&shipped("deblur-tiny", overrides))
}

/// (7 x + 13 y + 29 c + factor x y) mod 64, from 0 to 1.
pub(crate) fn image(height: i64, width: i64, factor: i64) -> Tensor {
    let values: Vec<f32> = (0..3 * height * width)
        .map(|at| (at / (height * width), at / width % height, at % width))
        .map(|(c, y, x)| ((7 * x + 13 * y + 29 * c + factor * x * y) % 64) as f32 / 63.0)
        .collect();
    Tensor::from_slice(&values).view([3, height, width])
}
