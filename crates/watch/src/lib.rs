//! A run as others see it: followed as it grows, told in words, drawn, and served as a page.
//!
//! [`Run`] reads a run folder while another process writes it, in memory that does not grow with the run: [`Timeline`] thins
//! steps, [`History`] samples of the machine, [`Marks`] puts older events together. [`ProcessMonitor`] is a process that is no
//! run. [`Board`] holds several runs, [`Server`] serves them as a page and to Prometheus, [`report`] and [`chart`] write
//! them down. Nothing here prints, measures the machine or writes into a run folder; samples of the machine are handed to
//! [`Board::add`]. Start at `runs/run.rs`.

mod error;
mod http;
mod machine;
mod prometheus;
mod runs;
mod views;

pub use error::WatchError;
pub use http::{PORT, Server};
pub use machine::{
    CHILDREN, DEVICE_USED, FreeMemory, Gauge, HOST_USED, History, Holder, MOMENTS, MachineStatus, Moment, ON_CARDS,
    ProcessMonitor, ProcessRow, RESERVE, RESIDENT,
};
pub use runs::{
    Board, CommandHeader, Figures, ForecastRow, MARKS, Mark, Marks, POINTS, Point, RUNS, Run, RunHeader, RunRow,
    RunState, TimeLeft, Timeline, newest_in,
};
pub use views::{Anchor, COLOURS, Drawing, Paint, Pen, Place, Shape, chart, report};
