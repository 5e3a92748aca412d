//! What does a sample cost, and which share of a core is that?
//!
//! The watched process holds 1 GiB and has eight children, as a run with data workers has. The peer of a slow sample is
//! the fast one. Times of samples are by the clock, shares of a core by the processor's time of this thread.
//!
//! Run with `make bench BENCH=what_does_a_sample_cost`.

#![expect(clippy::print_stdout, reason = "a bench prints what it measured")]

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

    let fast = cost(1000, || drop(black_box(sampler.fast(0.0))));
    let lists = cost(200, || drop(black_box(sampler.lists(0.0))));
    let slow = cost(20, || drop(black_box(sampler.slow(0.0))));
    println!("fast sample:     {:>9.0} us   goal {FAST_GOAL} us: {}", fast.clock, verdict(fast.clock, FAST_GOAL));
    println!("slow sample:     {:>9.0} us   {:.0} times a fast one", slow.clock, slow.clock / fast.clock);
    println!("with old shares: {:>9.0} us   {:.0} times a fast one", lists.clock, lists.clock / fast.clock);
    let others: Vec<u32> = children.iter().map(Child::id).collect();
    sampler.watch_besides(&others);
    let besides = cost(1000, || drop(black_box(sampler.fast(0.0))));
    let each = (besides.clock - fast.clock) / others.len() as f64;
    println!("a process more:  {each:>9.0} us   {:.2} of a fast sample", each / fast.clock);
    let (share, every) = by_schedule(&fast, &lists, &slow);
    println!("shares of memory are read every {every:.1} s, lists every 10 s");
    println!("share of a core: {share:>9.3} %    goal {SHARE_GOAL} %: {}", verdict(share, SHARE_GOAL));
    drop(black_box(held));
    for mut child in children {
        child.kill().and_then(|()| child.wait()).expect("a child that was started here");
    }
}

/// The share of a core that a schedule comes to which is told what shares take; and the seconds between those.
fn by_schedule(fast: &Cost, lists: &Cost, slow: &Cost) -> (f64, f64) {
    const SECONDS: u32 = 10_000;
    let mut schedule = Schedule::default();
    let mut processor = 0.0;
    let mut taken = 0_u32;
    for tick in 0..2 * SECONDS {
        let now = f64::from(tick) / 2.0;
        processor += fast.processor;
        match schedule.due(now) {
            Due::Both => {
                schedule.shares_took(now, slow.clock / 1e6);
                processor += slow.processor;
                taken += 1;
            }
            Due::Lists => processor += lists.processor,
            Due::Fast | Due::Nothing => {}
        }
    }
    (processor / 1e6 / f64::from(SECONDS) * 100.0, f64::from(SECONDS) / f64::from(taken))
}

fn sleeper() -> Option<Child> {
    Command::new("sleep").arg("600").stdin(Stdio::null()).spawn().ok()
}

fn verdict(value: f64, goal: f64) -> &'static str {
    if value <= goal { "ok" } else { "MISSED" }
}

/// What a call takes, as medians in microseconds.
struct Cost {
    clock: f64,
    processor: f64,
}

fn cost(calls: usize, mut work: impl FnMut()) -> Cost {
    let (mut clock, mut processor) = (Vec::new(), Vec::new());
    for _ in 0..calls {
        let (start, busy) = (Instant::now(), processor_time());
        work();
        clock.push(start.elapsed().as_secs_f64() * 1e6);
        processor.push(processor_time() - busy);
    }
    Cost { clock: median(clock), processor: median(processor) }
}

/// Microseconds that this thread has run, in the kernel too.
fn processor_time() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    time.tv_sec as f64 * 1e6 + time.tv_nsec as f64 / 1e3
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}
