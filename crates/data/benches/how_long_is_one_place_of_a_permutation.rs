//! How long does it take to compute one place of a shuffled epoch, against reading it from a shuffled list?
//!
//! The list is what anyone would make first; it takes 8 bytes a sample and has to be shuffled before the first
//! sample. Both are read at random places, as a loader with several threads does.
//!
//! Run with `make bench BENCH=how_long_is_one_place_of_a_permutation`.

#![expect(clippy::print_stdout, reason = "a bench prints what it measured")]

use std::hint::black_box;
use std::time::Instant;

use lowtide_data::order::Permutation;

const CALLS: u64 = 2_000_000;

fn main() {
    for len in [1_000, 1_000_000, 1 << 24, (1 << 24) + 1] {
        let permutation = Permutation::new(len, 1);
        let at = nanoseconds(len, |index| permutation.at(index));
        let inverse = nanoseconds(len, |value| permutation.position_of(value));
        let start = Instant::now();
        let list = shuffled(len);
        let made = start.elapsed().as_secs_f64();
        let read = nanoseconds(len, |index| list[index as usize]);
        println!(
            "{len:>10} values: at {at:>5.1} ns, position_of {inverse:>5.1} ns, 24 bytes; \
             list {read:>5.1} ns, {} bytes, {:.0} ms to shuffle",
            len * 8,
            made * 1e3
        );
    }
    for shift in [30, 40, 63] {
        let len = (1 << shift) - 1;
        let permutation = Permutation::new(len, 1);
        println!("2^{shift} - 1 values: at {:.1} ns", nanoseconds(len, |index| permutation.at(index)));
    }
}

fn nanoseconds(len: u64, mut call: impl FnMut(u64) -> u64) -> f64 {
    let mut best = f64::INFINITY;
    for _ in 0..3 {
        let start = Instant::now();
        let mut place = 0;
        for _ in 0..CALLS {
            place = (place + 0x9E37_79B9_7F4A_7C15 % len) % len;
            black_box(call(place));
        }
        best = best.min(start.elapsed().as_secs_f64());
    }
    best * 1e9 / CALLS as f64
}

fn shuffled(len: u64) -> Vec<u64> {
    let mut list: Vec<u64> = (0..len).collect();
    let mut state: u64 = 1;
    for place in (1..list.len()).rev() {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        list.swap(place, (state >> 33) as usize % (place + 1));
    }
    list
}
