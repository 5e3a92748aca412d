//! The allocator's settings, as `PYTORCH_CUDA_ALLOC_CONF` has them, and the sizes that follow from them.

use crate::{SimError, TorchVersion};

pub(crate) const MIB: u64 = 1 << 20;
/// Sizes are multiples of this.
pub(crate) const QUANTUM: u64 = 512;
/// Up to this a request is small.
pub(crate) const SMALL: u64 = MIB;
/// A segment of the small pool.
pub(crate) const SMALL_SEGMENT: u64 = 2 * MIB;
/// A segment of the large pool, where nothing else is set.
const LARGE_SEGMENT: u64 = 20 * MIB;
/// From this on a request has a segment of its own.
const OWN_SEGMENT: u64 = 10 * MIB;
/// Such segments are multiples of this.
const SEGMENT_QUANTUM: u64 = 2 * MIB;
/// The intervals of `roundup_power2_divisions`, from 1 MiB on.
const INTERVALS: usize = 16;

/// Which pool a block belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PoolKind {
    Small,
    Large,
}

impl PoolKind {
    pub(crate) const fn of(size: u64) -> Self {
        if size <= SMALL { Self::Small } else { Self::Large }
    }
}

/// The settings of PyTorch's caching allocator that change what it does.
#[derive(Debug, Clone, PartialEq)]
pub struct AllocatorSettings {
    /// The version of PyTorch that has them.
    pub version: TorchVersion,
    /// Blocks of this size and above are not split.
    pub max_split_size: Option<u64>,
    /// How much larger than a request a block may be that is not split.
    pub max_non_split_rounding: u64,
    /// The size of segments for medium requests, and of a large page.
    pub large_segment_size: u64,
    /// Above this part of the limit, cached blocks are freed by age.
    pub garbage_collection_threshold: f64,
    /// Steps between two powers of two that requests are rounded to, from 1 MiB on; 0 rounds to 512 bytes.
    pub roundup_power2_divisions: [u64; INTERVALS],
    /// Whether segments grow page by page.
    pub expandable_segments: bool,
    /// The part of the device that may be used, where the settings name it.
    pub memory_fraction: Option<f64>,
}

impl AllocatorSettings {
    /// What PyTorch does where nothing is set.
    #[must_use]
    pub const fn new(version: TorchVersion) -> Self {
        Self {
            version,
            max_split_size: None,
            max_non_split_rounding: LARGE_SEGMENT,
            large_segment_size: LARGE_SEGMENT,
            garbage_collection_threshold: 0.0,
            roundup_power2_divisions: [0; INTERVALS],
            expandable_segments: false,
            memory_fraction: None,
        }
    }

    /// Reads the text of `PYTORCH_CUDA_ALLOC_CONF`.
    ///
    /// # Errors
    ///
    /// Where PyTorch would refuse it.
    pub fn parse(text: &str, version: TorchVersion) -> Result<Self, SimError> {
        let mut settings = Self::new(version);
        let pairs = pairs(text)?;
        // The size of a segment bounds what others may be.
        if let Some((key, value)) = pairs.iter().find(|(key, _)| *key == "large_segment_size_mb") {
            settings.set(key, value)?;
            settings.max_non_split_rounding = settings.large_segment_size;
        }
        for (key, value) in pairs {
            settings.set(key, value)?;
        }
        Ok(settings)
    }

