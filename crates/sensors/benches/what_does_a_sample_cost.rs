//! What does a sample cost, and which share of a core is that?
//!
//! The watched process holds 1 GiB and has eight children, as a run with data workers has. The peer of a slow sample is the
//! fast one.
//!
//! Run with `make bench BENCH=what_does_a_sample_cost`.

use std::hint::black_box;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use lowtide_sensors::{Due, Options, Sampler, Schedule};

/// Microseconds.
const FAST_GOAL: f64 = 500.0;
/// Percent of a core, at two fast samples a second and a slow one every ten seconds.
const SHARE_GOAL: f64 = 0.2;
const CHILDREN: usize = 8;

fn main() {
    let held = black_box(vec![1_u8; 1 << 30]);
    let children: Vec<Child> = (0..CHILDREN).filter_map(|_| sleeper()).collect();
    let start = Instant::now();
    let mut sampler = Sampler::new(Options { process: Some(std::process::id()), ..Options::default() });
    println!("opened in        {:>9.0} us", start.elapsed().as_secs_f64() * 1e6);
    let sample = sampler.fast(0.0);
    println!("children: {}, cards: {}", sample.children.processes, sample.gpus.cards.len());

    let fast = median(1000, || drop(black_box(sampler.fast(0.0))));
    let slow = median(20, || drop(black_box(sampler.slow(0.0))));
    let share = (2.0 * fast + slow / 10.0) / 1e6 * 100.0;
    // A schedule that is told what slow samples take asks for fewer.
    let mut schedule = Schedule::default();
    let mut taken = 0;
    for tick in 0..20_000 {
        let now = f64::from(tick) / 2.0;
        if schedule.due(now) == Due::Both {
            schedule.slow_took(now, slow / 1e6);
            taken += 1;
        }
    }
    let scheduled = (2.0 * fast + slow * f64::from(taken) / 10_000.0) / 1e6 * 100.0;
    println!("fast sample:     {fast:>9.0} us   goal {FAST_GOAL} us: {}", verdict(fast, FAST_GOAL));
    println!("slow sample:     {slow:>9.0} us   {:.0} times a fast one", slow / fast);
    println!("share of a core: {share:>9.3} %    goal {SHARE_GOAL} %: {}", verdict(share, SHARE_GOAL));
    println!("by the schedule: {scheduled:>9.3} %    a slow one every {:.1} s", 10_000.0 / f64::from(taken));
    drop(black_box(held));
    for mut child in children {
        child.kill().and_then(|()| child.wait()).expect("a child that was started here");
    }
}

fn sleeper() -> Option<Child> {
    Command::new("sleep").arg("600").stdin(Stdio::null()).spawn().ok()
}

fn verdict(value: f64, goal: f64) -> &'static str {
    if value <= goal { "ok" } else { "MISSED" }
}

/// The median time of many calls, in microseconds.
fn median(calls: usize, mut work: impl FnMut()) -> f64 {
    let mut times: Vec<f64> = (0..calls)
        .map(|_| {
            let start = Instant::now();
            work();
            start.elapsed().as_secs_f64() * 1e6
        })
        .collect();
    times.sort_by(f64::total_cmp);
    times[calls / 2]
}
