//! A scene in a folder of PNG frames, and the clips in it.
//!
//! A scene is a folder with `sharp/` and `blur/` in it, frames of the same names in both, as in GoPro; or with sharp frames
//! alone, in `sharp/` or in itself. Sharp frames alone are moments: blur is made of them as it is for made-up films, so a
//! clip takes many. Beside blurred frames, there is one sharp one for each exposure, in its middle; what the spike
//! camera saw between two of them is taken to change evenly from one to the next.
//!
//! Films in files are decoded where they are needed: a clip's frames, in them the rows down to the end of the crop,
//! when a batch asks for it. Which clip that is follows from the seed and its number. At the start every file's header
//! and last bytes are looked at, so that a frame of another size or one that is cut short is found before training.
//! Each read compares every chunk of the file with its checksum (`png_chunks.rs`), also those that the decoder passes
//! over; the checksum of the pixels lies behind the last row, so the first read of a file decodes all of it.

use std::cmp::Ordering;
use std::collections::HashSet;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::thread;

use lowtide_generators::films::{BLUR, Clip, Exposure, Region, SHARP, brightness, first_charges};

use super::film_error::FilmError;
use super::png_file::{self, Extent};

/// Blurred frames in a clip, and moments in the exposure of each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ClipLength {
    pub(crate) frames: usize,
    pub(crate) moments: usize,
}

/// A scene whose files are known and not read.
pub(crate) struct Film {
    path: PathBuf,
    sharp: PathBuf,
    blur: Option<PathBuf>,
    /// Frames in the order of time.
    names: Vec<OsString>,
    /// Files whose pixels were decoded down to their checksum, which is done once a run: each read compares the
    /// checksums that come with the file's bytes, and decoding rows that nobody asked for takes as long as the rest.
    decoded: Mutex<HashSet<PathBuf>>,
}

impl Film {
    /// The scene in `path`.
    pub(crate) fn open(path: &Path) -> Result<Film, FilmError> {
        let (sharp, blur) = (path.join(SHARP), path.join(BLUR));
        match (sharp.is_dir(), blur.is_dir()) {
            (true, true) => {
                let names = frames_in(&sharp)?;
                let blurred = frames_in(&blur)?;
                pair(&blurred, &blur, &names, SHARP)?;
                pair(&names, &sharp, &blurred, BLUR)?;
                Ok(Film::new(path, sharp, Some(blur), names))
            }
            (true, false) => Ok(Film::new(path, sharp.clone(), None, frames_in(&sharp)?)),
            (false, true) => Err(FilmError::NoSharp { path: path.to_owned() }),
            (false, false) => Ok(Film::new(path, path.to_owned(), None, frames_in(path)?)),
        }
    }

    fn new(path: &Path, sharp: PathBuf, blur: Option<PathBuf>, names: Vec<OsString>) -> Film {
        Film { path: path.to_owned(), sharp, blur, names, decoded: Mutex::default() }
    }

    /// Whether `path` looks like a scene.
    pub(crate) fn is_scene(path: &Path) -> bool {
        path.join(SHARP).is_dir() || path.join(BLUR).is_dir() || frames_in(path).is_ok()
    }

    /// All its files.
    pub(crate) fn files(&self) -> impl Iterator<Item = PathBuf> {
        [Some(&self.sharp), self.blur.as_ref()]
            .into_iter()
            .flatten()
            .flat_map(|folder| self.names.iter().map(move |name| folder.join(name)))
    }

    /// Files that a clip takes, of each kind.
    fn files_of(&self, length: ClipLength) -> usize {
        if self.blur.is_some() { length.frames } else { length.frames * length.moments }
    }

    /// Frames that a clip can begin with.
    pub(crate) fn starts(&self, length: ClipLength) -> Result<usize, FilmError> {
        let (there, wanted) = (self.names.len(), self.files_of(length));
        if there < wanted {
            let how = match self.blur {
                Some(_) => "data.frames".to_owned(),
                None => format!(
                    "data.frames x data.moments, {} x {}, because blur is made of sharp frames",
                    length.frames, length.moments
                ),
            };
            return Err(FilmError::TooShort { path: self.path.clone(), there, wanted, how });
        }
        Ok(there - wanted + 1)
    }

