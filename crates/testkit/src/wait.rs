//! Patience.

use std::thread;
use std::time::{Duration, Instant};

/// Waits for what takes a moment; fails after a long one.
#[track_caller]
pub fn wait_until(mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < Duration::from_secs(40), "it never happened");
        thread::sleep(Duration::from_millis(50));
    }
}
