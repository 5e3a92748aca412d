//! What a good automaton is: it stays in its place, has no favoured direction, and moves.
//!
//! Three figures of an episode, lower is better, which are also the terms of the loss. States are (n, c, y, x); each
//! figure has one value a state until the means are taken.

use lowtide_torch::tch::{Kind, Tensor};

use super::episode::turned;

/// Share of the start's mass that its disc holds.
const DISC_SHARE: f64 = 0.95;

/// Means over the states of a batch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Metrics {
    /// `-ln` of (mass inside the start's disc at the end / at the start): how much has spread. At least about -0.05.
    pub survival: f64,
    /// `|U(R psi) - R U(psi)|^2 / (2 |psi|^2)`, R a turn by 90 degrees, U the episode: 0 where direction does not matter,
    /// at most 2. None where no turned episode was run.
    pub symmetry: Option<f64>,
    /// `|<start, end>|^2 / |start|^4`: 1 for a state that stands still, 0 for one that has become something else.
    pub activity: f64,
}

impl Metrics {
    /// Whether the automaton is acceptable: survival below 1.0, symmetry below 0.5 and activity below 0.5.
    ///
    /// The bound on activity is there so that standing still, which is perfect in the other two, does not count. A
    /// symmetry that was not measured is not acceptable.
    #[must_use]
    pub fn is_acceptable(&self) -> bool {
        self.survival < 1.0 && self.symmetry.is_some_and(|symmetry| symmetry < 0.5) && self.activity < 0.5
    }
}

/// The figures of episodes from `start` to `end`; `turned_end` is where the turned start states came to.
#[must_use]
pub fn metrics(start: &Tensor, end: &Tensor, turned_end: Option<&Tensor>) -> Metrics {
    let mean = |values: Tensor| values.mean(Kind::Double).double_value(&[]);
    let disc = disc(start);
    Metrics {
        survival: mean(survival(start, end, &disc)),
        symmetry: turned_end.map(|turned_end| mean(symmetry(start, end, turned_end))),
        activity: mean(activity(start, end)),
    }
}

/// One value a state.
pub(crate) fn survival(start: &Tensor, end: &Tensor, disc: &Tensor) -> Tensor {
    let inside = |states: &Tensor| sums(&(states.square() * disc));
    // Above zero, so that a state that has left altogether has a finite loss.
    let share = (inside(end) / inside(start)).clamp_min(f64::from(f32::MIN_POSITIVE));
    -share.log()
}

/// One value a state.
pub(crate) fn symmetry(start: &Tensor, end: &Tensor, turned_end: &Tensor) -> Tensor {
    sums(&(turned_end - turned(end)).square()) / (sums(&start.square()) * 2.0)
}

/// One value a state.
pub(crate) fn activity(start: &Tensor, end: &Tensor) -> Tensor {
    let [start_real, start_imaginary] = parts(start);
    let [end_real, end_imaginary] = parts(end);
    let mass = sums(&start.square());
    let real = sums(&(&start_real * &end_real + &start_imaginary * &end_imaginary)) / &mass;
    let imaginary = sums(&(&start_real * &end_imaginary - &start_imaginary * &end_real)) / &mass;
    real.square() + imaginary.square()
}

/// 1 inside and 0 outside the smallest disc about the middle of the grid that holds [`DISC_SHARE`] of a state's mass:
/// (n, 1, y, x), on the states' device.
pub(crate) fn disc(states: &Tensor) -> Tensor {
    let (n, _, height, width) = states.size4().expect("a state has four dimensions");
    // On the CPU: running sums are not repeatable on every device.
    let cpu = lowtide_torch::tch::Device::Cpu;
    let mass = states.detach().to_device(cpu).to_kind(Kind::Double).square();
    let mass = mass.sum_dim_intlist([1i64].as_slice(), false, None).view([n, height * width]);
    let distances = distances(height, width);
    let (sorted, order) = distances.sort(0, false);
    let running = mass.index_select(1, &order).cumsum(1, Kind::Double);
    let short = running.lt_tensor(&(running.narrow(1, height * width - 1, 1) * DISC_SHARE));
    let last = short.sum_dim_intlist([1i64].as_slice(), false, Kind::Int64).clamp_max(height * width - 1);
    let radius = sorted.index_select(0, &last).view([n, 1]);
    distances
        .unsqueeze(0)
        .le_tensor(&radius)
        .to_kind(states.kind())
        .view([n, 1, height, width])
        .to_device(states.device())
}

/// The square of each cell's distance to the middle of the grid, row by row.
fn distances(height: i64, width: i64) -> Tensor {
    let from_middle = |cells: i64| (0..cells).map(move |cell| cell as f64 - (cells - 1) as f64 / 2.0);
    let squares: Vec<f64> = from_middle(height).flat_map(|y| from_middle(width).map(move |x| y * y + x * x)).collect();
    Tensor::from_slice(&squares)
}

fn sums(values: &Tensor) -> Tensor {
    values.sum_dim_intlist([1i64, 2, 3].as_slice(), false, Kind::Float)
}

/// Real and imaginary parts.
fn parts(states: &Tensor) -> [Tensor; 2] {
    <[Tensor; 2]>::try_from(states.chunk(2, 1)).expect("channels are real parts, then imaginary parts")
}
