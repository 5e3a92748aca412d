//! What happens in a run, written down for those who read it while it goes on and after.
//!
//! [`EventFile`] is the file of events, `events.jsonl`; [`LineFile`] is any file of JSON lines like it, and [`LineReader`] reads
//! such files back, damaged ones too.

mod error;
mod event_file;
mod line_file;
mod line_reader;

pub use error::{LineFileError, Result};
pub use event_file::EventFile;
pub use line_file::LineFile;
pub use line_reader::{FileLine, LineReader, LineState};

/// The name of the file of events in the folder of a run.
pub const EVENTS: &str = "events.jsonl";
