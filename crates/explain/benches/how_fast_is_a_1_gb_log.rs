//! How long does a log of 1 GB take to explain, in how much memory, and how long a short one?
//!
//! Goals: 3 s and 100 MB for the large one, 30 ms for the short one. The log comes in pieces of 1 MiB, as from a file;
//! the floor is a count of its lines. Memory is the growth of the process's peak while the log is read.
//!
//! Run with `make bench BENCH=how_fast_is_a_1_gb_log`.

#![expect(clippy::print_stdout, reason = "a bench prints what it measured")]

use std::fmt::Write;
use std::fs;
use std::time::Instant;

use lowtide_explain::{Context, Explanation, Investigation, explain};

const PIECE: usize = 1 << 20;
const PIECES: usize = 954;
const STORY: &str = include_str!("../tests/golden/nanogpt.log");

fn main() {
    let piece = piece();
    let before = peak_megabytes();
    let start = Instant::now();
    let explained = large(&piece);
    let seconds = start.elapsed().as_secs_f64();
    let grown = peak_megabytes() - before;
    let gigabytes = (piece.len() * PIECES) as f64 / 1e9;

    let start = Instant::now();
    let lines: usize = (0..PIECES).map(|_| memchr::memchr_iter(b'\n', &piece).count()).sum();
    let floor = start.elapsed().as_secs_f64();

    println!("log: {gigabytes:.2} GB, {lines} lines, {} events", explained.events);
    println!("explain:         {seconds:>8.2} s    goal 3 s: {}", verdict(seconds <= 3.0));
    println!("memory grown:    {grown:>8.1} MB   goal 100 MB: {}", verdict(grown <= 100.0));
    println!("count of lines:  {floor:>8.2} s    explain takes {:.1} times as long", seconds / floor);

    let start = Instant::now();
    let events = explain(STORY.as_bytes(), &Context::default()).len();
    let milliseconds = start.elapsed().as_secs_f64() * 1e3;
    println!(
        "a short log:     {milliseconds:>8.2} ms   goal 30 ms: {} ({events} event)",
        verdict(milliseconds <= 30.0)
    );
}

fn verdict(is_met: bool) -> &'static str {
    if is_met { "ok" } else { "MISSED" }
}

fn large(piece: &[u8]) -> Explanation {
    let mut investigation = Investigation::default();
    for index in 0..PIECES {
        if index == PIECES / 2 || index == PIECES - 1 {
            investigation.feed(STORY.as_bytes());
        }
        investigation.feed(piece);
    }
    investigation.finish(&Context::default())
}

/// Training lines, progress bars, tracebacks of other errors, advice.
fn piece() -> Vec<u8> {
    let mut log = String::with_capacity(PIECE + 512);
    let mut step = 0_u64;
    while log.len() < PIECE {
        step += 1;
        let noise = step.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 40;
        let written = match step % 5000 {
            0 => writeln!(
                log,
                "WARNING: consider gradient checkpointing to avoid running out of memory on long sequences"
            ),
            2000 => writeln!(
                log,
                "Traceback (most recent call last):\n  File \"data.py\", line {noise}, in read\nKeyError: '{noise}'"
            ),
            _ if step.is_multiple_of(7) => {
                writeln!(log, "{{\"step\": {step}, \"loss\": 2.{noise}, \"memory_allocated\": {noise}}}")
            }
            _ => writeln!(
                log,
                "2026-03-01 12:00:00.{noise} INFO [step {step}] loss 2.{noise} memory allocated 1.37 GiB, reserved \
                 2.10 GiB"
            ),
        };
        written.expect("writing to a string cannot fail");
    }
    log.into_bytes()
}

/// The largest resident memory of this process so far.
fn peak_megabytes() -> f64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap_or_default();
    let kilobytes: f64 = line.trim().trim_end_matches("kB").trim().parse().unwrap_or(0.0);
    kilobytes * 1024.0 / 1e6
}
