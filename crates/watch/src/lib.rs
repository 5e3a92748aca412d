//! A run as others see it: followed as it grows, told in words, drawn, and served as a page.
//!
//! [`Run`] reads a run folder while another process writes it, in memory that does not grow with the run: [`Timeline`] thins
//! steps, [`Marks`] puts older events together, [`sentence`] tells one event in words. [`Board`] holds several runs,
//! [`Server`] serves them, [`report`] and [`chart`] write them down. Nothing here prints, measures the machine or
//! writes into a run folder; figures of the machine come in by [`Source`]. Start at `run.rs`.

mod alive;
mod board;
mod data;
mod error;
mod follow;
mod http;
mod live;
mod marks;
mod page;
mod run;
mod server;
mod story;
mod svg;
mod timeline;

pub use board::{Board, RUNS, Row, newest_in};
pub use error::WatchError;
pub use follow::{Follow, SLICE, Seen};
pub use live::{Gauge, Live, Source};
pub use marks::{Kind, MARKS, Mark, Marks};
pub use page::report;
pub use run::{Figures, Head, Run, State, span};
pub use server::{PORT, Server};
pub use story::sentence;
pub use svg::chart;
pub use timeline::{POINTS, Point, Timeline};