    /// First frames of clips that have none in common.
    pub(crate) fn apart(&self, length: ClipLength) -> impl Iterator<Item = usize> {
        let wanted = self.files_of(length);
        (0..self.names.len() / wanted).map(move |clip| clip * wanted)
    }

    /// A region of the clip that begins with frame `first`, read by so many threads; all frames are of `size`.
    pub(crate) fn clip(
        &self,
        first: usize,
        length: ClipLength,
        size: [u32; 2],
        region: Region,
        charges: u64,
        threads: NonZeroUsize,
    ) -> Result<Clip, FilmError> {
        let mut exposure = Exposure::new(length.frames, length.moments, first_charges(charges, region));
        let names = &self.names[first..first + self.files_of(length)];
        match &self.blur {
            None => self.expose(&mut exposure, &paths(&self.sharp, names), size, region, threads)?,
            Some(blur) => {
                let mut light = Vec::new();
                let pairs_at_once = threads.get().div_ceil(2);
                for (group, names) in names.chunks(pairs_at_once).enumerate() {
                    let files: Vec<PathBuf> =
                        names.iter().flat_map(|name| [blur.join(name), self.sharp.join(name)]).collect();
                    let planes = self.read_all(&files, size, region, threads)?;
                    for (inside, both) in planes.chunks_exact(2).enumerate() {
                        exposure.pair(group * pairs_at_once + inside, &both[0], &both[1]);
                        light.push(brightness_of(&both[1]));
                    }
                }
                charge(&mut exposure, &light, length);
            }
        }
        Ok(exposure.into_clip())
    }

    /// Every frame is a moment.
    fn expose(
        &self,
        exposure: &mut Exposure,
        paths: &[PathBuf],
        size: [u32; 2],
        region: Region,
        threads: NonZeroUsize,
    ) -> Result<(), FilmError> {
        for (group, paths) in paths.chunks(threads.get()).enumerate() {
            for (inside, planes) in self.read_all(paths, size, region, threads)?.iter().enumerate() {
                for pixel in 0..region.pixels() {
                    exposure.see(group * threads.get() + inside, pixel, colour(planes, pixel));
                }
            }
        }
        Ok(())
    }

    /// Regions of files, read side by side.
    fn read_all(
        &self,
        paths: &[PathBuf],
        size: [u32; 2],
        region: Region,
        threads: NonZeroUsize,
    ) -> Result<Vec<Vec<f32>>, FilmError> {
        if threads.get() == 1 || paths.len() == 1 {
            return paths.iter().map(|path| self.read(path, size, region)).collect();
        }
        thread::scope(|scope| {
            let started: Vec<_> = paths.iter().map(|path| scope.spawn(move || self.read(path, size, region))).collect();
            started.into_iter().map(|thread| thread.join().expect("reading does not panic")).collect()
        })
    }

    fn read(&self, path: &Path, size: [u32; 2], region: Region) -> Result<Vec<f32>, FilmError> {
        let decoded = || self.decoded.lock().expect("nobody panics while holding it");
        let extent = if decoded().contains(path) { Extent::Region } else { Extent::Whole };
        let planes = png_file::read(path, size, region, extent)?;
        if extent == Extent::Whole {
            decoded().insert(path.to_owned());
        }
        Ok(planes)
    }
}

/// Charges from the brightness in the middle of each exposure, even in between and before the first and after the last.
fn charge(exposure: &mut Exposure, light: &[Vec<f32>], length: ClipLength) {
    let last = light.len() - 1;
    for layer in 0..length.frames * length.moments {
        let time = (layer as f32 + 0.5) / length.moments as f32 - 0.5;
        let before = time.max(0.0) as usize;
        let share = (time - before as f32).clamp(0.0, 1.0);
        let (before, after) = (&light[before.min(last)], &light[(before + 1).min(last)]);
        for (pixel, (before, after)) in before.iter().zip(after).enumerate() {
            exposure.charge(layer, pixel, before + (after - before) * share);
        }
    }
}

fn colour(planes: &[f32], pixel: usize) -> [f32; 3] {
    let pixels = planes.len() / 3;
    std::array::from_fn(|part| planes[part * pixels + pixel])
}

