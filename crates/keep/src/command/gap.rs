//! Why a command is not retried with a smaller micro-batch.

use lowtide_trainers::{LoopGap, Refusal, TrainingLoop};

use crate::{BatchPart, BatchSplit};

/// Why there is no retry with a smaller micro-batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RungGap {
    /// Something of the batch is known, and not all.
    Batch {
        /// Why, in words that begin with the name of what was looked for.
        detail: String,
    },
    /// There are flags for the batch, and it is not known which of them or what number counts.
    Flags {
        /// Why.
        detail: String,
        /// What a retry would change, for each that may be meant.
        templates: Vec<String>,
        /// The batch, where it is known.
        samples: Option<u64>,
    },
    /// Flags for both are known, and with other numbers the script would train otherwise.
    OtherTraining {
        /// Why.
        detail: String,
        /// What a retry would change.
        template: String,
        /// The batch as it is.
        batch: Option<BatchSplit>,
    },
    /// The script reads its batch from variables of the environment.
    Environment {
        /// What a retry would change.
        template: String,
        /// The batch and the accumulation that the variables or the script have now.
        numbers: [Option<u64>; 2],
        /// Why that is not done unasked, where it shows.
        detail: Option<String>,
    },
    /// The trainer refuses other numbers, or would make another training of them.
    Refused(Refusal),
    /// A file of settings that the command line names has a batch.
    NamedFile {
        /// The file, as the command line has it.
        file: String,
        /// The file with the line of the batch.
        at: String,
        /// The key of the batch with its number, in words.
        set: String,
        /// What a retry would change; `KEY` where the file has nothing for accumulation.
        template: String,
    },
    /// The batch is given, and not how the command takes another.
    Template {
        /// The number that was given.
        part: BatchPart,
    },
    /// The batch is known, and nothing accumulates gradients: a smaller one would be another training.
    NoAccumulation(Box<NoAccumulation>),
}

/// A batch without accumulation, and what would give the script some.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NoAccumulation {
    /// The script, as the command line has it.
    pub script: Option<String>,
    /// The flag or the setting that the batch has, as it is written for another number.
    pub batch: String,
    /// Its line in the script, where it stands there.
    pub line: Option<usize>,
    /// The batch as it is.
    pub samples: u64,
    /// A smaller one that keeps the effective batch.
    pub smaller: BatchSplit,
    /// What it trains with, as far as it shows.
    pub library: Library,
    /// The loop with accumulation, in the script's own names; or why it is not written down.
    pub training_loop: Result<TrainingLoop, LoopGap>,
}

/// What a script trains with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Library {
    /// PyTorch, in a loop of its own.
    PyTorch,
    /// Hugging Face's Trainer.
    HuggingFace,
    /// Lightning's Trainer.
    Lightning,
    /// Keras, whose optimizers accumulate gradients where they are told.
    Keras,
    /// JAX, with optimizers of Optax.
    Jax,
    /// Nothing that shows: it may be inference.
    Unknown,
}
