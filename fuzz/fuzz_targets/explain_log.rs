//! Any log with any configuration must be explained without a panic, and a patch must apply to what it was made for.
//!
//! Run with `cargo +nightly fuzz run explain_log` from the root of the project. The bytes up to the first zero are the
//! configuration, the rest is the log.

#![no_main]

use libfuzzer_sys::fuzz_target;
use lowtide_explain::{Config, Context, Syntax, explain};

fuzz_target!(|bytes: &[u8]| {
    let at = bytes.iter().position(|byte| *byte == 0).unwrap_or(0);
    let text = String::from_utf8_lossy(&bytes[..at]);
    for syntax in [Syntax::Python, Syntax::Yaml, Syntax::Json, Syntax::Command] {
        let configs = Config::parse_as(syntax, "config", &text).into_iter().collect();
        for verdict in explain(&bytes[at..], &Context { configs, ..Context::default() }) {
            assert!((0.0..=1.0).contains(&verdict.certainty));
            if let Some(patch) = verdict.patch {
                assert_ne!(patch.apply(&text).expect("it was made for this text"), text);
            }
        }
    }
});
