//! How much of the data set does an epoch read with a cache of some size, and what does a decision cost?
//!
//! Belady, which asks the order of the run, against LRU, which is what other loaders use; both in this process, over
//! the same orders. No policy can read less than 1 - c of the set where a share c of it is cached and all of it is
//! used once an epoch.
//!
//! Run with `make bench BENCH=how_much_does_an_epoch_read`.

#![expect(clippy::print_stdout, reason = "a bench prints what it measured")]

use std::time::Instant;

use lowtide_core::Bytes;
use lowtide_data::order::{Layout, Order, Shuffle};
use lowtide_data::policy::Policy;
use lowtide_data::simulation::simulate;

const SHARDS: u64 = 256;
const SAMPLES: u64 = 512;
const EPOCHS: u64 = 5;

fn main() {
    println!("{SHARDS} shards of {SAMPLES} samples; share of the set read in an epoch, the first left out");
    println!("{:<24} {:>5} {:>8} {:>8} {:>8} {:>6}   ns a sample", "order", "c", "bound", "belady", "lru", "ratio");
    let windows = [1, 8, 32, 64, 96, 128, 160].map(|shards| Shuffle::Window { shards });
    for shuffle in [Shuffle::Sequential, Shuffle::Full].into_iter().chain(windows) {
        for quarters in [1, 2, 3] {
            row(shuffle, quarters);
        }
    }
}

fn row(shuffle: Shuffle, quarters: u64) {
    let order = Order::new(Layout::new([SAMPLES; SHARDS as usize]), shuffle, 1);
    let (units, unit) = if shuffle == Shuffle::Full { (SHARDS * SAMPLES, 1) } else { (SHARDS, SAMPLES) };
    let run = |policy| {
        let start = Instant::now();
        let reads = simulate(&order, EPOCHS, Bytes(units * unit * quarters / 4), policy, |_| Bytes(unit));
        let nanoseconds = start.elapsed().as_secs_f64() * 1e9 / (EPOCHS * SHARDS * SAMPLES) as f64;
        let bytes: u64 = reads[1..].iter().map(|epoch| epoch.bytes.get()).sum();
        (bytes as f64 / ((EPOCHS - 1) * units * unit) as f64, nanoseconds)
    };
    let (belady, belady_time) = run(Policy::Belady);
    let (lru, lru_time) = run(Policy::Lru);
    println!(
        "{:<24} {:>5.2} {:>8.3} {belady:>8.3} {lru:>8.3} {:>6.2}   {belady_time:.0} and {lru_time:.0}",
        format!("{shuffle:?}"),
        quarters as f64 / 4.0,
        1.0 - quarters as f64 / 4.0,
        lru / belady
    );
}
