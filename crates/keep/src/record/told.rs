//! What is told while a command is kept alive.

use std::path::Path;
use std::time::Duration;

use crate::{Batch, KeepError, Launch, Start, Story};

/// What is told while a command is kept alive; whoever prints makes words of it.
#[derive(Debug)]
pub enum Told<'a> {
    /// A start is about to be made; not told of the first.
    Starting {
        /// Its number, from 1.
        number: usize,
        /// What is started.
        launch: &'a Launch,
        /// Its batch.
        batch: Option<Batch>,
        /// The checkpoint it goes on from.
        checkpoint: Option<&'a Path>,
    },
    /// A start has ended.
    Ended {
        /// How.
        start: &'a Start,
    },
    /// Nothing more follows.
    Over {
        /// All that happened.
        story: &'a Story,
    },
    /// The story could not be written into its folder.
    NotWritten {
        /// Why.
        error: &'a KeepError,
    },
    /// A second Ctrl-C: the command is killed if it takes longer than this.
    Patience {
        /// The time it has.
        grace: Duration,
    },
    /// The command has ended and left processes behind, which are asked to end.
    LeftBehind {
        /// How many.
        processes: usize,
    },
    /// Processes that did not end when asked are killed.
    Killing {
        /// How many.
        processes: usize,
    },
}
