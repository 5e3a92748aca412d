//! How long does it take from a refused allocation to the typed error in hand?
//!
//! Timed by the recording itself: from the refusal to the first allocation after the attempt. In between lie the
//! engine's exception, the unwinding that drops the failed tensors, the drain of the backward queue and the reading of
//! the message. The peers are the step that failed, and for one allocation alone `tch`'s own `Result`.
//!
//! Run with `make bench BENCH=what_does_an_error_cost`.

#![expect(clippy::print_stdout, reason = "a bench prints what it measured")]

#[path = "../tests/it/model.rs"]
mod model;
mod turns;

use lowtide_core::Bytes;
use lowtide_torch::host::{self, HostAction};
use lowtide_torch::tch::{Device, Kind, Tensor};
use lowtide_torch::{attempt, gradients, rng};
use model::{Model, Shape};

const ROUNDS: usize = 101;

fn main() {
    host::install();
    alone();
    println!();
    println!("a refusal half-way through      error in hand         step   share of it");
    in_a_step("plain", false);
    in_a_step("recomputed", true);
}

fn alone() {
    let options = (Kind::Float, Device::Cpu);
    let turns = turns::take(
        ROUNDS,
        [&mut || refused(1, || Tensor::f_empty([1024], options).is_err()), &mut || {
            refused(1, || attempt(|| Tensor::empty([1024], options)).is_err())
        }],
    );
    println!("one refused allocation          error in hand        ratio");
    for (way, name) in ["a `Result` of tch, untyped", "an attempt, typed"].iter().enumerate() {
        println!("{name:<30} {:>12.1} us {:>12.2}", turns.time(way) / 1e3, turns.ratio(way));
    }
}

fn in_a_step(name: &str, again: bool) {
    rng::seed(Device::Cpu, 3).expect("the CPU has a generator");
    let shape = Shape { blocks: 4, width: 128, heads: 4, tokens: 64, vocabulary: 128, dropout: 0.1 };
    let model = Model::new(&shape, Device::Cpu);
    let ids = Tensor::randint(shape.vocabulary, [8, shape.tokens], (Kind::Int64, Device::Cpu));
    let step = || {
        let failed = attempt(|| model.loss(&ids, again)).and_then(|loss| attempt(|| loss.backward())).is_err();
        gradients::release(&model.parameters);
        failed
    };
    let forward = allocations(|| _ = model.loss(&ids, again));
    let all = allocations(|| _ = step());
    let turns = turns::take(
        ROUNDS,
        [&mut || turns::nanoseconds(|| _ = step()), &mut || refused(forward / 2, step), &mut || {
            refused((forward + all) / 2, step)
        }],
    );
    for (way, place) in [(1, "forward"), (2, "backward")] {
        let (error, step) = (turns.time(way) / 1e3, turns.time(0) / 1e3);
        let share = 100.0 * turns.ratio(way);
        println!("{:<30} {error:>12.1} us {step:>9.0} us {share:>11.2} %", format!("the {place}, {name}"));
    }
}

fn allocations(work: impl FnOnce()) -> u64 {
    let before = host::stats().allocations;
    work();
    host::stats().allocations - before
}

/// Nanoseconds from the refusal of the `nth` allocation in `failing` to its return.
fn refused(nth: u64, failing: impl Fn() -> bool) -> f64 {
    let (failed, events) = host::record(|| {
        host::fail_nth(nth, 1);
        let failed = failing();
        host::touch_pair(Bytes(64)).expect("a small block");
        failed
    });
    assert!(failed, "the allocation was refused");
    let refusal = events.iter().find(|event| event.action == HostAction::Refuse).expect("it is recorded");
    let after = events.iter().rfind(|event| event.action == HostAction::Allocate).expect("the one made after it");
    (after.nanoseconds - refusal.nanoseconds) as f64
}
