//! `lowtide explain --snapshot`: why memory ran out, who held it, and whether another setting alone would have helped.

use std::path::Path;

use lowtide_core::Bytes;
use lowtide_explain::MemorySnapshot;
use lowtide_sim::{
    Action, BlockLife, Conditions, DeviceHistory, Placement, Recording, Reservation, SimError, Snapshot, Timeline,
    TorchVersion,
};
use serde::Serialize;

use super::command::{at_file, refusal};
use super::findings::{Holder, Refusal, Row, largest};
use super::snapshot_file::{HOW_TO_RECORD, open, read};
use super::text::holder_words;
use crate::output::{Failure, json_text, print_json, print_page, shown};
use crate::section::{MARGIN, section};

/// An out-of-memory error of a snapshot's history.
#[derive(Debug, Serialize)]
struct OomStory {
    device: u32,
    asked: Refusal,
    cause: OomCause,
    /// What was reserved and in use then.
    reserved_bytes: u64,
    live_bytes: u64,
    /// The largest piece that was reserved and free.
    largest_free_bytes: u64,
    /// Who held most, the first of them the culprit.
    holders: Vec<Holder>,
    /// No less than this could be reserved.
    limit_bytes: u64,
    /// The settings under which no request would have been refused.
    saved_by: Vec<String>,
    what_if: Vec<Row>,
    is_reconstructed: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum OomCause {
    /// Enough was not in use, but in pieces.
    Fragmentation,
    /// Live tensors alone left no room.
    LiveTensors,
}

/// Explains the last out-of-memory error of a snapshot; whether there was one.
pub(crate) fn explain_snapshot(path: &Path, is_json: IsJson) -> Result<bool, Failure> {
    let snapshot = read(path)?;
    let longest = snapshot.devices.iter().max_by_key(|history| last_oom(history).map_or(0, |at| at + 1));
    let Some((history, entry)) = longest.and_then(|history| Some((history, last_oom(history)?))) else {
        return without_error(path, is_json).map(|()| false);
    };
    let story = story(&snapshot, history, entry).map_err(|error| at_file(Some(path), error))?;
    match is_json {
        IsJson::Yes => print_json(&json_text(&[&story]))?,
        IsJson::No => print_page(&page(&shown(path), &story), MARGIN)?,
    }
    Ok(true)
}

/// Whether JSON is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum IsJson {
    Yes,
    No,
}

fn last_oom(history: &DeviceHistory) -> Option<u32> {
    let last = history.entries.iter().rposition(|entry| entry.action == Action::Oom)?;
    u32::try_from(last).ok()
}

fn story(snapshot: &Snapshot, history: &DeviceHistory, entry: u32) -> Result<OomStory, SimError> {
    let version = TorchVersion::default();
    let settings = snapshot.settings(version)?;
    let recording = Recording::of(history, &settings)?;
    let limit = recording.ceiling().unwrap_or_default();
    let placement = Placement::Recorded;
    let timeline = recording.timeline(&Conditions { settings, limit: Some(limit), capacity: None, placement });
    let held = Held::at(&timeline, entry);
    let asked = refusal(entry, history, snapshot);
    let what_if: Vec<Row> = recording.what_if(version, Some(limit)).into_iter().map(Row::from).collect();
    let saved = what_if.iter().filter(|row| row.num_ooms == 0);
    Ok(OomStory {
        device: history.device,
        cause: match held.live.saturating_add(asked.size) <= limit {
            true => OomCause::Fragmentation,
            false => OomCause::LiveTensors,
        },
        asked,
        reserved_bytes: held.reserved,
        live_bytes: held.live,
        largest_free_bytes: held.largest_free,
        holders: largest(snapshot, &recording, &history.stacks, entry),
        limit_bytes: limit,
        saved_by: saved.map(|row| row.conf.clone()).collect(),
        what_if,
        is_reconstructed: recording.is_reconstructed(),
    })
}

/// What was held right before a request.
#[derive(Debug, Default)]
struct Held {
    reserved: u64,
    live: u64,
    largest_free: u64,
}

