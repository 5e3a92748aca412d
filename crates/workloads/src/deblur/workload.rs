//! The workload `deblur`: the network, its clips, and how the loop sees them. A sample is a clip.

use std::collections::BTreeMap;
use std::num::NonZeroU32;

use lowtide_generators::Random;
use lowtide_generators::films::Scenes;
use lowtide_generators::films::{Clip, Region};
use lowtide_settings::{CropChoice, LoadedSettings, RunSettings, SettingsError, TileChoice, typed};
use lowtide_torch::tch::{Device, Kind, Tensor};
use lowtide_torch::{Segment, attempt};
use lowtide_train::{Batch, Metric, Mode, Result, Tiling, Workload};

use super::footage::Footage;
use super::lpips::{self, Lpips};
use super::metrics::{psnr, ssim};
use super::model::{network, receptive_field};
use super::settings::{DataSettings, LEAST_SIDE, ModelSettings, problem, size_problem};

/// Crops are drawn apart from what is in the clip.
const CROPS: u64 = 0x6372_6f70;
/// The metric that needs a file.
const LPIPS: &str = "lpips";
/// Charbonnier's loss is the absolute error, rounded off below this.
const ROUND: f64 = 1e-3;

/// A network that sharpens films, and the films.
pub struct Deblur {
    data: DataSettings,
    /// What of each frame is evaluated.
    evaluated: Region,
    tiling: Tiling,
    segments: Vec<Segment>,
    parameters: BTreeMap<String, Tensor>,
    mode: Mode,
    footage: Footage,
    lpips: Option<Lpips>,
    seed: u64,
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
        let (data, mode) = (data.clone(), Mode::default());
        Ok(Deblur { data, evaluated, tiling, segments, parameters, mode, footage, lpips: None, seed, device })
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
        let Region { height, width, .. } = self.evaluated;
        let least = lpips::LEAST_SIDE;
        if height.min(width) < least {
            let problem =
                format!("it takes at least {least} x {least} pixels, and {width} x {height} are evaluated of a frame");
            return refuse("eval.lpips", problem);
        }
        Lpips::open(path).map(Some).or_else(|error| refuse("eval.lpips", error.to_string()))
    }

    /// Clips `first .. first + count`, all of one size, on the host.
    fn batch(&self, first: u64, count: u32, clip: impl Fn(u64) -> (Clip, Region)) -> Batch {
        let clips: Vec<Batch> = (first..first + u64::from(count)).map(|number| self.sample(clip(number))).collect();
        let join = |of: fn(&Batch) -> &Vec<Tensor>, index: usize| {
            Tensor::cat(&clips.iter().map(|clip| &of(clip)[index]).collect::<Vec<_>>(), 0)
        };
        Batch {
            inputs: vec![join(|clip| &clip.inputs, 0), join(|clip| &clip.inputs, 1)],
            targets: vec![join(|clip| &clip.targets, 0)],
            targets_per_sample: clips[0].targets_per_sample,
        }
    }

    fn sample(&self, (clip, region): (Clip, Region)) -> Batch {
        let shape = |planes: u32| [1, self.data.frames, planes, region.height, region.width].map(i64::from);
        let colours = |values: &[f32]| Tensor::from_slice(values).view(shape(3));
        let spikes = Tensor::from_slice(&clip.spikes).view(shape(self.data.moments));
        let inputs = vec![colours(&clip.blurred), spikes];
        Batch { inputs, targets: vec![colours(&clip.sharp)], targets_per_sample: clip.sharp.len() as u64 }
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

    /// Where clip `number` is cropped for training.
    fn crop(&self, number: u64) -> Region {
        let crop = self.data.crop;
        let [height, width] = self.footage.train_size(&self.data);
        let mut random = Random::new(self.seed ^ CROPS, number);
        let mut place = |length: u32| u32::try_from(random.below(u64::from(length - crop) + 1)).expect("in the frame");
        Region { top: place(height), left: place(width), height: crop, width: crop }
    }
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

    fn train_batch(&self, first: u64, count: u32) -> Batch {
        let clip = |number| {
            let region = self.crop(number);
            (self.footage.train_clip(number, region), region)
        };
        self.batch(first, count, clip).to_device(self.device)
    }

    fn eval_batch(&self, first: u64, count: u32) -> Batch {
        self.batch(first, count, |number| (self.footage.eval_clip(number, self.evaluated), self.evaluated))
    }

    fn eval_samples(&self) -> Option<u64> {
        self.footage.eval_clips()
    }

    fn tiling(&self) -> Result<Tiling, &'static str> {
        Ok(self.tiling)
    }

    fn targets_per_sample(&self) -> u64 {
        u64::from(self.data.frames) * 3 * u64::from(self.data.crop) * u64::from(self.data.crop)
    }
}
