//! Folders of scenes: those to train on and those to evaluate on.

use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

use lowtide_generators::Random;
use lowtide_generators::films::{Clip, Region};

use super::film::{ClipLength, Film, folders_in};
use super::film_error::FilmError;
use super::png_file;
use super::settings::DataSettings;

/// What is drawn for a clip is drawn apart from its crop.
const TAKES: u64 = 0x7461_6b65;
/// Clips for evaluation are numbered from here where charges are drawn.
const EVALUATION: u64 = 1 << 62;

/// SceneSet in files. Clips are pure functions of their number.
pub(crate) struct Films {
    seed: u64,
    length: ClipLength,
    train: SceneSet,
    /// Frames that clips can begin with, in all scenes for training up to and with this one.
    starts: Vec<u64>,
    eval: SceneSet,
    /// Every clip for evaluation: those that begin the scenes first.
    takes: Vec<(usize, usize)>,
}

/// SceneSet whose frames have one size.
struct SceneSet {
    films: Vec<Film>,
    /// Rows and columns.
    size: [u32; 2],
}

impl Films {
    /// Looks at the folders and at the header of every file; what is wrong comes with the setting that it is about.
    pub(crate) fn open(data: &DataSettings, seed: u64) -> Result<Films, (&'static str, FilmError)> {
        let length = ClipLength { frames: data.frames as usize, moments: data.moments as usize };
        let folder = data.folder.as_deref().expect("the settings were checked: there is a folder");
        let of_folder = |error| ("data.folder", error);
        let of_eval_folder = |error| ("data.eval_folder", error);
        let mut train = films_in(folder).map_err(of_folder)?;
        let (train, eval) = match data.eval_folder.as_deref() {
            Some(other) => {
                let eval = films_in(other).map_err(of_eval_folder)?;
                (SceneSet::new(train).map_err(of_folder)?, SceneSet::new(eval).map_err(of_eval_folder)?)
            }
            None => {
                let (there, evaluated) = (train.len(), data.eval_scenes.unwrap_or(1) as usize);
                if there <= evaluated {
                    return Err(of_folder(FilmError::NothingToTrainOn { path: folder.to_owned(), there, evaluated }));
                }
                let eval = train.split_off(there - evaluated);
                let (train, eval) =
                    SceneSet::new(train).and_then(|train| Ok((train, SceneSet::new(eval)?))).map_err(of_folder)?;
                (train, eval)
            }
        };
        let mut starts = Vec::new();
        for film in &train.films {
            let before = starts.last().copied().unwrap_or(0);
            starts.push(before + film.starts(length).map_err(of_folder)? as u64);
        }
        let of_eval = if data.eval_folder.is_some() { of_eval_folder } else { of_folder };
        let takes = eval.takes(length).map_err(of_eval)?;
        Ok(Films { seed, length, train, starts, eval, takes })
    }

    /// Rows and columns of the frames to train on.
    pub(crate) fn train_size(&self) -> [u32; 2] {
        self.train.size
    }

    /// Rows and columns of the frames to evaluate on.
    pub(crate) fn eval_size(&self) -> [u32; 2] {
        self.eval.size
    }

    /// Clips to evaluate on.
    pub(crate) fn eval_clips(&self) -> u64 {
        self.takes.len() as u64
    }

    /// A region of clip `number` for training: of any scene, beginning with any frame, all alike.
    pub(crate) fn train_clip(&self, number: u64, region: Region, threads: NonZeroUsize) -> Result<Clip, FilmError> {
        let mut random = Random::new(self.seed ^ TAKES, number);
        let all = *self.starts.last().expect("there is a scene to train on");
        let start = random.below(all);
        let film = self.starts.partition_point(|end| *end <= start);
        let before = film.checked_sub(1).map_or(0, |before| self.starts[before]);
        let charges = random.bits();
        let first = usize::try_from(start - before).expect("a scene has fewer than 2^32 frames");
        self.train.films[film].clip(first, self.length, self.train.size, region, charges, threads)
    }

    /// A region of clip `number` for evaluation, which is below [`Films::eval_clips`].
    pub(crate) fn eval_clip(&self, number: u64, region: Region, threads: NonZeroUsize) -> Result<Clip, FilmError> {
        let (film, first) = self.takes[usize::try_from(number).expect("clips are counted in memory")];
        let charges = Random::new(self.seed ^ TAKES, EVALUATION + number).bits();
        self.eval.films[film].clip(first, self.length, self.eval.size, region, charges, threads)
    }
}

impl SceneSet {
    /// Refuses files that are no frames, or of another size than the first.
    fn new(films: Vec<Film>) -> Result<SceneSet, FilmError> {
        let mut first: Option<(PathBuf, [u32; 2])> = None;
        for path in films.iter().flat_map(Film::files) {
            let size = png_file::size(&path)?;
            match &first {
                None => first = Some((path, size)),
                Some((_, first_size)) if *first_size == size => {}
                Some((first, first_size)) => {
                    let (first, first_size) = (first.clone(), *first_size);
                    return Err(FilmError::OtherSize { path, size, first, first_size });
                }
            }
        }
        let (_, size) = first.expect("a scene has frames");
        Ok(SceneSet { films, size })
    }

    fn takes(&self, length: ClipLength) -> Result<Vec<(usize, usize)>, FilmError> {
        let mut takes = Vec::new();
        for (film, scene) in self.films.iter().enumerate() {
            scene.starts(length)?;
            takes.extend(scene.apart(length).enumerate().map(|(place, first)| (place, film, first)));
        }
        takes.sort_unstable();
        Ok(takes.into_iter().map(|(_, film, first)| (film, first)).collect())
    }
}

fn films_in(folder: &Path) -> Result<Vec<Film>, FilmError> {
    let scenes = folders_in(folder)?;
    if Film::is_scene(folder) {
        return Err(FilmError::IsScene { path: folder.to_owned() });
    }
    if scenes.is_empty() {
        return Err(FilmError::NoScenes { path: folder.to_owned() });
    }
    scenes.iter().map(|scene| Film::open(scene)).collect()
}