    fn set(&mut self, key: &str, value: &str) -> Result<(), SimError> {
        let refused = |reason: String| SimError::Setting { key: key.to_owned(), reason };
        let since = |minor: u16| match self.version.is_at_least(minor) {
            true => Ok(()),
            false => Err(refused(format!("PyTorch {} does not have it, 2.{minor} does", self.version))),
        };
        let is_on = || match value {
            "True" => Ok(true),
            "False" => Ok(false),
            other => Err(refused(format!("`{other}` is neither True nor False"))),
        };
        let mebibytes = || match value.parse::<u64>().ok().filter(|number| *number < 1 << 40) {
            Some(number) => Ok(number * MIB),
            None => Err(refused(format!("`{value}` is no number of MiB"))),
        };
        let fraction = || match value.parse::<f64>().ok().filter(|number| (0.0..=1.0).contains(number)) {
            Some(number) => Ok(number),
            None => Err(refused(format!("`{value}` is no number from 0 to 1"))),
        };
        // From 2.10 on the least size itself is allowed.
        let least = match self.version.is_at_least(10) {
            true => self.large_segment_size,
            false => LARGE_SEGMENT + MIB,
        };
        let at_least = |size: u64| match size >= least {
            true => Ok(size),
            false => Err(refused(format!("PyTorch {} takes no less than {} MiB", self.version, least / MIB))),
        };
        match key {
            "max_split_size_mb" => self.max_split_size = Some(at_least(mebibytes()?)?),
            "max_non_split_rounding_mb" => {
                since(6)?;
                self.max_non_split_rounding = at_least(mebibytes()?)?;
            }
            "large_segment_size_mb" => {
                since(11)?;
                let size = mebibytes()?;
                if size <= OWN_SEGMENT {
                    return Err(refused("it must be above 10 MiB".to_owned()));
                }
                self.large_segment_size = size;
            }
            "garbage_collection_threshold" => {
                let threshold = fraction()?;
                if threshold <= 0.0 || threshold >= 1.0 {
                    return Err(refused("it must be above 0 and below 1".to_owned()));
                }
                self.garbage_collection_threshold = threshold;
            }
            "roundup_power2_divisions" => self.roundup_power2_divisions = divisions(value, self.version)?,
            "expandable_segments" => {
                since(1)?;
                self.expandable_segments = is_on()?;
            }
            "per_process_memory_fraction" => {
                since(10)?;
                self.memory_fraction = Some(fraction()?);
            }
            "backend" if value == "native" => {}
            "backend" => return Err(refused(format!("`{value}` is another allocator, which is not simulated"))),
            // They change nothing that a replay sees.
            "release_lock_on_cudamalloc" | "graph_capture_record_stream_reuse" | "throw_on_cudamalloc_oom" => {
                is_on()?;
            }
            key if key.starts_with("pinned_") => {}
            _ => return Err(refused("PyTorch has no such setting".to_owned())),
        }
        Ok(())
    }

    /// A request as the allocator rounds it.
    #[must_use]
    pub fn round(&self, request: u64) -> u64 {
        if request < QUANTUM {
            return QUANTUM;
        }
        let interval = (request.ilog2() as usize).saturating_sub(20).min(INTERVALS - 1);
        let divisions = self.roundup_power2_divisions[interval];
        // Up to 2.3 one division left a request as it was.
        if divisions == 1 && !self.version.is_at_least(4) {
            return request;
        }
        if divisions > 1 && request > QUANTUM * divisions {
            let floor = 1 << request.ilog2();
            return if request == floor { request } else { request.next_multiple_of(floor / divisions) };
        }
        request.next_multiple_of(QUANTUM)
    }

    /// The segment that a rounded request asks the device for.
    #[must_use]
    pub fn segment_size(&self, rounded: u64) -> u64 {
        match rounded {
            0..=SMALL => SMALL_SEGMENT,
            _ if rounded < OWN_SEGMENT => self.large_segment_size,
            _ => rounded.next_multiple_of(SEGMENT_QUANTUM),
        }
    }

    pub(crate) const fn page(&self, kind: PoolKind) -> u64 {
        match kind {
            PoolKind::Small => SMALL_SEGMENT,
            PoolKind::Large => self.large_segment_size,
        }
    }

    pub(crate) fn is_oversize(&self, size: u64) -> bool {
        self.max_split_size.is_some_and(|most| size >= most)
    }

    /// The most bytes a process may take of a device of this size, where the settings limit it.
    #[must_use]
    pub fn limit(&self, device: u64) -> Option<u64> {
        let part = self.memory_fraction.filter(|part| *part < 1.0)? * device as f64;
        Some(if self.version.is_at_least(13) { part.round() as u64 } else { part as u64 })
    }
}

/// `key:value` pairs at commas; a list in brackets is one value.
fn pairs(text: &str) -> Result<Vec<(&str, &str)>, SimError> {
    let mut pairs = Vec::new();
    let mut depth = 0_u32;
    let is_end = |sign: char| {
        match sign {
            '[' => depth += 1,
            ']' => depth = depth.saturating_sub(1),
            _ => {}
        }
        sign == ',' && depth == 0
    };
    for pair in text.split(is_end).map(str::trim).filter(|pair| !pair.is_empty()) {
        let Some((key, value)) = pair.split_once(':') else {
            return Err(SimError::Setting { key: pair.to_owned(), reason: "it has no value (key:value)".to_owned() });
        };
        pairs.push((key.trim(), value.trim()));
    }
    Ok(pairs)
}

