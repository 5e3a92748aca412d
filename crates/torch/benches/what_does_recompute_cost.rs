//! What does recompute cost in time, and what does it save in memory?
//!
//! A 12-block model, all segments but the last recomputed, against the same step with all activations kept. The last row
//! is the plain step and one more forward, which is all the work there is to do. Dropout makes a forward a larger share
//! of the step, because only the forward draws random numbers.
//!
//! Run with `make bench BENCH=what_does_recompute_cost`.

#![expect(clippy::print_stdout, reason = "a bench prints what it measured")]

mod goal;
#[path = "../tests/it/model.rs"]
mod model;
mod turns;

use std::cell::RefCell;
use std::hint::black_box;

use goal::verdict;
use lowtide_torch::tch::{Device, Kind, Tensor, no_grad};
use lowtide_torch::{AdamW, AdamWRule, gradients, host, rng};
use model::{Model, Shape};

const PEAK_SHARE: f64 = 0.40;
const TIME_SHARE: f64 = 1.35;

/// A model, its optimizer and a batch.
struct Setup {
    model: Model,
    optimizer: RefCell<AdamW>,
    ids: Tensor,
}

fn main() {
    host::install();
    println!("a step of 12 blocks                  plain     recomputed   ratio   goal");
    for dropout in [0.0, 0.1] {
        let setup = Setup::new(dropout);
        println!("dropout {dropout}");
        peak(&setup);
        time(&setup);
    }
}

impl Setup {
    fn new(dropout: f64) -> Setup {
        rng::seed(Device::Cpu, 7).expect("the CPU has a generator");
        let shape = Shape { blocks: 12, width: 128, heads: 4, tokens: 128, vocabulary: 128, dropout };
        let model = Model::new(&shape, Device::Cpu);
        let groups = vec![(0.1, model.parameters.iter().map(Tensor::shallow_clone).collect())];
        let mut optimizer = AdamW::new(AdamWRule::default(), groups);
        optimizer.allocate().expect("there is memory");
        let ids = Tensor::randint(shape.vocabulary, [8, shape.tokens], (Kind::Int64, Device::Cpu));
        Setup { model, optimizer: RefCell::new(optimizer), ids }
    }

    fn step(&self, again: bool) {
        self.model.loss(&self.ids, again).backward();
        let all = gradients::of(&self.model.parameters);
        gradients::clip(&all, 1.0).expect("there is memory");
        self.optimizer.borrow_mut().step(1e-4).expect("there is memory");
        gradients::release(&self.model.parameters);
    }
}

/// What a step holds at most beyond the parameters and the optimizer's state.
fn peak(setup: &Setup) {
    let [plain, again] = [false, true].map(|again| {
        host::reset_peak();
        let before = host::stats().allocated;
        setup.step(again);
        host::stats().peak.saturating_sub(before)
    });
    let ratio = again.get() as f64 / plain.get() as f64;
    row("peak memory", &plain.to_string(), &again.to_string(), ratio, PEAK_SHARE);
}

fn time(setup: &Setup) {
    let turns = turns::take(
        31,
        [
            &mut || turns::nanoseconds(|| setup.step(false)),
            &mut || turns::nanoseconds(|| setup.step(true)),
            &mut || turns::nanoseconds(|| forward_of_the_recomputed(&setup.model, &setup.ids)),
        ],
    );
    let milliseconds = |way| format!("{:.1} ms", turns.time(way) / 1e6);
    row("time", &milliseconds(0), &milliseconds(1), turns.ratio(1), TIME_SHARE);
    println!("  {:<46} {:>16.3}", "time, plain and one more forward", 1.0 + turns.ratio(2));
}

fn forward_of_the_recomputed(model: &Model, ids: &Tensor) {
    let (_last, recomputed) = model.segments.split_last().expect("there are blocks");
    let start = vec![ids.shallow_clone()];
    black_box(no_grad(|| recomputed.iter().fold(start, |values, segment| segment.run(&values))));
}

fn row(what: &str, plain: &str, again: &str, ratio: f64, goal: f64) {
    let verdict = verdict(ratio, goal);
    println!("  {what:<25} {plain:>14} {again:>14} {ratio:>7.3}   {goal:<4}   {verdict}");
}
