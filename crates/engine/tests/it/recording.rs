//! `--record-memory`.

use std::fs::File;
use std::io::BufReader;

use lowtide_sim::{
    Action, AddressOrder, AllocatorSettings, Conditions, Fit, Placement, Recording, Replay, SizedRecording, Snapshot,
    TorchVersion,
};

use crate::kit::Place;

fn recording(place: &Place, name: &str) -> Recording {
    let file = File::open(place.path(name)).unwrap();
    let snapshot = Snapshot::read_recording(BufReader::new(file)).unwrap();
    Recording::of(&snapshot.devices[0], &AllocatorSettings::new(TorchVersion::default())).unwrap()
}

fn replay(recording: &Recording, limit: Option<u64>) -> Replay {
    let settings = AllocatorSettings::new(TorchVersion::default());
    let placement = Placement::Ordered(AddressOrder::Ascending);
    recording.replay(&Conditions { settings, limit, capacity: None, placement })
}

#[test]
fn a_recorded_run_has_its_own_peak_and_bits() {
    let place = Place::new();
    place.train("plain", "");
    place.train("out", "--record-memory run.ltmem");
    assert_eq!(place.hash("out"), place.hash("plain"));
    let recording = recording(&place, "run.ltmem");
    let peak = replay(&recording, None).statistics.allocated.peak;
    assert_eq!(Some(peak), place.summary("out")["peak_allocated_bytes"].as_u64());
    // One byte less, and the request that made the peak would have been refused.
    assert_eq!(replay(&recording, Some(peak)).statistics.ooms, 0);
    assert!(replay(&recording, Some(peak - 1)).statistics.ooms > 0);
}

/// From two small batches to a larger one.
#[test]
fn the_peak_at_another_batch_is_foreseen_to_the_byte() {
    let place = Place::new();
    let settings = AllocatorSettings::new(TorchVersion::default());
    let sized = |size: u64| {
        let words = format!("--record-memory {size}.ltmem --set train.batch={size}");
        place.train(&format!("at{size}"), &words);
        let file = File::open(place.path(&format!("{size}.ltmem"))).unwrap();
        let snapshot = Snapshot::read_recording(BufReader::new(file)).unwrap();
        let recorded = SizedRecording::new(size, &snapshot, &snapshot.devices[0], &settings).unwrap();
        (recorded, place.summary(&format!("at{size}"))["peak_allocated_bytes"].as_u64().unwrap())
    };
    let fit = Fit::new(vec![sized(4).0, sized(8).0]).unwrap();
    let (_, peak) = sized(32);
    assert_eq!(fit.predict(32, &settings).unwrap().reserved_peak, peak);
}

#[test]
fn what_was_refused_is_in_it() {
    let place = Place::new();
    let words = "--record-memory run.ltmem --inject-oom step=2,phase=backward,alloc=3";
    place.train("out", words);
    assert_eq!(replay(&recording(&place, "run.ltmem"), None).statistics.ooms, 0);
    let file = File::open(place.path("run.ltmem")).unwrap();
    let snapshot = Snapshot::read_recording(BufReader::new(file)).unwrap();
    let refused = snapshot.devices[0].entries.iter().filter(|entry| entry.action == Action::Oom).count();
    assert_eq!(refused, 1);
}

#[test]
fn a_place_that_cannot_be_written_is_said_before_the_run() {
    let place = Place::new();
    let said =
        place.command("train tiny.yaml --device cpu --out out --record-memory nowhere/at/all.ltmem").output().unwrap();
    assert!(!said.status.success());
    let said = String::from_utf8(said.stderr).unwrap();
    assert!(said.contains("nowhere/at/all.ltmem"), "{said}");
    assert!(!place.path("out/events.jsonl").exists());
}
