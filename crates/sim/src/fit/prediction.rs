//! The peak at a size, and the largest size that fits.

use serde::Serialize;

use super::pairing::Pairing;
use super::sizes::{Fit, Form};
use crate::settings::SMALL_SEGMENT;
use crate::what_if::SETTINGS;
use crate::{
    AddressOrder, AllocatorSettings, Conditions, Placement, Recording, Replay, SimError, Source, TorchVersion,
};

/// More than tensors may have at once.
const MOST_BYTES: u64 = 1 << 40;
/// How far the search for the largest size goes.
const MOST_SIZE: u64 = 1 << 32;
/// How many sizes above the first that does not fit are tried: fragmentation is not monotone.
const NEIGHBOURS: u64 = 8;
/// How many programs are drawn where there is doubt: how segments fit each other hangs on every size, so one alone is a matter of luck.
const DRAWS: u64 = 15;
/// What libraries may do at a size that no recording shows, as a part of the peak, for each doubling of the size.
const UNSEEN: f64 = 0.01;
/// How far off a peak may be whose recording was cut at its front.
const CUT: f64 = 0.02;

/// What a program would need at a size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Prediction {
    /// The size.
    pub size: u64,
    /// The most that would be reserved.
    pub reserved_peak: u64,
    /// The most that tensors would have.
    pub allocated_peak: u64,
    /// No less than this would be reserved, as far as the recordings show.
    pub low: u64,
    /// No more than this.
    pub high: u64,
}

/// What a program would need at a size under other settings.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct SizedWhatIf {
    /// The settings, empty for PyTorch's own.
    pub conf: String,
    /// The most that would be reserved: within the limit where it fits, else without one.
    pub reserved_peak: u64,
    /// Whether it is likely to fit.
    pub fits: bool,
}

/// Whether a program would run at a size under a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Even where all that is not known is as large as it may be.
    Fits,
    /// As it is likely to be.
    ProbablyFits,
    /// Only where what is not known is smaller than it is likely to be.
    ProbablyNot,
    /// Not at all.
    DoesNotFit,
}

impl Verdict {
    /// The more likely answer.
    #[must_use]
    pub const fn is_likely(self) -> bool {
        matches!(self, Self::Fits | Self::ProbablyFits)
    }
}

impl Fit {
    /// What the program would need at a size, where nothing limits it.
    ///
    /// # Errors
    ///
    /// Where it would be more than a simulated device can have.
    pub fn predict(&self, size: u64, settings: &AllocatorSettings) -> Result<Prediction, SimError> {
        self.check(size)?;
        let reserved = |replay: &Replay| replay.statistics.reserved.peak;
        let likely: Vec<[Replay; 2]> = self.likely(size).map(|one| replays(&one, settings, None)).collect();
        let mut peaks: Vec<u64> = likely.iter().flatten().map(reserved).collect();
        for base in self.bases(size) {
            for form in [Form::Likely, Form::Low, Form::High] {
                peaks.extend(replays(&self.form(base, size, form), settings, None).iter().map(reserved));
            }
        }
        let margin = self.margin(size);
        let least = peaks.iter().copied().min().unwrap_or_default();
        let most = peaks.iter().copied().max().unwrap_or_default();
        // Where sizes are not known to the byte, a segment more or less hangs on any of them.
        let Pairing { unpaired, undecided, .. } = self.pairing(size);
        let grain = match self.source() {
            Source::Host => 0,
            Source::CachingAllocator if unpaired + undecided > 0 => settings.large_segment_size,
            Source::CachingAllocator if self.is_recorded(size) => 0,
            Source::CachingAllocator => SMALL_SEGMENT,
        };
        Ok(Prediction {
            size,
            reserved_peak: median(likely.iter().map(|[replay, _]| replay.statistics.reserved.peak)),
            allocated_peak: median(likely.iter().map(|[replay, _]| replay.statistics.allocated.peak)),
            low: ((least as f64 * (1.0 - margin)) as u64).saturating_sub(grain),
            high: (most as f64 * (1.0 + margin)) as u64 + grain,
        })
    }

    /// What is not measured in TiB can be simulated.
    fn check(&self, size: u64) -> Result<(), SimError> {
        let most = self.bases(size).map(|base| self.form(base, size, Form::High).requested_peak()).max();
        match most.is_some_and(|most| most < MOST_BYTES) {
            true => Ok(()),
            false => Err(SimError::Sizes { reason: format!("at size {size} it would be more than a TiB") }),
        }
    }

    /// The program at a size as it is likely to be: one that is known, or many where there is doubt.
    fn likely(&self, size: u64) -> impl Iterator<Item = Recording> {
        let draws = if self.has_doubt(size) { DRAWS } else { 0 };
        std::iter::once(Form::Likely)
            .chain((0..draws).map(Form::Draw))
            .map(move |form| self.form(self.base(size), size, form))
    }

    /// Whether kernels were changed between the recordings, so that they may be at this size too.
    fn has_doubt(&self, size: u64) -> bool {
        let Pairing { unpaired, jumping, .. } = self.pairing(size);
        unpaired + jumping > 0 && !self.is_recorded(size)
    }

