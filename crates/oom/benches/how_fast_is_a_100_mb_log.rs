//! How fast is every out-of-memory message found in a log of 100 MB, on one core?
//!
//! The peer is what anyone would write first: each line lower-cased and searched for `out of memory`. The floor is a count
//! of the lines. All three run in this process over the same log, whose every line is full of the words `memory`,
//! `allocated` and `reserved`.
//!
//! Run with `make bench BENCH=how_fast_is_a_100_mb_log`.

#![expect(clippy::print_stdout, reason = "a bench prints what it measured")]

use std::fmt::Write;
use std::hint::black_box;
use std::time::Instant;

const SIZE: usize = 100_000_000;
/// Megabytes a second.
const GOAL: f64 = 500.0;
const ERROR: &str = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 496.00 MiB. GPU 0 has a total capacity of 14.75 GiB of which 235.06 MiB is free. Process 20398 has 14.52 GiB memory in use. Of the allocated memory 14.06 GiB is allocated by PyTorch, and 330.42 MiB is reserved by PyTorch but unallocated.";

fn main() {
    let log = log();
    let megabytes = log.len() as f64 / 1e6;
    let (found, scan) = best_of(5, || lowtide_oom::scan(log.as_bytes()).count());
    let (_, naive) = best_of(3, || log.lines().filter(|line| line.to_lowercase().contains("out of memory")).count());
    let (lines, count) = best_of(5, || memchr::memchr_iter(b'\n', log.as_bytes()).count());

    println!("log: {megabytes:.0} MB, {lines} lines, {found} messages found");
    let verdict = if megabytes / scan >= GOAL { "ok" } else { "MISSED" };
    println!("scan:            {:>8.0} MB/s   goal {GOAL} MB/s: {verdict}", megabytes / scan);
    println!("naive, by line:  {:>8.0} MB/s   scan is {:.1} times as fast", megabytes / naive, naive / scan);
    println!("count of lines:  {:>8.0} MB/s   scan takes {:.1} times as long", megabytes / count, scan / count);
}

/// The last result and the shortest time of several runs, in seconds.
fn best_of(runs: usize, mut work: impl FnMut() -> usize) -> (usize, f64) {
    let mut best = f64::INFINITY;
    let mut result = 0;
    for _ in 0..runs {
        let start = Instant::now();
        result = black_box(work());
        best = best.min(start.elapsed().as_secs_f64());
    }
    (result, best)
}

/// Training lines, progress bars, tracebacks with quoted code, advice; a real error every few thousand lines.
fn log() -> String {
    let mut log = String::with_capacity(SIZE + 4096);
    let mut step = 0_u64;
    while log.len() < SIZE {
        step += 1;
        write_line(&mut log, step).expect("writing to a string cannot fail");
    }
    log
}

fn write_line(log: &mut String, step: u64) -> std::fmt::Result {
    let noise = step.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 40;
    match step % 5000 {
        0 => writeln!(
            log,
            "Traceback (most recent call last):\n  File \"/opt/train/loop.py\", line {noise}, in step\n    except torch.cuda.OutOfMemoryError as error:\n{ERROR}\n"
        ),
        1000 => {
            writeln!(log, "WARNING: consider gradient checkpointing to avoid running out of memory on long sequences")
        }
        2000 => writeln!(
            log,
            "Traceback (most recent call last):\n  File \"data.py\", line {noise}, in read\nKeyError: 'batch_{noise}'"
        ),
        _ if step.is_multiple_of(7) => writeln!(
            log,
            "{{\"step\": {step}, \"loss\": 2.{noise}, \"memory_allocated\": {noise}, \"memory_reserved\": {step}, \"lr\": 0.0003}}"
        ),
        _ if step.is_multiple_of(11) => {
            write!(log, "\rEpoch 3:  42%|████▏     | {step}/100000 [12:03<16:31, 1.37it/s, loss=2.{noise}]\n")
        }
        _ => writeln!(
            log,
            "2026-03-01 12:00:{:02}.{noise} INFO trainer: [step {step}] loss 2.{noise} memory: device 1.21/3.50 GiB, allocated 1.37 GiB, reserved 2.10 GiB",
            step % 60
        ),
    }
}
