//! Ranks started one by one, and weights read from checkpoints.

use std::fs;
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};

use lowtide_testkit::Printout;
use serde_json::Value;

use crate::kit::Place;

/// Four steps with an evaluation and a checkpoint after each.
pub(super) const BUSY: &str = "--set eval.every=1 --set eval.batches=2 --set save.every=1";

/// Without random numbers, which follow the rank, runs on other numbers of ranks differ by rounding alone.
pub(super) const PLAIN: &str = "--set model.dropout=0";

/// One of several ranks that this test starts itself, as torchrun and others do.
pub(super) fn rank(place: &Place, (rank, world): (u32, u32), port: u16, words: &str) -> Child {
    let mut command = place.command(words);
    command.env("RANK", rank.to_string()).env("WORLD_SIZE", world.to_string());
    command.env("MASTER_ADDR", "127.0.0.1").env("MASTER_PORT", port.to_string());
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

pub(super) fn ended(child: Child) -> Printout {
    Printout::of(child.wait_with_output().unwrap())
}

pub(super) fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// The processes below another one, which are engines.
pub(super) fn engines(parent: u32) -> Vec<u32> {
    let listed = Command::new("ps").args(["-o", "pid=", "--ppid", &parent.to_string()]).output().unwrap();
    String::from_utf8(listed.stdout).unwrap().split_whitespace().map(|pid| pid.parse().unwrap()).collect()
}

pub(super) fn kill(signal: &str, pid: u32) {
    let command = format!("kill -{signal} {pid}");
    assert!(Command::new("sh").args(["-c", &command]).status().unwrap().success());
}

/// The weights of the newest checkpoint, one tensor after the other in the order of the file.
pub(super) fn weights(place: &Place, out: &str) -> Vec<f32> {
    let newest = fs::read_dir(place.path(&format!("{out}/checkpoints"))).unwrap();
    let newest = newest.map(|entry| entry.unwrap().path()).filter(|path| path.is_dir()).max().unwrap();
    let bytes = fs::read(newest.join("model.safetensors")).unwrap();
    let header = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
    let tensors: Value = serde_json::from_slice(&bytes[8..8 + header]).unwrap();
    assert!(tensors.as_object().unwrap().values().all(|tensor| tensor.get("dtype").is_none_or(|kind| kind == "F32")));
    bytes[8 + header..].chunks_exact(4).map(|number| f32::from_le_bytes(number.try_into().unwrap())).collect()
}

/// The largest difference of two lists of weights.
pub(super) fn difference(one: &[f32], other: &[f32]) -> f32 {
    assert_eq!(one.len(), other.len());
    one.iter().zip(other).map(|(one, other)| (one - other).abs()).fold(0.0, f32::max)
}

/// `state.json` of a checkpoint.
pub(super) fn progress(place: &Place, out: &str, step: u64) -> Value {
    place.json(&format!("{out}/checkpoints/{step:08}/state.json"))["progress"].clone()
}
