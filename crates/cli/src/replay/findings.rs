//! What a replay found, as it is printed.

use std::collections::HashMap;

use lowtide_core::Bytes;
use lowtide_sim::{Moment, Recording, Replay, Snapshot, TorchVersion, WhatIf};
use serde::Serialize;

/// How many groups of tensors are kept.
const MOST_GROUPS: usize = 10;

/// What a replay found.
#[derive(Debug, Serialize)]
pub(super) struct Findings {
    /// Entries of the history.
    pub(super) events: usize,
    pub(super) device: u32,
    /// Whether it is the memory of the CPU, of which there is one, and no settings.
    pub(super) is_cpu: bool,
    /// The version of PyTorch that was imitated, and whether that was verified against a card.
    pub(super) torch: String,
    pub(super) is_verified: bool,
    /// Whether the history was cut at its front.
    pub(super) is_reconstructed: bool,
    /// The settings and the limit of the replay.
    pub(super) conf: String,
    pub(super) limit: Option<u64>,
    /// Whether the limit follows from where memory ran out in the recording.
    pub(super) limit_is_inferred: bool,
    /// What pools of CUDA graphs and of MemPool held, which are replayed as if they were the common one.
    pub(super) private_bytes: u64,
    /// Entries that are known to be of such pools.
    pub(super) private_events: usize,
    /// Whether the settings limit memory to a part of a device whose size is not known.
    pub(super) has_unknown_limit: bool,
    pub(super) recorded: Peaks,
    pub(super) simulated: Simulated,
    /// Entries that came out otherwise than recorded, under the recording's own settings.
    pub(super) differing_events: usize,
    /// What was reserved and not in use, when most was reserved.
    pub(super) unused: Unused,
    /// Who held most, when tensors held most.
    pub(super) largest: Vec<Holder>,
    pub(super) what_if: Vec<Row>,
    /// The best of these, where it is better than the recording.
    pub(super) best: Option<String>,
}

#[derive(Debug, Serialize)]
pub(super) struct Peaks {
    pub(super) peak_reserved: u64,
    pub(super) peak_allocated: u64,
    pub(super) peak_active: u64,
}

#[derive(Debug, Serialize)]
pub(super) struct Simulated {
    #[serde(flatten)]
    pub(super) peaks: Peaks,
    pub(super) num_alloc_retries: u64,
    pub(super) num_ooms: u64,
    /// Of the first request that was refused.
    pub(super) first_oom: Option<Refusal>,
}

#[derive(Debug, Clone, Serialize)]
pub(super) struct Refusal {
    /// The entry of the history.
    pub(super) event: u32,
    /// What was asked for.
    pub(super) size: u64,
    /// Seconds since the history begins.
    pub(super) seconds: Option<f64>,
    /// Where it was asked for.
    pub(super) stack: Option<String>,
}

#[derive(Debug, Serialize)]
pub(super) struct Unused {
    pub(super) event: u32,
    pub(super) reserved: u64,
    pub(super) active: u64,
    /// In parts of segments that were partly in use.
    pub(super) in_pieces: u64,
    /// In whole segments that were cached.
    pub(super) cached: u64,
}

#[derive(Debug, Serialize)]
pub(super) struct Holder {
    pub(super) bytes: u64,
    pub(super) tensors: usize,
    /// What each of them was asked with, where all are alike.
    pub(super) each: Option<u64>,
    /// The line that made them, where the snapshot has stacks.
    pub(super) place: Option<String>,
}

#[derive(Debug, Serialize)]
pub(super) struct Row {
    pub(super) conf: String,
    pub(super) peak_reserved: u64,
    /// The smaller one, where it depends on where the driver puts segments.
    pub(super) peak_reserved_low: u64,
    pub(super) num_ooms: u64,
    pub(super) num_alloc_retries: u64,
}

impl Peaks {
    pub(super) const fn of(replay: &Replay) -> Self {
        Self {
            peak_reserved: replay.statistics.reserved.peak,
            peak_allocated: replay.statistics.allocated.peak,
            peak_active: replay.statistics.active.peak,
        }
    }
}