impl Held {
    fn at(timeline: &Timeline, entry: u32) -> Self {
        let is_there = |begin: Option<u32>, end: Option<u32>| {
            begin.is_none_or(|begin| begin < entry) && end.is_none_or(|end| end >= entry)
        };
        let live = |block: &&BlockLife| is_there(block.begin, block.end);
        let mut blocks: Vec<&BlockLife> = timeline.blocks.iter().filter(live).collect();
        blocks.sort_by_key(|block| block.address);
        // What a request gave back before it was refused was there when it came.
        let held = |range: &&Reservation| is_there(Some(range.begin), range.end);
        let mut held_now = Self { live: blocks.iter().map(|block| block.size).sum(), ..Self::default() };
        for range in timeline.reservations.iter().filter(held) {
            held_now.reserved += range.size;
            let end = range.address + range.size;
            let first = blocks.partition_point(|block| block.address < range.address);
            let mut at = range.address;
            for block in blocks[first..].iter().take_while(|block| block.address < end) {
                held_now.largest_free = held_now.largest_free.max(block.address.saturating_sub(at));
                at = at.max(block.address + block.size);
            }
            held_now.largest_free = held_now.largest_free.max(end.saturating_sub(at));
        }
        held_now
    }
}

fn page(name: &str, story: &OomStory) -> String {
    let mut text = format!("{name}: GPU {} ran out of memory\n\n", story.device);
    let asked = &story.asked;
    let when = asked.seconds.map_or(String::new(), |seconds| format!(", {seconds:.1} s after the first"));
    let place = asked.stack.as_ref().map_or(String::new(), |place| format!(", in {place}"));
    section(&mut text, "asked", &[format!("{} (event {}{when}){place}", Bytes(asked.size), asked.event)]);
    section(&mut text, "cause", &[cause(story)]);
    let holders: Vec<String> = story.holders.iter().map(holder_words).collect();
    section(&mut text, "culprit", &holders.first().cloned().into_iter().collect::<Vec<_>>());
    section(&mut text, "also", holders.get(1..).unwrap_or_default());
    section(&mut text, "settings", &settings(story));
    let notes = story.is_reconstructed.then(|| {
        "the history was cut at its front: what was held before is worked out from the end, so figures are close and not \
         exact"
            .to_owned()
    });
    section(&mut text, "note", &notes.into_iter().collect::<Vec<_>>());
    section(&mut text, "more", &[format!("lowtide replay {name} --html page.html")]);
    text
}

fn cause(story: &OomStory) -> String {
    let unused = story.limit_bytes.saturating_sub(story.live_bytes);
    let [live, limit, unused, largest] =
        [story.live_bytes, story.limit_bytes, unused, story.largest_free_bytes].map(Bytes);
    match story.cause {
        OomCause::Fragmentation => format!(
            "fragmentation: live tensors held {live} of the {limit} that could be reserved; {unused} were not in use, but in \
             pieces of at most {largest}"
        ),
        OomCause::LiveTensors => format!(
            "live tensors held {live} of the {limit} that could be reserved: the {unused} beside them are less than what was \
             asked for"
        ),
    }
}

fn settings(story: &OomStory) -> Vec<String> {
    let saving: Vec<&Row> = story.what_if.iter().filter(|row| row.num_ooms == 0).collect();
    let best = saving.iter().min_by_key(|row| row.peak_reserved);
    let Some(best) = best else {
        return vec![format!(
            "no other setting alone would have saved the run within the {} that it had reserved: all {} that were replayed \
             run out of memory too",
            Bytes(story.limit_bytes),
            story.what_if.len()
        )];
    };
    let line = match best.conf.is_empty() {
        true => "unset PYTORCH_CUDA_ALLOC_CONF".to_owned(),
        false => format!("PYTORCH_CUDA_ALLOC_CONF={}", best.conf),
    };
    vec![
        format!("another setting alone would have saved the run ({} of {} do):", saving.len(), story.what_if.len()),
        line,
    ]
}

/// Who holds memory in a snapshot whose history has no error, or that has no history.
fn without_error(path: &Path, is_json: IsJson) -> Result<(), Failure> {
    if is_json == IsJson::Yes {
        return print_json("[]");
    }
    let snapshot = MemorySnapshot::read(open(path)?);
    let snapshot = snapshot
        .map_err(|error| Failure::bad_input(format!("{}: {error}", path.display()), Some(HOW_TO_RECORD.to_owned())))?;
    let mut text = format!("no out-of-memory error in the history of {}\n\n", shown(path));
    for device in snapshot.devices() {
        let groups: Vec<String> = snapshot.groups(device).iter().map(crate::explain::held).collect();
        let all = snapshot.allocated(device).unwrap_or_default();
        section(&mut text, &format!("GPU {device}"), &[format!("live tensors hold {all} at its end")]);
        section(&mut text, "", &groups);
    }
    print_page(&text, MARGIN)
}
