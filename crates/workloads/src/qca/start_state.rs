//! The states that episodes start from: a random complex blob in the middle of the grid.
//!
//! Every value is drawn from a normal distribution and weighed by a Gaussian window; the state is then scaled so that the
//! mean square over all its values is 1. States are pure functions of (seed, number) and leave the engine's generators
//! alone.

use lowtide_generators::Normal;

use super::settings::ModelSettings;

/// The window's deviation as a share of the grid: 5 cells of 64.
const DEVIATION: f64 = 5.0 / 64.0;

/// Start states of one seed.
#[derive(Clone, Debug)]
pub struct StartStates {
    seed: u64,
    channels: usize,
    window: Vec<f64>,
}

impl StartStates {
    /// The start states of a seed, shaped as the settings say.
    #[must_use]
    pub fn new(settings: &ModelSettings, seed: u64) -> StartStates {
        let channels = 2 * settings.d_state as usize;
        StartStates { seed, channels, window: window(settings.grid_size) }
    }

    /// State `number`: channel by channel, row by row.
    #[must_use]
    pub fn state(&self, number: u64) -> Vec<f32> {
        let mut normal = Normal::new(self.seed, number);
        let values: Vec<f64> =
            (0..self.channels).flat_map(|_| &self.window).map(|weight| weight * normal.draw()).collect();
        let mean_square = values.iter().map(|value| value * value).sum::<f64>() / values.len() as f64;
        let scale = 1.0 / mean_square.sqrt();
        values.iter().map(|value| (value * scale) as f32).collect()
    }
}

/// The window over the grid, row by row.
fn window(grid_size: u32) -> Vec<f64> {
    let cells = f64::from(grid_size);
    let from_middle = || (0..grid_size).map(move |cell| f64::from(cell) - (cells - 1.0) / 2.0);
    let spread = 2.0 * (DEVIATION * cells).powi(2);
    from_middle().flat_map(|y| from_middle().map(move |x| (-(y * y + x * x) / spread).exp())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn states(seed: u64) -> StartStates {
        StartStates::new(&ModelSettings { d_state: 3, grid_size: 64, ..ModelSettings::default() }, seed)
    }

    #[test]
    fn states_are_pure_and_different() {
        assert_eq!(states(7).state(3), states(7).state(3));
        assert_ne!(states(7).state(3), states(7).state(4));
        assert_ne!(states(7).state(3), states(8).state(3));
        assert_ne!(states(7).state(8), states(8).state(7));
    }

    #[test]
    fn the_mean_square_is_one_and_the_deviation_five_cells() {
        let values = states(1).state(0);
        assert_eq!(values.len(), 6 * 64 * 64);
        let squares = values.iter().map(|value| f64::from(*value).powi(2));
        let mass: f64 = squares.clone().sum();
        assert!((mass / values.len() as f64 - 1.0).abs() < 1e-6, "{mass}");
        // Mass falls with the square of the window, so its deviation along an axis is 5 / sqrt(2).
        let spread: f64 = squares.enumerate().map(|(at, square)| square * ((at % 64) as f64 - 31.5).powi(2)).sum();
        let deviation = (2.0 * spread / mass).sqrt();
        assert!((deviation - 5.0).abs() < 0.5, "{deviation}");
    }
}