    fn is_recorded(&self, size: u64) -> bool {
        self.recorded().iter().any(|recorded| recorded.size() == size)
    }

    /// What no recording can show, as a part of the peak.
    fn margin(&self, size: u64) -> f64 {
        let sizes = || self.recorded().iter().map(|recorded| recorded.size() as f64);
        let (least, most) = (sizes().fold(f64::MAX, f64::min), sizes().fold(0.0, f64::max));
        let size_outside = (size as f64 / most).max(least / size as f64).max(1.0);
        let cut = if self.is_reconstructed(size) { CUT } else { 0.0 };
        (size_outside.log2() * UNSEEN + cut).min(1.0)
    }

    /// Whether the program would run at a size under a limit.
    ///
    /// # Errors
    ///
    /// As for [`Fit::predict`].
    pub fn verdict(&self, size: u64, settings: &AllocatorSettings, limit: u64) -> Result<Verdict, SimError> {
        let is_always = |form: Form| self.bases(size).all(|base| no_oom(&self.form(base, size, form), settings, limit));
        let prediction = self.predict(size, settings)?;
        if self.is_likely_to_fit(size, settings, limit) {
            let allocated = prediction.allocated_peak as f64 * (1.0 + self.margin(size));
            let is_sure = is_always(Form::High) && allocated <= limit as f64;
            return Ok(if is_sure { Verdict::Fits } else { Verdict::ProbablyFits });
        }
        let is_possible = is_always(Form::Low) || prediction.low <= limit;
        Ok(if is_possible { Verdict::ProbablyNot } else { Verdict::DoesNotFit })
    }

    /// The same size under each of the settings that people try; a CPU allocator has none.
    ///
    /// # Errors
    ///
    /// As for [`Fit::predict`].
    pub fn what_if(&self, size: u64, version: TorchVersion, limit: Option<u64>) -> Result<Vec<SizedWhatIf>, SimError> {
        self.check(size)?;
        if self.source() == Source::Host {
            return Ok(Vec::new());
        }
        let likely: Vec<Recording> = self.likely(size).collect();
        let peak = |settings: &AllocatorSettings, limit: Option<u64>| {
            median(
                likely.iter().map(|one| replay(one, settings, limit, AddressOrder::Ascending).statistics.reserved.peak),
            )
        };
        let is_there = |conf: &&&str| limit.is_some() || !conf.starts_with("garbage");
        let rows = SETTINGS.iter().filter(is_there).filter_map(|conf| {
            let settings = AllocatorSettings::parse(conf, version).ok()?;
            let fits = limit.is_none_or(|limit| self.is_likely_to_fit(size, &settings, limit));
            let reserved_peak = peak(&settings, limit.filter(|_| fits));
            Some(SizedWhatIf { conf: (*conf).to_owned(), reserved_peak, fits })
        });
        Ok(rows.collect())
    }

    /// The largest size that is likely to fit under a limit; none where not even 1 does.
    #[must_use]
    pub fn largest(&self, settings: &AllocatorSettings, limit: u64) -> Option<u64> {
        let fits = |size: u64| self.is_likely_to_fit(size, settings, limit);
        let mut fitting = 0;
        let mut above = self.recorded()[0].size();
        while above < MOST_SIZE && fits(above) {
            (fitting, above) = (above, above * 2);
        }
        while above - fitting > 1 {
            let middle = fitting + (above - fitting) / 2;
            match fits(middle) {
                true => fitting = middle,
                false => above = middle,
            }
        }
        let neighbour = (above + 1..above + NEIGHBOURS).rev().find(|size| fits(*size));
        neighbour.or((fitting > 0).then_some(fitting))
    }

    /// Whether most of what it may be fits.
    fn is_likely_to_fit(&self, size: u64, settings: &AllocatorSettings, limit: u64) -> bool {
        let (mut fitting, mut others) = (0, 0);
        let most = if self.has_doubt(size) { DRAWS / 2 } else { 0 };
        for one in self.likely(size) {
            match no_oom(&one, settings, limit) {
                true => fitting += 1,
                false => others += 1,
            }
            if fitting > most || others > most {
                break;
            }
        }
        fitting > others
    }
}

/// The middle one, or the larger of two.
fn median(numbers: impl Iterator<Item = u64>) -> u64 {
    let mut numbers: Vec<u64> = numbers.collect();
    numbers.sort_unstable();
    numbers.get(numbers.len() / 2).copied().unwrap_or_default()
}

fn no_oom(recording: &Recording, settings: &AllocatorSettings, limit: u64) -> bool {
    replays(recording, settings, Some(limit)).iter().all(|replay| replay.statistics.ooms == 0)
}

/// Where the driver puts segments is not known, so both ways. New ones above the others were right in every recording that was tried.
fn replays(recording: &Recording, settings: &AllocatorSettings, limit: Option<u64>) -> [Replay; 2] {
    [AddressOrder::Ascending, AddressOrder::Descending].map(|order| replay(recording, settings, limit, order))
}

fn replay(recording: &Recording, settings: &AllocatorSettings, limit: Option<u64>, order: AddressOrder) -> Replay {
    let placement = Placement::Ordered(order);
    recording.replay(&Conditions { settings: settings.clone(), limit, capacity: None, placement })
}
