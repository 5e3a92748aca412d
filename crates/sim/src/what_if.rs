//! The same requests under other settings.

use std::panic::resume_unwind;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use crate::{
    AddressOrder, AllocatorSettings, Conditions, Placement, Recording, SimError, Source, Statistics, TorchVersion,
};

/// Settings that people try against fragmentation, in the words of `PYTORCH_CUDA_ALLOC_CONF`.
pub(crate) const SETTINGS: [&str; 12] = [
    "",
    "expandable_segments:True",
    "max_split_size_mb:32",
    "max_split_size_mb:64",
    "max_split_size_mb:128",
    "max_split_size_mb:256",
    "max_split_size_mb:512",
    "roundup_power2_divisions:4",
    "roundup_power2_divisions:8",
    "garbage_collection_threshold:0.6",
    "garbage_collection_threshold:0.8",
    "expandable_segments:True,roundup_power2_divisions:8",
];

/// What a recording comes to under other settings.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct WhatIf {
    /// The settings, empty for PyTorch's own.
    pub conf: String,
    /// The most that would be reserved; the larger one, where it depends on where segments are put.
    pub reserved_peak: u64,
    /// The smaller one.
    pub reserved_peak_low: u64,
    /// How often memory would run out.
    pub ooms: u64,
    /// How often all cached memory would have to be given back.
    pub retries: u64,
}

impl Recording {
    /// Replays it under each of the settings that people try, of which a CPU allocator has none; those that this version does not have, or that need a limit that is not
    /// there, are left out.
    #[must_use]
    pub fn what_if(&self, version: TorchVersion, limit: Option<u64>) -> Vec<WhatIf> {
        if self.source == Source::Host {
            return Vec::new();
        }
        let is_there = |conf: &&&str| limit.is_some() || !conf.starts_with("garbage");
        let confs = SETTINGS.iter().filter(is_there);
        let tries: Vec<(&str, AllocatorSettings)> = confs
            .filter_map(|conf| Some((*conf, self.plainest(AllocatorSettings::parse(conf, version).ok()?))))
            .collect();
        let mut different: Vec<&AllocatorSettings> = Vec::new();
        for (_, settings) in &tries {
            if !different.contains(&settings) {
                different.push(settings);
            }
        }
        let jobs: Vec<(&AllocatorSettings, AddressOrder)> =
            different.iter().flat_map(|settings| ORDERS.map(|order| (*settings, order))).collect();
        let done = in_parallel(&jobs, |(settings, order)| self.statistics_under(settings, limit, *order));
        let found = |settings: &AllocatorSettings| different.iter().position(|other| *other == settings);
        let row = |(conf, settings): &(&str, AllocatorSettings)| {
            let first = found(settings)? * ORDERS.len();
            Some(WhatIf::new(conf, &done[first], &done[first + 1]))
        };
        tries.iter().filter_map(row).collect()
    }

    /// Replays it under other settings, with segments put in one order and in the other.
    ///
    /// # Errors
    ///
    /// Where PyTorch would refuse the settings.
    pub fn what_if_one(&self, conf: &str, version: TorchVersion, limit: Option<u64>) -> Result<WhatIf, SimError> {
        let settings = AllocatorSettings::parse(conf, version)?;
        let [up, down] = ORDERS.map(|order| self.statistics_under(&settings, limit, order));
        Ok(WhatIf::new(conf, &up, &down))
    }

    fn statistics_under(&self, settings: &AllocatorSettings, limit: Option<u64>, order: AddressOrder) -> Statistics {
        let placement = Placement::Ordered(order);
        self.replay(&Conditions { settings: settings.clone(), limit, capacity: None, placement }).statistics
    }

    /// The settings without a limit to splitting that no block of this recording reaches: they do the same.
    fn plainest(&self, settings: AllocatorSettings) -> AllocatorSettings {
        let asked = self.requests().map(|request| settings.segment_size(settings.round(request)));
        let held = self.start.iter().map(|segment| segment.size);
        let largest = asked.chain(held).max().unwrap_or(0);
        match settings.max_split_size {
            Some(most) if largest < most && !settings.expandable_segments => {
                AllocatorSettings { max_split_size: None, ..settings }
            }
            _ => settings,
        }
    }
}

const ORDERS: [AddressOrder; 2] = [AddressOrder::Ascending, AddressOrder::Descending];

impl WhatIf {
    fn new(conf: &str, up: &Statistics, down: &Statistics) -> Self {
        Self {
            conf: conf.to_owned(),
            reserved_peak: up.reserved.peak.max(down.reserved.peak),
            reserved_peak_low: up.reserved.peak.min(down.reserved.peak),
            ooms: up.ooms.max(down.ooms),
            retries: up.retries.max(down.retries),
        }
    }
}

/// What comes of each job, in their order, on as many threads as there are cores.
fn in_parallel<J: Sync, T: Send>(jobs: &[J], run: impl Fn(&J) -> T + Sync) -> Vec<T> {
    let threads = thread::available_parallelism().map_or(1, usize::from).min(jobs.len());
    let next = AtomicUsize::new(0);
    let work = || {
        let numbers = std::iter::repeat_with(|| next.fetch_add(1, Ordering::Relaxed));
        numbers.map_while(|number| Some((number, run(jobs.get(number)?)))).collect::<Vec<_>>()
    };
    let mut done: Vec<(usize, T)> = thread::scope(|scope| {
        let others: Vec<_> = (1..threads).map(|_| scope.spawn(work)).collect();
        let own = work();
        let joined = others.into_iter().map(|thread| thread.join().unwrap_or_else(|panic| resume_unwind(panic)));
        joined.flatten().chain(own).collect()
    });
    done.sort_by_key(|(number, _)| *number);
    done.into_iter().map(|(_, one)| one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Action, Entry};

    /// Blocks of 24 MiB, some freed, so that limits to splitting below that size matter.
    fn recording() -> Recording {
        let entry = |action, index: u64| Entry { action, address: index << 32, size: 24 << 20, stream: 0 };
        let mut entries: Vec<Entry> = (1..=40).map(|index| entry(Action::Alloc, index)).collect();
        for index in (1..=40).step_by(3) {
            entries.extend([Action::FreeRequested, Action::FreeCompleted].map(|action| entry(action, index)));
            entries.push(Entry { size: 3 << 20, ..entry(Action::Alloc, 100 + index) });
        }
        Recording::new(entries).unwrap()
    }

    #[test]
    fn all_at_once_are_what_each_is_alone() {
        let recording = recording();
        for limit in [None, Some(700 << 20)] {
            let all = recording.what_if(TorchVersion::default(), limit);
            assert_eq!(all.len(), if limit.is_some() { SETTINGS.len() } else { SETTINGS.len() - 2 });
            for one in all {
                assert_eq!(recording.what_if_one(&one.conf, TorchVersion::default(), limit).unwrap(), one);
            }
        }
    }

    #[test]
    fn only_limits_that_no_block_reaches_are_left_out() {
        let recording = recording();
        let plain = |conf: &str| {
            let settings = AllocatorSettings::parse(conf, TorchVersion::default()).unwrap();
            recording.plainest(settings).max_split_size
        };
        assert_eq!(plain("max_split_size_mb:24"), Some(24 << 20));
        assert_eq!(plain("max_split_size_mb:25"), None);
    }
}
