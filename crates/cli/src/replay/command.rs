//! `lowtide replay`: a memory snapshot through PyTorch's allocator once more.

use std::path::Path;
use std::process::ExitCode;

use lowtide_args::ReplayArgs;
use lowtide_sim::{
    AddressOrder, AllocatorSettings, Conditions, DeviceHistory, Placement, Recording, Replay, SimError, Snapshot,
    Source,
};

use super::findings::{Findings, Peaks, Refusal, Row, Simulated, Unused, best, largest, place, version};
use super::fit::foresee;
use super::pictures::write_pictures;
use super::snapshot_file::{HOW_TO_RECORD, read};
use super::text::page;
use crate::output::{Failure, json_text, print_json, print_page, report, shown};
use crate::section::MARGIN;

pub(crate) fn run(args: &ReplayArgs) -> ExitCode {
    report(replay(args))
}

impl From<SimError> for Failure {
    fn from(error: SimError) -> Self {
        let hint = (error == SimError::NoHistory).then(|| HOW_TO_RECORD.to_owned());
        Self::bad_input(error.to_string(), hint)
    }
}

fn replay(args: &ReplayArgs) -> Result<(), Failure> {
    if let Some(size) = args.size {
        return foresee(args, size);
    }
    let file = args.file.as_ref().expect("there is a file where no size is asked for");
    let snapshot = read(file)?;
    let history = history(args, &snapshot)?;
    let (findings, replayed) = findings(args, &snapshot, history)?;
    write_pictures(args, file, &findings, &replayed, history, &snapshot)?;
    match args.json {
        true => print_json(&json_text(&findings)),
        false => print_page(&page(&shown(file), &findings), MARGIN),
    }
}

/// What is wrong with the history of a file.
pub(super) fn at_file(file: Option<&Path>, error: SimError) -> Failure {
    match (file, &error) {
        (None, _) | (_, SimError::NoHistory) => error.into(),
        (Some(file), _) => Failure::bad_input(format!("{}: {error}", file.display()), None),
    }
}

/// A recording, and under what it was replayed.
pub(super) struct Replayed {
    pub(super) recording: Recording,
    pub(super) conditions: Conditions,
}

fn findings(args: &ReplayArgs, snapshot: &Snapshot, history: &DeviceHistory) -> Result<(Findings, Replayed), Failure> {
    let version = version(&args.torch)?;
    let own = snapshot.settings(version)?;
    let recording = Recording::of(history, &own).map_err(|error| at_file(args.file.as_deref(), error))?;
    // What the recording itself ran into is its limit, unless another one is asked for.
    let ceiling = recording.ceiling();
    let recorded = recording.replay(&Conditions {
        settings: own.clone(),
        limit: ceiling,
        capacity: None,
        placement: Placement::Recorded,
    });
    let limit = args.limit.map(|limit| limit.0).or(ceiling);
    let settings = match &args.conf {
        Some(conf) => AllocatorSettings::parse(conf, version)?,
        None => own,
    };
    let is_expandable = settings.expandable_segments;
    // Under its own settings it is known where segments were.
    let placement = match &args.conf {
        None => Placement::Recorded,
        Some(_) => Placement::Ordered(AddressOrder::Descending),
    };
    let conditions = Conditions { settings, limit, capacity: None, placement };
    let simulated = match (&args.conf, args.limit) {
        (None, None) => recorded.clone(),
        _ => recording.replay(&conditions),
    };
    let what_if: Vec<Row> = recording.what_if(version, limit).into_iter().map(Row::from).collect();
    let simulated_told = told(&simulated, history, snapshot);
    let findings = Findings {
        events: recording.len(),
        device: history.device,
        is_cpu: history.source == Source::Host,
        torch: version.to_string(),
        is_verified: version.is_verified(),
        is_reconstructed: recording.is_reconstructed(),
        conf: args.conf.clone().unwrap_or_else(|| snapshot.conf().to_owned()),
        limit,
        limit_is_inferred: args.limit.is_none() && limit.is_some(),
        private_bytes: history.private_bytes(),
        private_events: history.private_entries,
        has_unknown_limit: limit.is_none() && conditions.settings.memory_fraction.is_some_and(|part| part < 1.0),
        recorded: Peaks { peak_reserved: recording.reserved_peak(), ..Peaks::of(&recorded) },
        differing_events: recorded.differing.unwrap_or_default(),
        unused: Unused::at(&simulated.reserved_peak, is_expandable),
        largest: largest(snapshot, &recording, &history.stacks, simulated.allocated_peak.entry),
        best: best(&what_if, &simulated_told),
        what_if,
        simulated: simulated_told,
    };
    Ok((findings, Replayed { recording, conditions }))
}

/// The history of the device that was asked for, or the longest.
pub(super) fn history<'a>(args: &ReplayArgs, snapshot: &'a Snapshot) -> Result<&'a DeviceHistory, Failure> {
    let Some(device) = args.device else {
        let longest = snapshot.devices.iter().max_by_key(|history| history.entries.len());
        return longest.ok_or_else(|| SimError::NoHistory.into());
    };
    let own = snapshot.devices.iter().find(|history| history.device == device);
    own.ok_or_else(|| {
        let known: Vec<String> = snapshot.devices.iter().map(|history| history.device.to_string()).collect();
        Failure::bad_input(format!("no GPU {device} in the snapshot: it has {}", known.join(", ")), None)
    })
}

fn told(replay: &Replay, history: &DeviceHistory, snapshot: &Snapshot) -> Simulated {
    let first_oom = replay.first_oom.map(|event| refusal(event, history, snapshot));
    Simulated {
        peaks: Peaks::of(replay),
        num_alloc_retries: replay.statistics.retries,
        num_ooms: replay.statistics.ooms,
        first_oom,
    }
}

/// A request that was refused, by its entry.
pub(super) fn refusal(event: u32, history: &DeviceHistory, snapshot: &Snapshot) -> Refusal {
    let index = event as usize;
    let begin = history.times.first();
    Refusal {
        event,
        size: history.entries[index].size,
        seconds: history.times.get(index).zip(begin).map(|(at, begin)| at.saturating_sub(*begin) as f64 / 1e6),
        stack: history.stacks.get(index).copied().flatten().and_then(|stack| place(snapshot, stack)),
    }
}
