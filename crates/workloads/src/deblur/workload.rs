//! The workload `deblur`: the network, its clips, and how the loop sees them. A sample is a clip.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::ops::Range;
use std::sync::Arc;

use lowtide_generators::films::{Region, Scenes};
use lowtide_settings::{CropChoice, LoadedSettings, RunSettings, SettingsError, TileChoice, typed};
use lowtide_torch::tch::{Device, Kind, Tensor};
use lowtide_torch::{Segment, attempt, refuse_input};
use lowtide_train::{Batch, Metric, Mode, Result, Tiling, Workload};

use super::clip_batch::{ClipBatch, Clips};
use super::film_error::FilmError;
use super::footage::Footage;
use super::lpips::{self, Lpips};
use super::metrics::{psnr, ssim};
use super::model::{network, receptive_field};
use super::settings::{DataSettings, LEAST_SIDE, ModelSettings, problem, size_problem};
use crate::ahead::Ahead;

/// The metric that needs a file.
const LPIPS: &str = "lpips";
/// Charbonnier's loss is the absolute error, rounded off below this.
const ROUND: f64 = 1e-3;

/// A network that sharpens films, and the films.
pub struct Deblur {
    data: DataSettings,
    clips: Clips,
    /// The clips of the next batch.
    ahead: Ahead<Result<ClipBatch, FilmError>>,
    tiling: Tiling,
    segments: Vec<Segment>,
    parameters: BTreeMap<String, Tensor>,
    mode: Mode,
    lpips: Option<Lpips>,
    device: Device,
}

impl Deblur {
    /// Builds it from the settings; returns them with its own defaults filled in.
    pub fn build(loaded: &LoadedSettings, device: Device) -> Result<(Deblur, RunSettings)> {
        let model: ModelSettings = typed(&loaded.settings.model, "model", &loaded.origins)?;
        let mut data: DataSettings = typed(&loaded.settings.data, "data", &loaded.origins)?;
        let refuse = |(key, problem): (&str, String)| Err(SettingsError::refused(key, problem, &loaded.origins));
        problem(&model, &data).map_or(Ok(()), refuse)?;
        let footage = Footage::open(&mut data, loaded.settings.seed, &loaded.origins)?;
        size_problem(&data).map_or(Ok(()), refuse)?;
        let crop = eval_crop(&data, &loaded.settings);
        let allowed = LEAST_SIDE..=data.height.min(data.width);
        if let CropChoice::Pixels(side) = crop
            && !allowed.contains(&side)
        {
            let problem =
                format!("must be from {LEAST_SIDE} to {}, the frame's smaller side, and is {side}", allowed.end());
            return Err(SettingsError::refused("eval.crop", problem, &loaded.origins).into());
        }
        let mut settings = RunSettings {
            model: serde_json::to_value(model).expect("plain numbers"),
            data: serde_json::to_value(&data).expect("paths came from text"),
            ..loaded.settings.clone()
        };
        settings.eval.crop = crop;
        let crop = match crop {
            CropChoice::Pixels(side) => Some(side),
            CropChoice::Auto | CropChoice::Whole => None,
        };
        let mut deblur = Deblur::with(&model, &data, footage, crop, settings.seed, device)?;
        deblur.lpips = deblur.open_lpips(loaded)?;
        Ok((deblur, settings))
    }

    /// A fresh network with the made-up clips of `seed`, evaluated on a crop in the middle or on whole frames.
    pub fn new(
        model: &ModelSettings,
        data: &DataSettings,
        crop: Option<u32>,
        seed: u64,
        device: Device,
    ) -> Result<Deblur> {
        Deblur::with(model, data, Footage::MadeUp(Scenes::new(&data.film_shape(), seed)), crop, seed, device)
    }

    fn with(
        model: &ModelSettings,
        data: &DataSettings,
        footage: Footage,
        crop: Option<u32>,
        seed: u64,
        device: Device,
    ) -> Result<Deblur> {
        let DataSettings { height, width, .. } = *data;
        let evaluated = match crop {
            Some(side) => Region::middle(height, width, side),
            None => Region { top: 0, left: 0, height, width },
        };
        let frame = [evaluated.height, evaluated.width];
        let tiling = Tiling { receptive_field: receptive_field(model), alignment: model.window, frame, global: None };
        let (segments, parameters) = attempt(|| network(model, data, device))?;
        let train_size = footage.train_size(data);
        let clips = Clips { footage: Arc::new(footage), train_size, crop: data.crop, evaluated, seed };
        let (data, mode, ahead) = (data.clone(), Mode::default(), Ahead::default());
        Ok(Deblur { data, clips, ahead, tiling, segments, parameters, mode, lpips: None, device })
    }