impl Unused {
    pub(super) const fn at(moment: &Moment, is_expandable: bool) -> Self {
        let Moment { entry, reserved, active, inactive_split, .. } = *moment;
        let idle = reserved - active;
        // Of segments that grow, all that is idle is in pieces.
        let in_pieces = if is_expandable { idle } else { inactive_split };
        Self { event: entry, reserved, active, in_pieces, cached: idle - in_pieces }
    }
}

impl From<WhatIf> for Row {
    fn from(what_if: WhatIf) -> Self {
        Self {
            conf: what_if.conf,
            peak_reserved: what_if.reserved_peak,
            peak_reserved_low: what_if.reserved_peak_low,
            num_ooms: what_if.ooms,
            num_alloc_retries: what_if.retries,
        }
    }
}

impl Findings {
    /// Whose memory it is.
    pub(super) fn device_name(&self) -> String {
        if self.is_cpu { "CPU".to_owned() } else { format!("GPU {}", self.device) }
    }

    pub(super) fn bytes(number: u64) -> String {
        Bytes(number).to_string()
    }
}

/// The line of a stack that belongs to the program: the innermost that is of no library.
pub(super) fn place(snapshot: &Snapshot, stack: u32) -> Option<String> {
    let frames = snapshot.stacks.get(stack as usize)?;
    let is_library = |file: &str| {
        ["site-packages/", "dist-packages/", "torch/", "modules/", "<frozen", "/lib/python3"]
            .iter()
            .any(|part| file.contains(part) || file.starts_with(part))
            || file.is_empty()
            || file == "??"
    };
    let python = frames.iter().filter(|frame| frame.line > 0);
    let own = python.clone().find(|frame| !is_library(&frame.file));
    let frame = own.or_else(|| python.clone().next())?;
    Some(format!("{}, line {}, in {}", frame.file, frame.line, frame.function))
}

/// Who held most right after an entry: by the line that asked for it, or without stacks by its size.
pub(super) fn largest(snapshot: &Snapshot, recording: &Recording, stacks: &[Option<u32>], entry: u32) -> Vec<Holder> {
    let mut groups: HashMap<(Option<String>, Option<u64>), (u64, usize)> = HashMap::new();
    let mut places: HashMap<u32, Option<String>> = HashMap::new();
    for (size, at) in recording.live_after(entry) {
        let key = if stacks.is_empty() {
            (None, Some(size))
        } else {
            let stack = at.and_then(|at| stacks[at as usize]);
            (stack.and_then(|stack| places.entry(stack).or_insert_with(|| place(snapshot, stack)).clone()), None)
        };
        let group = groups.entry(key).or_default();
        *group = (group.0 + size, group.1 + 1);
    }
    let mut holders: Vec<Holder> =
        groups.into_iter().map(|((place, each), (bytes, tensors))| Holder { bytes, tensors, each, place }).collect();
    // Of those that hold as much, the larger tensors first: a map has no order of its own.
    holders.sort_by(|one, other| {
        let by_size = other.bytes.cmp(&one.bytes).then_with(|| other.each.cmp(&one.each));
        by_size.then_with(|| one.place.cmp(&other.place))
    });
    holders.truncate(MOST_GROUPS);
    holders
}

/// The best settings: those under which memory runs out least often, and of these the one that reserves least, where it is better than what was.
pub(super) fn best(rows: &[Row], now: &Simulated) -> Option<String> {
    let row = rows.iter().min_by_key(|row| (row.num_ooms, row.peak_reserved))?;
    // A hundredth is not worth a setting.
    let is_better = row.num_ooms < now.num_ooms
        || row.num_ooms == now.num_ooms && row.peak_reserved < now.peaks.peak_reserved / 100 * 99;
    is_better.then(|| row.conf.clone())
}

pub(super) fn version(text: &str) -> Result<TorchVersion, lowtide_sim::SimError> {
    text.parse()
}
