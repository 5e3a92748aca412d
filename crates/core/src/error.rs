//! What can be wrong with a value that somebody typed.

use thiserror::Error as ThisError;

/// A text or value that this crate cannot accept; each message names the text and the mend.
#[derive(Debug, Clone, PartialEq, Eq, ThisError)]
#[non_exhaustive]
pub enum Error {
    /// The text is not a size.
    #[error("`{text}` is not a size: write a number and a unit, such as 3.5GiB, 3.5GB, 512M or 1024")]
    Size {
        /// What was typed.
        text: String,
    },
    /// The text is a fraction of a byte, most likely because the unit was forgotten.
    #[error("`{text}` has a fraction but no unit: write the unit too, such as {text}GiB")]
    SizeWithoutUnit {
        /// What was typed.
        text: String,
    },
    /// The text is a size that 64 bits cannot hold.
    #[error("`{text}` is too large: a size must be below 16777216 TiB (2^64 bytes)")]
    SizeTooLarge {
        /// What was typed.
        text: String,
    },
    /// The text is not a percentage above 0 and up to 100.
    #[error(
        "`{text}` is not a percentage: write a number above 0 and up to 100 with at most two decimals, such as 90%"
    )]
    Percent {
        /// What was typed.
        text: String,
    },
    /// The text is not a memory line.
    #[error("`{text}` is not a memory limit: write a size such as 3.5GiB, a percentage such as 90%, or none")]
    Line {
        /// What was typed.
        text: String,
    },
    /// The line comes out at 0 bytes, under which nothing could run.
    #[error("a memory limit of 0 bytes leaves room for nothing: write a larger one, or none")]
    EmptyLine,
    /// The text is not the name of a phase.
    #[error("`{text}` is not a phase: write load, forward, backward, optimizer, eval or save")]
    Phase {
        /// What was typed.
        text: String,
    },
}
