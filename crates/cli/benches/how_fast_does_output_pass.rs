//! How fast does output pass through `lowtide run`, and what does lowtide take for it?
//!
//! A command writes 2 GB of zeros, then of lines as training prints them, into a pipe that this process reads. The peer is
//! the same command without lowtide.
//!
//! Run with `make bench BENCH=how_fast_does_output_pass`.

#![expect(clippy::print_stdout, reason = "a bench prints what it measured")]

use std::io::Read;
use std::process::{Command, Stdio};
use std::time::Instant;

const BYTES: usize = 2_000_000_000;
/// Bytes a second.
const GOAL: f64 = 500e6;

fn main() {
    let folder = tempfile::tempdir().expect("a folder for the log");
    let lines = format!("yes 'iter 100: loss 3.2104, time 241.20ms, mfu 31.02%' | head -c {BYTES}");
    let scripts = [("zeros", format!("head -c {BYTES} /dev/zero")), ("lines", lines)];
    for (name, script) in &scripts {
        let mut alone = Command::new("sh");
        let alone = rate(alone.args(["-c", script]));
        let mut through = Command::new(env!("CARGO_BIN_EXE_lowtide"));
        through.args(["run", "-q", "--out"]).arg(folder.path().join(name)).args(["--", "sh", "-c", script]);
        let through = rate(&mut through);
        let verdict = if through >= GOAL { "met" } else { "missed" };
        println!(
            "{name}: {:>5.0} MB/s through lowtide, {:>5.0} MB/s alone ({:.2} of it)   goal {:.0} MB/s: {verdict}",
            through / 1e6,
            alone / 1e6,
            through / alone,
            GOAL / 1e6,
        );
        std::fs::remove_dir_all(folder.path().join(name)).expect("a log was written");
    }
    let mut command = Command::new(env!("CARGO_BIN_EXE_lowtide"));
    let begun = Instant::now();
    let status = command.args(["run", "-q", "--out"]).arg(folder.path().join("nothing")).args(["--", "true"]).status();
    assert!(status.is_ok_and(|status| status.success()));
    println!("a command that does nothing: {:.1} ms", begun.elapsed().as_secs_f64() * 1e3);
}

/// Bytes a second that come out of a command.
fn rate(command: &mut Command) -> f64 {
    let begun = Instant::now();
    let mut child = command.stdout(Stdio::piped()).spawn().expect("the command can be started");
    let mut out = child.stdout.take().expect("a pipe was asked for");
    let mut buffer = vec![0; 1 << 20];
    let mut bytes = 0;
    loop {
        match out.read(&mut buffer).expect("the pipe can be read") {
            0 => break,
            size => bytes += size,
        }
    }
    assert!(child.wait().is_ok_and(|status| status.success()) && bytes == BYTES);
    bytes as f64 / begun.elapsed().as_secs_f64()
}
