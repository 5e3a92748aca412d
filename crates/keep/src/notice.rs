//! What is worth saying while a command is kept alive.

use std::path::{Path, PathBuf};
use std::time::Duration;

use lowtide_core::{Bytes, Event};

use crate::{BatchSplit, Checkpoint, ConfigCopy, InputState, KeptCheckpoint, Launch, StartRecord};

/// What is worth saying while a command is kept alive; whoever prints makes words of it.
#[derive(Debug)]
pub enum Notice<'a> {
    /// The first start is about to be made.
    Log {
        /// The file that has its output.
        log: &'a Path,
    },
    /// A start that is not the first is about to be made.
    Restart {
        /// Its number, from 1.
        number: usize,
        /// What is started.
        launch: &'a Launch,
        /// Its batch.
        batch: Option<BatchSplit>,
        /// The checkpoint it resumes from.
        checkpoint: Option<&'a Checkpoint>,
        /// Newer checkpoints that were cut short or damaged.
        damaged: &'a [PathBuf],
        /// Checkpoints that starts could not resume from.
        refused: &'a [Checkpoint],
        /// Folders that the start before may have made, or another run meanwhile: what is in them is not resumed from.
        unclear: &'a [PathBuf],
    },
    /// What becomes of the standard input, of which the start before read, in the next one.
    Input {
        /// What is left of it.
        state: InputState,
    },
    /// A start that was to resume failed before it got any further, for another reason than memory.
    Unresumable {
        /// The checkpoint that the next start resumes from; none where it begins at step 0.
        instead: Option<&'a Checkpoint>,
    },
    /// Checkpoints are there that the next start may write over.
    Endangered {
        /// Each of them, the newest first.
        kept: &'a [KeptCheckpoint],
        /// The earlier one that the next start resumes from; none where it begins at step 0.
        resumed_from: Option<&'a Checkpoint>,
    },
    /// Checkpoints are being copied, which takes a while.
    Copying {
        /// All that may have to be written.
        bytes: Bytes,
    },
    /// Older copies of these checkpoints, which earlier runs made, were removed.
    ThinnedOut {
        /// Each of them.
        removed: &'a [PathBuf],
        /// How many of a checkpoint stay.
        left: usize,
    },
    /// A file that the start before wrote was moved, for the next one would refuse to write over it.
    SetAside {
        /// The file.
        file: &'a Path,
        /// Where it is now.
        target: &'a Path,
    },
    /// A start with a reserve is over, and this is how its processes used it.
    Overflows {
        /// [`Event::Overflowed`], each of them.
        uses: &'a [Event],
    },
    /// A start has ended.
    End {
        /// How.
        record: &'a StartRecord,
    },
    /// The start did not run the changed copy of its script: it was the script as it is.
    CopyUnused {
        /// The copy.
        copy: &'a ConfigCopy,
    },
    /// A second Ctrl-C or SIGTERM: the command is killed if it takes longer than this.
    Patience {
        /// The time it has.
        grace: Duration,
    },
    /// The command has ended and left processes behind, which are asked to end.
    Leftovers {
        /// How many.
        processes: usize,
    },
    /// Processes that did not end when asked are killed.
    Kill {
        /// How many.
        processes: usize,
    },
}
