//! The settings of `model.*` and `data.*` for the workload `deblur`.

use std::path::PathBuf;

use lowtide_generators::films::FilmShape;
use serde::{Deserialize, Serialize};

/// The network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ModelSettings {
    /// Channels of the features. Default 96.
    pub channels: u32,
    /// Blocks of temporal mutual attention, each a segment: the unit of recompute. Default 4.
    pub blocks: u32,
    /// Heads of attention; they divide `channels`. Default 6.
    pub heads: u32,
    /// Pixels along each side of an attention window. Default 8.
    pub window: u32,
}

impl Default for ModelSettings {
    fn default() -> ModelSettings {
        ModelSettings { channels: 96, blocks: 4, heads: 6, window: 8 }
    }
}

/// The clips.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct DataSettings {
    /// Where films come from. Default `synthetic`: made up.
    pub source: Source,
    /// For `frames`: the folder with a folder for each scene.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub folder: Option<PathBuf>,
    /// For `frames`: a folder like it, with the scenes to evaluate on. Default: the last scenes of `folder`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub eval_folder: Option<PathBuf>,
    /// For `frames`: how many of the last scenes of `folder` are evaluated on and not trained on, where there is no
    /// `eval_folder`. Default: 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub eval_scenes: Option<u32>,
    /// Rows of a frame. Default 1080; for `frames`, those of the files that are evaluated on, whatever it says.
    pub height: u32,
    /// Columns of a frame. Default 1920; for `frames`, as `height`.
    pub width: u32,
    /// Pixels along each side of the crops that are trained on. Default 256.
    pub crop: u32,
    /// Blurred frames in a clip. Default 6.
    pub frames: u32,
    /// Moments in the exposure of a frame: those that blur averages, each with one layer of spikes. Default 16.
    pub moments: u32,
    /// The most pixels that something moves in the exposure of a frame, where it is made up. Default 12.
    pub speed: f32,
}

impl DataSettings {
    /// What made-up films are like.
    pub(crate) fn film_shape(&self) -> FilmShape {
        let DataSettings { height, width, frames, moments, speed, .. } = *self;
        FilmShape { height, width, frames, moments, speed }
    }
}

/// A source of films.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// Made up.
    #[default]
    Synthetic,
    /// Folders of PNG files.
    Frames,
}

impl Default for DataSettings {
    fn default() -> DataSettings {
        DataSettings {
            source: Source::Synthetic,
            folder: None,
            eval_folder: None,
            eval_scenes: None,
            height: 1080,
            width: 1920,
            crop: 256,
            frames: 6,
            moments: 16,
            speed: 12.0,
        }
    }
}

/// What is wrong apart from sizes, as (key, problem).
pub(crate) fn problem(model: &ModelSettings, data: &DataSettings) -> Option<(&'static str, String)> {
    let counts = [
        ("model.channels", model.channels),
        ("model.blocks", model.blocks),
        ("model.heads", model.heads),
        ("model.window", model.window),
        ("data.frames", data.frames),
        ("data.moments", data.moments),
    ];
    if let Some((key, _)) = counts.iter().find(|(_, value)| *value == 0) {
        return Some((key, "must be at least 1".to_owned()));
    }
    if !model.channels.is_multiple_of(model.heads) {
        let problem = format!("{} channels cannot be shared by {} heads", model.channels, model.heads);
        return Some(("model.heads", problem));
    }
    let of_frames = [
        ("data.folder", data.folder.is_some()),
        ("data.eval_folder", data.eval_folder.is_some()),
        ("data.eval_scenes", data.eval_scenes.is_some()),
    ];
    if data.source == Source::Synthetic
        && let Some((key, _)) = of_frames.iter().find(|(_, is_there)| *is_there)
    {
        return Some((key, "this is for films in files: set data.source to frames".to_owned()));
    }
    if !(0.0..=MOST_SPEED).contains(&data.speed) {
        return Some(("data.speed", format!("must be from 0 to {MOST_SPEED} pixels, and is {}", data.speed)));
    }
    None
}

/// What is wrong with the sizes of frames and crops, as (key, problem).
pub(crate) fn size_problem(data: &DataSettings) -> Option<(&'static str, String)> {
    let sides = [("data.height", data.height), ("data.width", data.width), ("data.crop", data.crop)];
    if let Some((key, side)) = sides.iter().find(|(_, side)| !(LEAST_SIDE..=MOST_SIDE).contains(side)) {
        let problem = format!("must be from {LEAST_SIDE} (the window of SSIM) to {MOST_SIDE} pixels, and is {side}");
        return Some((key, problem));
    }
    if data.crop > data.height.min(data.width) {
        let problem = format!("a crop of {} is larger than a frame of {} x {}", data.crop, data.width, data.height);
        return Some(("data.crop", problem));
    }
    None
}

/// SSIM compares windows of this many pixels.
pub(crate) const LEAST_SIDE: u32 = 11;
pub(crate) const MOST_SIDE: u32 = 1 << 15;
const MOST_SPEED: f32 = 1000.0;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_are_fine_and_wrong_values_are_named() {
        let (model, data) = (ModelSettings::default(), DataSettings::default());
        let model_key = |model| problem(&model, &data).map(|(key, _)| key);
        assert_eq!(model_key(model), None);
        assert_eq!(model_key(ModelSettings { blocks: 0, ..model }), Some("model.blocks"));
        assert_eq!(model_key(ModelSettings { heads: 5, ..model }), Some("model.heads"));
        let data_key = |change: fn(&mut DataSettings)| {
            let mut data = data.clone();
            change(&mut data);
            problem(&model, &data).or_else(|| size_problem(&data)).map(|(key, _)| key)
        };
        assert_eq!(data_key(|_| {}), None);
        assert_eq!(data_key(|data| data.width = 10), Some("data.width"));
        assert_eq!(data_key(|data| data.crop = 1081), Some("data.crop"));
        assert_eq!(data_key(|data| data.speed = f32::NAN), Some("data.speed"));
        assert_eq!(data_key(|data| data.eval_scenes = Some(2)), Some("data.eval_scenes"));
    }
}
