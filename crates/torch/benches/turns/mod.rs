//! Several ways of doing the same work, timed in turns in one process, so that what disturbs the machine disturbs all of
//! them.

use std::time::Instant;

use lowtide_torch::tch;

/// Nanoseconds of each way in each round.
pub(crate) struct Turns {
    rounds: Vec<Vec<f64>>,
}

/// Asks every way for its time once a round, one after the other, and starts each round with another one.
///
/// The engine works on one thread meanwhile: with more, each parallel loop waits for whoever else has the other core.
pub(crate) fn take<const WAYS: usize>(rounds: usize, mut ways: [&mut dyn FnMut() -> f64; WAYS]) -> Turns {
    tch::set_num_threads(1);
    ways.iter_mut().for_each(|way| _ = way());
    let mut turns = Turns { rounds: Vec::new() };
    for round in 0..rounds {
        let mut times = vec![0.0; WAYS];
        for turn in 0..WAYS {
            let way = (round + turn) % WAYS;
            times[way] = ways[way]();
        }
        turns.rounds.push(times);
    }
    turns
}

impl Turns {
    /// The middle time of a way, in nanoseconds.
    pub(crate) fn time(&self, way: usize) -> f64 {
        median(self.rounds.iter().map(|times| times[way]))
    }

    /// The middle of what `way` takes as a share of the first way in the same round.
    pub(crate) fn ratio(&self, way: usize) -> f64 {
        median(self.rounds.iter().map(|times| times[way] / times[0]))
    }
}

/// Nanoseconds that `work` takes.
pub(crate) fn nanoseconds(mut work: impl FnMut()) -> f64 {
    let start = Instant::now();
    work();
    start.elapsed().as_nanos() as f64
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut sorted: Vec<f64> = values.collect();
    sorted.sort_by(f64::total_cmp);
    sorted[sorted.len() / 2]
}
