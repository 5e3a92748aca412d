//! What happens in a run: as data, and in the words that every view of it uses.

mod kind;
mod log_line;
mod numerics;
mod record;
mod sentence;

pub use kind::EventKind;
pub use numerics::{Instructions, Numerics, NumericsChange, NumericsChoice, Threads, Versions};
pub use record::{CardMemory, CommandOutcome, Ending, Event, Record, Relocation, SCHEMA};
