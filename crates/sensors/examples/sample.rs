//! Prints a fast and a slow sample of this process, or of the one whose number is given, as JSON.

#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use lowtide_sensors::{Options, Sampler};

fn main() {
    let process = std::env::args().nth(1).and_then(|word| word.parse().ok()).unwrap_or_else(std::process::id);
    let mut sampler = Sampler::new(Options { process: Some(process), ..Options::default() });
    let detail = sampler.slow(0.0);
    let sample = sampler.fast(0.0);
    let text = serde_json::to_string_pretty(&serde_json::json!({ "sample": sample, "detail": detail }));
    println!("{}", text.expect("plain figures"));
}
