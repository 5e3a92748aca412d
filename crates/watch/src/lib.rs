//! A run as others see it: followed as it grows, told in words, drawn, and served as a page.
//!
//! [`Run`] reads a run folder while another process writes it, in memory that does not grow with the run: [`Timeline`] thins
//! steps, [`History`] samples of the machine, [`Marks`] puts older events together, [`sentence`] tells one event in
//! words. [`Watched`] is a process that is no run. [`Board`] holds several runs, [`Server`] serves them, [`report`] and
//! [`chart`] write them down. Nothing here prints, measures the machine or writes into a run folder; samples of the
//! machine are handed to [`Board::add`]. Start at `run.rs`.

mod alive;
mod board;
mod data;
mod error;
mod follow;
mod history;
mod http;
mod live;
mod marks;
mod metrics;
mod page;
mod plan;
mod png;
mod run;
mod server;
mod story;
mod svg;
mod timeline;
mod watched;

pub use board::{Board, RUNS, Row, newest_in};
pub use error::WatchError;
pub use follow::{Follow, SLICE, Seen};
pub use history::{History, MOMENTS, Moment};
pub use live::{CHILDREN, DEVICE_USED, Gauge, HOST_USED, Holder, Live, ON_CARDS, RESIDENT};
pub use marks::{Kind, MARKS, Mark, Marks};
pub use page::report;
pub use plan::PlanRow;
pub use png::png;
pub use run::{Figures, Head, Run, State, span};
pub use server::{PORT, Server};
pub use story::sentence;
pub use svg::chart;
pub use timeline::{POINTS, Point, Timeline};
pub use watched::{Watched, WatchedRow};