    fn open_lpips(&self, loaded: &LoadedSettings) -> Result<Option<Lpips>> {
        let eval = &loaded.settings.eval;
        let refuse = |key: &str, problem: String| Err(SettingsError::refused(key, problem, &loaded.origins).into());
        let Some(path) = &eval.lpips else {
            let is_asked = eval.metrics.iter().flatten().any(|name| name == LPIPS);
            return if is_asked {
                refuse("eval.metrics", format!("`{LPIPS}` needs a file of weights: set eval.lpips"))
            } else {
                Ok(None)
            };
        };
        let Region { height, width, .. } = self.clips.evaluated;
        let least = lpips::LEAST_SIDE;
        if height.min(width) < least {
            let problem =
                format!("it takes at least {least} x {least} pixels, and {width} x {height} are evaluated of a frame");
            return refuse("eval.lpips", problem);
        }
        Lpips::open(path).map(Some).or_else(|error| refuse("eval.lpips", error.to_string()))
    }

    /// Clips on the host. A file that cannot be read ends the enclosing attempt.
    fn batch(&self, clips: Result<ClipBatch, FilmError>) -> Batch {
        clips.unwrap_or_else(|error| refuse_input(error)).into_batch(&self.data)
    }

    /// The mean of a figure over frames.
    fn mean<'a>(&'a self, name: &'static str, figure: impl Fn(&Tensor, &Tensor, Device) -> f64 + 'a) -> Metric<'a> {
        Metric::mean(name, move |outputs: &[Tensor], batch: &Batch| {
            let frames = |tensor: &Tensor| tensor.flatten(0, 1).unbind(0);
            let pairs = frames(&outputs[0]).into_iter().zip(frames(&batch.targets[0]));
            let sum: f64 = pairs.map(|(frame, sharp)| figure(&frame, &sharp, self.device)).sum();
            Tensor::from(sum / f64::from(self.data.frames))
        })
    }
}

fn numbers(first: u64, count: u32) -> Range<u64> {
    first..first + u64::from(count)
}

/// What `eval.crop` comes to.
fn eval_crop(data: &DataSettings, settings: &RunSettings) -> CropChoice {
    match (settings.eval.crop, settings.eval.tile) {
        (CropChoice::Auto, TileChoice::None) => CropChoice::Pixels(data.crop),
        (CropChoice::Auto, _) => CropChoice::Whole,
        (crop, _) => crop,
    }
}

impl Workload for Deblur {
    fn name(&self) -> &str {
        "deblur"
    }

    fn state(&self) -> BTreeMap<String, Tensor> {
        self.parameters.iter().map(|(name, value)| (name.clone(), value.shallow_clone())).collect()
    }

    fn mode(&self) -> &Mode {
        &self.mode
    }

    fn segments(&self) -> &[Segment] {
        &self.segments
    }

    /// Charbonnier's loss, with a target for each colour of each pixel.
    fn loss_sum(&self, outputs: &[Tensor], batch: &Batch, _chunks: NonZeroU32) -> Tensor {
        let error = outputs[0].to_kind(Kind::Float) - &batch.targets[0];
        (error.square() + ROUND * ROUND).sqrt().sum(Kind::Float)
    }

    /// PSNR in dB, SSIM and, where its weights are there, LPIPS: means over the frames of a clip.
    fn metrics(&self) -> Vec<Metric<'_>> {
        let mut metrics = vec![self.mean("psnr", psnr), self.mean("ssim", ssim)];
        if let Some(lpips) = &self.lpips {
            metrics.push(self.mean(LPIPS, |frame, sharp, device| lpips.distance(frame, sharp, device)));
        }
        metrics
    }

    fn prepare(&self, first: u64, count: u32) {
        let clips = self.clips.clone();
        self.ahead.begin(first, count, move || clips.train(numbers(first, count)));
    }

    fn train_batch(&self, first: u64, count: u32) -> Batch {
        let clips = self.ahead.take(first, count).unwrap_or_else(|| self.clips.train(numbers(first, count)));
        self.batch(clips).to_device(self.device)
    }

    fn eval_batch(&self, first: u64, count: u32) -> Batch {
        self.batch(self.clips.eval(numbers(first, count)))
    }

    fn eval_samples(&self) -> Option<u64> {
        self.clips.footage.eval_clips()
    }

    fn tiling(&self) -> Result<Tiling, &'static str> {
        Ok(self.tiling)
    }

    fn targets_per_sample(&self) -> u64 {
        u64::from(self.data.frames) * 3 * u64::from(self.data.crop) * u64::from(self.data.crop)
    }
}