/// A number for all intervals, or a list of `MiB:number` whose last key may be `>`.
fn divisions(text: &str, version: TorchVersion) -> Result<[u64; INTERVALS], SimError> {
    let refused = |reason: String| SimError::Setting { key: "roundup_power2_divisions".to_owned(), reason };
    let number = |text: &str| match text.trim().parse::<u64>() {
        Ok(number) if number == 0 || number.is_power_of_two() => Ok(number),
        _ => Err(refused(format!("`{text}` is no power of two"))),
    };
    let Some(list) = text.strip_prefix('[') else { return Ok([number(text)?; INTERVALS]) };
    let list = list.strip_suffix(']').ok_or_else(|| refused("its list is not closed".to_owned()))?;
    let mut table = [0; INTERVALS];
    let mut last = None;
    for pair in list.split(',') {
        let (key, value) = pair.split_once(':').ok_or_else(|| refused(format!("`{pair}` has no value")))?;
        let value = number(value)?;
        if key.trim() == ">" {
            // Up to 2.9 the rest took in the interval before it.
            let start = last.map_or(0, |last: usize| if version.is_at_least(10) { last + 1 } else { last });
            table[start.min(INTERVALS)..].fill(value);
            continue;
        }
        let key = number(key)?;
        let index = (key.max(1).ilog2() as usize).min(INTERVALS - 1);
        if last.is_none() {
            table[..index].fill(value);
        }
        table[index] = value;
        last = Some(index);
    }
    Ok(table)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> AllocatorSettings {
        AllocatorSettings::parse(text, TorchVersion::VERIFIED).unwrap()
    }

    #[test]
    fn requests_are_rounded() {
        let plain = parsed("");
        for (request, rounded, segment) in [
            (1, 512, 2 * MIB),
            (513, 1024, 2 * MIB),
            (MIB, MIB, 2 * MIB),
            (MIB + 1, MIB + 512, 20 * MIB),
            (10 * MIB - 512, 10 * MIB - 512, 20 * MIB),
            (10 * MIB, 10 * MIB, 10 * MIB),
            (33 * MIB, 33 * MIB, 34 * MIB),
        ] {
            assert_eq!((plain.round(request), plain.segment_size(rounded)), (rounded, segment), "{request}");
        }
        let quarters = parsed("roundup_power2_divisions:4");
        for (request, rounded) in [(2048, 2048), (2049, 2560), (4097, 5120), (5 * MIB, 5 * MIB), (5 * MIB + 1, 6 * MIB)]
        {
            assert_eq!(quarters.round(request), rounded, "{request}");
        }
        let one = AllocatorSettings::parse("roundup_power2_divisions:1", TorchVersion::new(2, 3)).unwrap();
        assert_eq!((one.round(513), parsed("roundup_power2_divisions:1").round(513)), (513, 1024));
    }

    #[test]
    fn lists_of_divisions() {
        let list = "roundup_power2_divisions:[64:8,256:4,>:2]";
        let now = parsed(list).roundup_power2_divisions;
        assert_eq!(now, [8, 8, 8, 8, 8, 8, 8, 0, 4, 2, 2, 2, 2, 2, 2, 2]);
        let before = AllocatorSettings::parse(list, TorchVersion::new(2, 9)).unwrap().roundup_power2_divisions;
        assert_eq!(before[7..10], [0, 2, 2]);
    }

    #[test]
    fn what_pytorch_refuses_is_refused() {
        for (text, version) in [
            ("max_split_size_mb:19", TorchVersion::VERIFIED),
            ("max_split_size_mb:20", TorchVersion::new(2, 9)),
            ("garbage_collection_threshold:1.0", TorchVersion::VERIFIED),
            ("expandable_segments:true", TorchVersion::VERIFIED),
            ("expandable_segments", TorchVersion::VERIFIED),
            ("expandable_segments:True", TorchVersion::new(2, 0)),
            ("large_segment_size_mb:10", TorchVersion::VERIFIED),
            ("roundup_power2_divisions:3", TorchVersion::VERIFIED),
            ("roundup_power2_divisions:[1:2", TorchVersion::VERIFIED),
            ("backend:cudaMallocAsync", TorchVersion::VERIFIED),
            ("nothing:1", TorchVersion::VERIFIED),
        ] {
            let refused = AllocatorSettings::parse(text, version);
            assert!(matches!(refused, Err(SimError::Setting { .. })), "{text}: {refused:?}");
        }
        assert_eq!(parsed(" max_split_size_mb : 64 , expandable_segments:True").max_split_size, Some(64 * MIB));
        assert_eq!(parsed("large_segment_size_mb:64").segment_size(2 * MIB), 64 * MIB);
    }
}
