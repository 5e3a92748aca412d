//! How many events of a recording are replayed in a second on one core, and how long does a table of settings take?
//!
//! Recordings of a made-up training: parameters that stay, steps of a forward with many activations, a backward that frees them in turn and
//! has temporaries of its own, all sizes drawn by a seeded random.
//!
//! Run with `make bench BENCH=how_fast_is_a_replay`.

#![expect(clippy::print_stdout, reason = "a bench prints what it measured")]

use std::time::Instant;

use lowtide_sim::{Action, AddressOrder, AllocatorSettings, Conditions, Entry, Placement, Recording, TorchVersion};

/// Events a second.
const GOAL: f64 = 5e6;
/// Seconds for the settings that people try.
const TABLE_GOAL: f64 = 1.0;

fn main() {
    let recording = recording(10_000_000);
    for conf in ["", "expandable_segments:True", "roundup_power2_divisions:8"] {
        let settings = AllocatorSettings::parse(conf, TorchVersion::VERIFIED).expect("settings that PyTorch takes");
        let placement = Placement::Ordered(AddressOrder::Ascending);
        let begin = Instant::now();
        let replay = recording.replay(&Conditions { settings, limit: None, capacity: None, placement });
        let seconds = begin.elapsed().as_secs_f64();
        let rate = recording.len() as f64 / seconds;
        let verdict = if rate >= GOAL { "ok" } else { "MISSED" };
        let conf = if conf.is_empty() { "default" } else { conf };
        println!(
            "{conf:<28} {:>6.2} million events/s, peak {} MiB; goal 5: {verdict}",
            rate / 1e6,
            replay.statistics.reserved.peak >> 20
        );
    }
    let recording = self::recording(100_000);
    let begin = Instant::now();
    let table = recording.what_if(TorchVersion::VERIFIED, Some(1 << 40));
    let seconds = begin.elapsed().as_secs_f64();
    let verdict = if seconds <= TABLE_GOAL { "ok" } else { "MISSED" };
    println!("{} settings, twice each, of {} events: {seconds:.2} s; goal 1: {verdict}", table.len(), recording.len());
}

/// A recording of about so many events.
fn recording(events: usize) -> Recording {
    let mut state = 7_u64;
    let mut random = move |below: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    let mut entries = Vec::with_capacity(events + 1000);
    let mut next = 1 << 30;
    let mut alloc = |entries: &mut Vec<Entry>, size: u64| {
        // An address of its own for each; the replay makes its own.
        next += 512;
        entries.push(Entry { action: Action::Alloc, address: next, size, stream: 0 });
        (next, size)
    };
    let free = |entries: &mut Vec<Entry>, (address, size): (u64, u64)| {
        for action in [Action::FreeRequested, Action::FreeCompleted] {
            entries.push(Entry { action, address, size, stream: 0 });
        }
    };
    for _ in 0..200 {
        let size = 4 * (1 + random(1 << 20));
        alloc(&mut entries, size);
    }
    let sizes: Vec<u64> = (0..400).map(|_| 4 << random(22)).collect();
    while entries.len() < events {
        let mut kept = Vec::new();
        for size in &sizes {
            kept.push(alloc(&mut entries, *size));
            let temporary = alloc(&mut entries, *size / 2 + 4);
            free(&mut entries, temporary);
        }
        while let Some(activation) = kept.pop() {
            let gradient = alloc(&mut entries, activation.1);
            free(&mut entries, activation);
            free(&mut entries, gradient);
        }
    }
    Recording::new(entries).expect("what is freed was allocated")
}
