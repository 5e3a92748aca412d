//! Where clips come from: made up, or in files.

use std::num::NonZeroUsize;

use lowtide_generators::films::Scenes;
use lowtide_generators::films::{Clip, Region};
use lowtide_settings::{Origins, SettingsError};

use super::film_error::FilmError;
use super::films::Films;
use super::settings::{DataSettings, Source};

/// Evaluation clips that are made up are numbered from here, far above any for training.
const EVALUATION: u64 = 1 << 62;

/// Clips, each a pure function of its number.
pub(crate) enum Footage {
    MadeUp(Scenes),
    Filmed(Films),
}

impl Footage {
    /// Opens what the settings name, and puts the size of the frames to evaluate on into them.
    pub(crate) fn open(data: &mut DataSettings, seed: u64, origins: &Origins) -> Result<Footage, SettingsError> {
        let refused = |key: &str, problem: String| SettingsError::refused(key, problem, origins);
        if data.source == Source::Synthetic {
            return Ok(Footage::MadeUp(Scenes::new(&data.film_shape(), seed)));
        }
        if data.folder.is_none() {
            return Err(refused("data.folder", "the source `frames` needs a folder of scenes".to_owned()));
        }
        let films = Films::open(data, seed).map_err(|(key, error)| refused(key, error.to_string()))?;
        let [height, width] = films.eval_size();
        let [train_height, train_width] = films.train_size();
        if data.crop > train_height.min(train_width) {
            let problem = format!(
                "a crop of {} is larger than the frames to train on, {train_width} x {train_height} pixels",
                data.crop
            );
            return Err(refused("data.crop", problem));
        }
        (data.height, data.width) = (height, width);
        Ok(Footage::Filmed(films))
    }

    /// Rows and columns of the frames to train on; `data` has those to evaluate on.
    pub(crate) fn train_size(&self, data: &DataSettings) -> [u32; 2] {
        match self {
            Footage::MadeUp(_) => [data.height, data.width],
            Footage::Filmed(films) => films.train_size(),
        }
    }

    /// A region of a clip for training, made or read by so many threads.
    pub(crate) fn train_clip(&self, number: u64, region: Region, threads: NonZeroUsize) -> Result<Clip, FilmError> {
        match self {
            Footage::MadeUp(scenes) => Ok(scenes.clip(number, region, threads)),
            Footage::Filmed(films) => films.train_clip(number, region, threads),
        }
    }

    /// A region of a clip for evaluation, likewise.
    pub(crate) fn eval_clip(&self, number: u64, region: Region, threads: NonZeroUsize) -> Result<Clip, FilmError> {
        match self {
            Footage::MadeUp(scenes) => Ok(scenes.clip(EVALUATION + number, region, threads)),
            Footage::Filmed(films) => films.eval_clip(number, region, threads),
        }
    }

    /// Clips for evaluation, where they come to an end.
    pub(crate) fn eval_clips(&self) -> Option<u64> {
        match self {
            Footage::MadeUp(_) => None,
            Footage::Filmed(films) => Some(films.eval_clips()),
        }
    }
}
