//! Any bytes at all must be read or refused as a memory snapshot, and replayed under all settings, without a panic.
//!
//! Run with `cargo +nightly fuzz run replay_snapshot -- -rss_limit_mb=6000` from the root of the project; give it real snapshots as a start with
//! `mkdir -p fuzz/corpus/replay_snapshot && for f in crates/sim/tests/traces/*.pickle.gz; do gunzip -c $f >
//! fuzz/corpus/replay_snapshot/$(basename $f); done`.

#![no_main]

use libfuzzer_sys::fuzz_target;
use lowtide_sim::{AddressOrder, AllocatorSettings, Conditions, Placement, Recording, Snapshot, TorchVersion};

const CONFS: [&str; 4] =
    ["", "expandable_segments:True", "max_split_size_mb:20", "garbage_collection_threshold:0.6"];

fuzz_target!(|bytes: &[u8]| {
    let Ok(snapshot) = Snapshot::read(bytes) else { return };
    let _ = snapshot.settings(TorchVersion::VERIFIED);
    for history in &snapshot.devices {
        for conf in CONFS {
            let settings = AllocatorSettings::parse(conf, TorchVersion::VERIFIED).expect("settings that PyTorch takes");
            let Ok(recording) = Recording::of(history, &settings) else { return };
            for (placement, limit) in [
                (Placement::Recorded, recording.ceiling()),
                (Placement::Ordered(AddressOrder::Descending), Some(64 << 20)),
            ] {
                let settings = settings.clone();
                let timeline = recording.timeline(&Conditions { settings, limit, capacity: None, placement });
                let peak = timeline.levels(50).iter().map(|level| level.reserved).max();
                assert!(peak.unwrap_or(0) <= timeline.replay.statistics.reserved.peak);
            }
        }
    }
});
