//! Clips of a batch as plain numbers, side by side on threads.

use std::num::NonZeroUsize;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use lowtide_generators::Random;
use lowtide_generators::films::{Clip, Region};
use lowtide_torch::tch::Tensor;
use lowtide_train::Batch;

use super::film_error::FilmError;
use super::footage::Footage;
use super::settings::DataSettings;

/// Crops are drawn apart from what is in the clip.
const CROPS: u64 = 0x6372_6f70;

/// The footage, and which part of it is trained and evaluated on. Clips are pure functions of their number.
#[derive(Clone)]
pub(crate) struct Clips {
    pub(crate) footage: Arc<Footage>,
    /// Rows and columns of the frames to train on.
    pub(crate) train_size: [u32; 2],
    pub(crate) crop: u32,
    /// What of each frame is evaluated.
    pub(crate) evaluated: Region,
    pub(crate) seed: u64,
}

/// Clips, one behind the other.
pub(crate) struct ClipBatch {
    clips: Vec<Clip>,
    region: Region,
}

impl Clips {
    /// Clips to train on, as many at once as there are processors.
    pub(crate) fn train(&self, numbers: Range<u64>) -> Result<ClipBatch, FilmError> {
        let region = Region { top: 0, left: 0, height: self.crop, width: self.crop };
        let clips =
            side_by_side(numbers, |number, threads| self.footage.train_clip(number, self.cropped(number), threads))?;
        Ok(ClipBatch { clips, region })
    }

    /// Clips to evaluate on, one after the other: whole frames may be large.
    pub(crate) fn eval(&self, numbers: Range<u64>) -> Result<ClipBatch, FilmError> {
        let clip = |number| self.footage.eval_clip(number, self.evaluated, processors());
        Ok(ClipBatch { clips: numbers.map(clip).collect::<Result<_, _>>()?, region: self.evaluated })
    }

    /// Where clip `number` is cropped for training.
    fn cropped(&self, number: u64) -> Region {
        let (crop, [height, width]) = (self.crop, self.train_size);
        let mut random = Random::new(self.seed ^ CROPS, number);
        let mut place = |length: u32| u32::try_from(random.below(u64::from(length - crop) + 1)).expect("in the frame");
        Region { top: place(height), left: place(width), height: crop, width: crop }
    }
}

impl ClipBatch {
    /// As tensors on the host.
    pub(crate) fn into_batch(self, data: &DataSettings) -> Batch {
        let ClipBatch { clips, region } = self;
        let shape = |planes: u32| {
            let count = i64::try_from(clips.len()).expect("clips are in memory");
            [count, data.frames.into(), planes.into(), region.height.into(), region.width.into()]
        };
        let colours = |of: fn(&Clip) -> &Vec<f32>| joined(&clips, of).view(shape(3));
        let inputs = vec![colours(|clip| &clip.blurred), joined(&clips, |clip| &clip.spikes).view(shape(data.moments))];
        let targets_per_sample = clips.first().map_or(0, |clip| clip.sharp.len() as u64);
        Batch { inputs, targets: vec![colours(|clip| &clip.sharp)], targets_per_sample }
    }
}

/// One part of all clips.
fn joined<T: lowtide_torch::tch::kind::Element>(clips: &[Clip], of: fn(&Clip) -> &Vec<T>) -> Tensor {
    match clips {
        [clip] => Tensor::from_slice(of(clip)),
        clips => Tensor::cat(&clips.iter().map(|clip| Tensor::from_slice(of(clip))).collect::<Vec<_>>(), 0),
    }
}

fn processors() -> NonZeroUsize {
    thread::available_parallelism().unwrap_or(NonZeroUsize::MIN)
}

/// What `make` makes of each number, which is told how many threads it may use. The first error in their order is the one that counts.
fn side_by_side<E: Send>(
    numbers: Range<u64>,
    make: impl Fn(u64, NonZeroUsize) -> Result<Clip, E> + Sync,
) -> Result<Vec<Clip>, E> {
    let count = usize::try_from(numbers.end - numbers.start).expect("clips are in memory");
    let threads = processors().get().min(count).max(1);
    let each = NonZeroUsize::new(processors().get() / threads).unwrap_or(NonZeroUsize::MIN);
    if threads == 1 {
        return numbers.map(|number| make(number, each)).collect();
    }
    let next = AtomicU64::new(numbers.start);
    let work = || {
        let mut made = Vec::new();
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= numbers.end {
                return made;
            }
            made.push((number, make(number, each)));
        }
    };
    let mut made: Vec<_> = thread::scope(|scope| {
        let started: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        started.into_iter().flat_map(|thread| thread.join().expect("making clips does not panic")).collect()
    });
    made.sort_unstable_by_key(|(number, _)| *number);
    made.into_iter().map(|(_, clip)| clip).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbered(number: u64) -> Clip {
        Clip { blurred: vec![number as f32], spikes: vec![0], sharp: Vec::new() }
    }

    #[test]
    fn clips_are_in_the_order_of_their_numbers() {
        for count in [0, 1, 2, 7, 40] {
            let made = side_by_side(5..5 + count, |number, _| Ok::<_, ()>(numbered(number))).unwrap();
            let found: Vec<f32> = made.iter().map(|clip| clip.blurred[0]).collect();
            assert_eq!(found, (5..5 + count).map(|number| number as f32).collect::<Vec<_>>());
        }
    }

    #[test]
    fn the_first_error_counts() {
        let made = side_by_side(0..40, |number, _| if number % 9 == 8 { Err(number) } else { Ok(numbered(number)) });
        assert_eq!(made.err(), Some(8));
    }
}
