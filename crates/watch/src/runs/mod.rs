//! Runs: their folders followed as they grow, and what their events come to.

mod board;
mod command;
mod digest;
mod figures;
mod forecasts;
mod line_follower;
mod lock_holder;
mod marks;
mod pace;
mod run;
mod state;
mod timeline;

pub use board::{Board, RUNS, RunRow, newest_in};
pub use command::CommandHeader;
pub use figures::{Figures, RunHeader};
pub use forecasts::ForecastRow;
pub use marks::{MARKS, Mark, Marks};
pub use pace::TimeLeft;
pub use run::Run;
pub use state::RunState;
pub use timeline::{POINTS, Point, Timeline};