fn brightness_of(planes: &[f32]) -> Vec<f32> {
    (0..planes.len() / 3).map(|pixel| brightness(colour(planes, pixel))).collect()
}

fn paths(folder: &Path, names: &[OsString]) -> Vec<PathBuf> {
    names.iter().map(|name| folder.join(name)).collect()
}

/// Refuses a frame of `names` that `others`, which are `missing`, do not have. Both are in order.
fn pair(names: &[OsString], folder: &Path, others: &[OsString], missing: &'static str) -> Result<(), FilmError> {
    let alone = names.iter().find(|name| others.binary_search_by(|other| natural(other, name)).is_err());
    alone.map_or(Ok(()), |name| Err(FilmError::NoPair { path: folder.join(name), missing }))
}

/// The PNG files in a folder, in the order of their names; at least one.
fn frames_in(path: &Path) -> Result<Vec<OsString>, FilmError> {
    let names = names_in(path)?;
    let mut frames: Vec<OsString> = names.into_iter().filter(is_frame).collect();
    if frames.is_empty() {
        return Err(FilmError::NoFrames { path: path.to_owned() });
    }
    frames.sort_unstable_by(natural);
    Ok(frames)
}

/// The folders in a folder, in the order of their names.
pub(crate) fn folders_in(path: &Path) -> Result<Vec<PathBuf>, FilmError> {
    let mut names = names_in(path)?;
    names.sort_unstable_by(natural);
    Ok(names.iter().map(|name| path.join(name)).filter(|path| path.is_dir()).collect())
}

/// Names that do not begin with a dot.
fn names_in(path: &Path) -> Result<Vec<OsString>, FilmError> {
    let names = fs::read_dir(path)
        .and_then(|entries| entries.map(|entry| Ok(entry?.file_name())).collect::<io::Result<Vec<OsString>>>());
    let mut names = names.map_err(|source| FilmError::Unreadable { path: path.to_owned(), source })?;
    names.retain(|name| !name.as_encoded_bytes().starts_with(b"."));
    Ok(names)
}

fn is_frame(name: &OsString) -> bool {
    Path::new(name).extension().is_some_and(|extension| extension.eq_ignore_ascii_case("png"))
}

/// The order of names in which 9 comes before 10.
fn natural(a: &OsString, b: &OsString) -> Ordering {
    let (mut left, mut right) = (a.as_encoded_bytes(), b.as_encoded_bytes());
    while let (Some(first), Some(second)) = (left.first(), right.first()) {
        let order = if first.is_ascii_digit() && second.is_ascii_digit() {
            let (one, other) = (number(&mut left), number(&mut right));
            one.len().cmp(&other.len()).then(one.cmp(other))
        } else {
            (left, right) = (&left[1..], &right[1..]);
            first.cmp(second)
        };
        if order != Ordering::Equal {
            return order;
        }
    }
    left.len().cmp(&right.len()).then_with(|| a.cmp(b))
}

/// Takes the digits at the start, without leading zeros.
fn number<'a>(text: &mut &'a [u8]) -> &'a [u8] {
    let digits = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let (number, rest) = text.split_at(digits);
    *text = rest;
    &number[number.iter().take_while(|byte| **byte == b'0').count()..]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_in_the_order_of_their_numbers() {
        let mut names: Vec<OsString> =
            ["10.png", "9.png", "a2.png", "a10.png", "009.png", "1.PNG"].iter().map(OsString::from).collect();
        names.sort_unstable_by(natural);
        assert_eq!(names, ["1.PNG", "009.png", "9.png", "10.png", "a2.png", "a10.png"]);
    }

    /// Two exposures of two moments, with light 0 in the middle of the first and 1 in that of the second.
    #[test]
    fn light_between_two_sharp_frames_changes_evenly() {
        let mut exposure = Exposure::new(2, 2, vec![0.0]);
        charge(&mut exposure, &[vec![0.0], vec![1.0]], ClipLength { frames: 2, moments: 2 });
        // 0, 1/4, 3/4 and 1 come to 1 at the third moment and to 1 again at the fourth.
        assert_eq!(exposure.into_clip().spikes, [0, 0, 1, 1]);
    }
}
