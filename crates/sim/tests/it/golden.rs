//! Ten recordings of one deterministic program under ten settings, made on an H200 with torch 2.11: every entry and every count.

use std::fs::File;
use std::path::Path;

use flate2::read::GzDecoder;
use lowtide_sim::{
    Action, AllocatorSettings, Conditions, DeviceHistory, Entry, Placement, Recording, Segment, SegmentBlock,
    TorchVersion,
};
use serde_json::Value;

fn golden(index: usize) -> Value {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/allocator/t{index}.json.gz"));
    serde_json::from_reader(GzDecoder::new(File::open(path).unwrap())).unwrap()
}

fn entries(golden: &Value) -> Vec<Entry> {
    let entry = |entry: &Value| Entry {
        action: Action::named(entry[0].as_str().unwrap()).unwrap(),
        address: entry[1].as_u64().unwrap(),
        size: entry[2].as_u64().unwrap(),
        stream: entry[3].as_u64().unwrap(),
    };
    golden["trace"].as_array().unwrap().iter().map(entry).collect()
}

#[track_caller]
fn check(index: usize) {
    let golden = golden(index);
    let recording = Recording::new(entries(&golden)).unwrap();
    let settings = AllocatorSettings::parse(golden["alloc_conf"].as_str().unwrap(), TorchVersion::VERIFIED).unwrap();
    let total = golden["total_global_mem"].as_u64().unwrap();
    let limit = settings.limit(total);
    let replay =
        recording.replay(&Conditions { settings, limit, capacity: Some(total), placement: Placement::Recorded });
    assert_eq!((replay.differing, replay.first_difference), (Some(0), None), "t{index}");
    let counted = replay.statistics;
    let told = |name: &str| golden["memory_stats"][name].as_u64().unwrap();
    for (name, value) in [
        ("reserved_bytes.all.peak", counted.reserved.peak),
        ("reserved_bytes.all.current", counted.reserved.current),
        ("allocated_bytes.all.peak", counted.allocated.peak),
        ("active_bytes.all.peak", counted.active.peak),
        ("inactive_split_bytes.all.peak", counted.inactive_split.peak),
        ("inactive_split_bytes.all.current", counted.inactive_split.current),
        ("requested_bytes.all.current", counted.requested.current),
        ("segment.all.current", counted.segments.current),
        ("num_alloc_retries", counted.retries),
        ("num_ooms", counted.ooms),
    ] {
        assert_eq!(value, told(name), "t{index}: {name}");
    }
}

#[test]
fn default_settings() {
    check(0);
}

#[test]
fn expandable_segments() {
    check(1);
    check(6);
}

#[test]
fn blocks_that_are_not_split() {
    check(2);
    check(7);
}

#[test]
fn rounded_requests() {
    check(3);
    check(9);
}

#[test]
fn garbage_is_collected() {
    check(4);
}

#[test]
fn a_limit_and_errors() {
    check(5);
}

#[test]
fn larger_segments() {
    check(8);
}

/// A history that was cut at its front, with what was held at the end: how many of its entries come out otherwise.
fn differing_after_a_cut(index: usize, part: usize) -> usize {
    let golden = golden(index);
    let settings = AllocatorSettings::parse(golden["alloc_conf"].as_str().unwrap(), TorchVersion::VERIFIED).unwrap();
    let total = golden["total_global_mem"].as_u64().unwrap();
    let mut history = DeviceHistory::default();
    let entries = entries(&golden);
    history.entries = std::sync::Arc::new(entries[entries.len() * part / 5..].to_vec());
    history.segments = golden["segments"].as_array().unwrap().iter().map(segment).collect();
    let recording = Recording::of(&history, &settings).unwrap();
    assert!(recording.is_reconstructed());
    let limit = settings.limit(total);
    let placement = Placement::Recorded;
    let replay = recording.replay(&Conditions { settings, limit, capacity: Some(total), placement });
    replay.differing.unwrap()
}

fn segment(told: &Value) -> Segment {
    let number = |value: &Value, key: &str| value[key].as_u64().unwrap();
    let mut segment = Segment::default();
    segment.address = number(told, "address");
    segment.size = number(told, "total_size");
    segment.stream = number(told, "stream");
    segment.is_small = told["segment_type"] == "small";
    segment.is_expandable = told["is_expandable"] == true;
    for told in told["blocks"].as_array().unwrap() {
        let mut block = SegmentBlock::default();
        block.address = number(told, "address");
        block.size = number(told, "size");
        block.requested = number(told, "requested_size");
        block.is_allocated = told["state"] == "active_allocated";
        block.is_active = told["state"] != "inactive";
        segment.blocks.push(block);
    }
    segment
}

/// What is lost with the front of a history (sizes of blocks that are gone, ages) shows in some, and in no more than these.
#[test]
fn histories_that_were_cut() {
    let cuts = (0..10).flat_map(|index| (1..5).map(move |part| (index, part)));
    let wrong: Vec<_> = cuts.filter(|(index, part)| differing_after_a_cut(*index, *part) > 0).collect();
    assert_eq!(wrong, [(4, 3), (8, 2), (8, 3), (9, 3)]);
}
