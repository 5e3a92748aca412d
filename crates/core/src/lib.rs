//! The words and decisions that every part of Lowtide shares.
//!
//! **What it does.** It names things ([`Bytes`], [`Line`], [`Phase`], [`Step`], [`MicroBatch`], [`Event`]) and decides what
//! to do when memory runs out ([`Guard`], which walks a [`Ladder`] of [`Rung`]s and answers with [`Measures`]).
//!
//! **What it leaves out.** Everything that touches the world: no files, no clock, no threads, no printing, no LibTorch. Times
//! and measured sizes come in as values, decisions go out as values; whoever calls carries them out.
//!
//! **Where to start reading.** [`Guard`] is the heart: its page tells what happens after a failure. [`Ladder`] says what it
//! may do, [`Signal`] and [`Action`] what it hears and answers. [`Record`] is one line of a run's `events.jsonl`.

mod action;
mod batch;
mod bytes;
mod checkpoint_choice;
mod device_choice;
mod error;
mod event;
mod failures;
mod guard;
mod injection;
mod ladder;
mod line;
mod measures;
mod metrics;
mod numbers;
mod percent;
mod phase;
mod printable;
mod rung;
mod seal;
mod signal;
mod sizing;
mod step;
mod stop;

pub use action::{Action, Reason};
pub use batch::{MicroBatch, divisors, pieces};
pub use bytes::Bytes;
pub use checkpoint_choice::CheckpointChoice;
pub use device_choice::DeviceChoice;
pub use error::Error;
pub use event::{
    CardMemory, CommandOutcome, Ending, Event, EventKind, Instructions, Numerics, NumericsChange, NumericsChoice,
    Record, Relocation, SCHEMA, Threads, Versions,
};
pub use guard::Guard;
pub use injection::{Injection, InjectionError};
pub use ladder::{Ladder, Limits, Offer};
pub use line::{Line, LineSpec};
pub use measures::Measures;
pub use metrics::Metrics;
pub use numbers::{counted, grouped, span};
pub use percent::Percent;
pub use phase::Phase;
pub use printable::{parse_printable, printable, printable_json, printable_lines};
pub use rung::Rung;
pub use seal::{Seal, sealed};
pub use signal::{Signal, Usage};
pub use sizing::{Probe, Sizing};
pub use step::Step;
pub use stop::{RungAttempt, Stop, StopCause};

/// Tests the example of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
