//! What does the CPU allocator with its line cost, against LibTorch's own?
//!
//! First a pair of allocate and free, bare and with the memory written once as every tensor's is; then a whole training
//! step. Both allocators take turns in this process.
//!
//! Run with `make bench BENCH=what_does_the_line_cost`.

#![expect(clippy::print_stdout, reason = "a bench prints what it measured")]

mod goal;
#[path = "../tests/it/model.rs"]
mod model;
mod turns;

use std::cell::RefCell;
use std::hint::black_box;

use goal::verdict;
use lowtide_core::Bytes;
use lowtide_torch::tch::{Device, Kind, Tensor};
use lowtide_torch::{AdamW, AdamWRule, gradients, host, rng};
use model::{Model, Shape};

/// Below this a pair may cost so many nanoseconds more, from here on a share more.
const LARGE: Bytes = Bytes::from_kib(64);
const NANOSECONDS: f64 = 60.0;
const SHARE: f64 = 1.05;
const SHARE_OF_A_STEP: f64 = 1.01;

fn main() {
    pairs();
    println!();
    steps();
}

fn pairs() {
    let sizes = [
        Bytes(64),
        Bytes::from_kib(1),
        Bytes::from_kib(16),
        LARGE,
        Bytes::from_kib(256),
        Bytes::from_mib(1),
        Bytes::from_mib(8),
        Bytes::from_mib(64),
    ];
    println!("a pair of allocate and free  LibTorch's own          ours       added   ratio   goal");
    for size in sizes {
        pair("bare", size, || host::touch_pair(size).expect("a small block"));
    }
    for size in sizes {
        let elements = i64::try_from(size.get()).expect("sizes are small");
        pair("written", size, || {
            let _ = black_box(Tensor::empty([elements], (Kind::Uint8, Device::Cpu)).fill_(1));
        });
    }
}

fn pair(name: &str, size: Bytes, work: impl Fn()) {
    let repeats = repeats_for_a_millisecond(&work);
    let many = || turns::nanoseconds(|| (0..repeats).for_each(|_| work())) / f64::from(repeats);
    let turns = turns::take(
        101,
        [
            &mut || {
                host::uninstall();
                many()
            },
            &mut || {
                host::install();
                many()
            },
        ],
    );
    let (theirs, ours, ratio) = (turns.time(0), turns.time(1), turns.ratio(1));
    let added = theirs * (ratio - 1.0);
    let (goal, verdict) = if size < LARGE {
        (format!("{NANOSECONDS} ns added"), verdict(added, NANOSECONDS))
    } else {
        (format!("{SHARE} times"), verdict(ratio, SHARE))
    };
    let size = size.to_string();
    println!(
        "{name:<9} {size:>10} {theirs:>18.0} ns {ours:>10.0} ns {added:>8.0} ns {ratio:>7.3}   {goal:<12} {verdict}"
    );
}

fn repeats_for_a_millisecond(work: &impl Fn()) -> u32 {
    let many = || (0..64).for_each(|_| work());
    many();
    let each = turns::nanoseconds(many) / 64.0;
    (1e6 / each).clamp(1.0, 100_000.0) as u32
}

fn steps() {
    println!("a training step           LibTorch's own   itself again    ours   ours, recording   goal for ours");
    let tiny = Shape { blocks: 4, width: 32, heads: 4, tokens: 16, vocabulary: 50, dropout: 0.1 };
    step("4 blocks, 32 wide", &tiny, 301);
    let small = Shape { blocks: 4, width: 128, heads: 4, tokens: 64, vocabulary: 128, dropout: 0.1 };
    step("4 blocks, 128 wide", &small, 151);
}

fn step(name: &str, shape: &Shape, rounds: usize) {
    rng::seed(Device::Cpu, 3).expect("the CPU has a generator");
    let model = Model::new(shape, Device::Cpu);
    let groups = vec![(0.1, model.parameters.iter().map(Tensor::shallow_clone).collect())];
    let mut optimizer = AdamW::new(AdamWRule::default(), groups);
    let ids = Tensor::randint(shape.vocabulary, [8, shape.tokens], (Kind::Int64, Device::Cpu));
    let mut step = || {
        model.loss(&ids, false).backward();
        let all = gradients::of(&model.parameters);
        gradients::clip(&all, 1.0).expect("there is memory");
        optimizer.step(1e-4).expect("there is memory");
        gradients::release(&model.parameters);
    };
    let step = RefCell::new(|| turns::nanoseconds(&mut step));
    let own = || {
        host::uninstall();
        step.borrow_mut()()
    };
    let turns = turns::take(
        rounds,
        [
            &mut || own(),
            &mut || own(),
            &mut || {
                host::install();
                step.borrow_mut()()
            },
            &mut || {
                host::install();
                host::record(|| step.borrow_mut()()).0
            },
        ],
    );
    let own = turns.time(0) / 1e6;
    let [again, ours, recording] = [1, 2, 3].map(|way| turns.ratio(way));
    let verdict = verdict(ours, SHARE_OF_A_STEP);
    println!(
        "{name:<22} {own:>14.2} ms {again:>14.4} {ours:>7.4} {recording:>17.4}   {SHARE_OF_A_STEP} times  {verdict}"
    );
}
