//! What can be wrong with a setting or a recording.

use thiserror::Error;

/// Why something cannot be simulated.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum SimError {
    /// A setting that PyTorch would refuse too.
    #[error("allocator setting `{key}`: {reason}")]
    Setting {
        /// The setting.
        key: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A version of PyTorch whose rules are not known.
    #[error("`{text}` is no version of PyTorch that is known here: 2.0 to 2.15")]
    Version {
        /// What was asked for.
        text: String,
    },
    /// A snapshot that is not one.
    #[error("not a memory snapshot of PyTorch: {reason}")]
    NotASnapshot {
        /// What is missing or has another form.
        reason: String,
    },
    /// A recording of Lowtide that is not one, or is damaged.
    #[error("not a whole recording of Lowtide: at byte {at}, {reason}")]
    NotARecording {
        /// Where that was seen.
        at: u64,
        /// What was seen there.
        reason: String,
    },
    /// A recording of another version of the format.
    #[error("the recording has version {version} of its format, and this program knows version 1")]
    RecordingVersion {
        /// Its version.
        version: u8,
    },
    /// A snapshot without a history, of which nothing can be replayed.
    #[error("the snapshot has no history")]
    NoHistory,
    /// Recordings from which nothing follows for another size.
    #[error("{reason}")]
    Sizes {
        /// What is wrong with them.
        reason: String,
    },
    /// A history that contradicts itself.
    #[error("entry {entry} of the history: {reason}")]
    History {
        /// The entry, from 0.
        entry: usize,
        /// What is wrong with it.
        reason: String,
    },
}
