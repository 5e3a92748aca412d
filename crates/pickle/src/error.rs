//! Why a pickle is refused.

use std::fmt;
use std::io;

use thiserror::Error;

/// A pickle that is broken, too large or asks for what it may not have; each text names the opcode and its byte offset.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum PickleError {
    /// The bytes could not be read.
    #[error("byte {offset}: {source}")]
    Io {
        /// How far reading came.
        offset: u64,
        /// What the system answered.
        source: io::Error,
    },
    /// The bytes end before the pickle does.
    #[error("byte {offset}: the pickle ends in the middle of {within}")]
    Ends {
        /// Where the bytes end.
        offset: u64,
        /// The opcode that is cut short, or `the program` where the next one is missing.
        within: &'static str,
    },
    /// A byte that stands for no opcode.
    #[error("byte {offset}: 0x{byte:02x} is no opcode of a pickle")]
    NoOpcode {
        /// Where it stands.
        offset: u64,
        /// The byte.
        byte: u8,
    },
    /// An opcode that cannot do its work.
    #[error("byte {offset}: {opcode} {problem}")]
    Malformed {
        /// Where the opcode stands.
        offset: u64,
        /// Its name.
        opcode: &'static str,
        /// What is wrong, as the rest of a sentence that begins with the opcode.
        problem: String,
    },
    /// A class or function that is not on the list of allowed names.
    #[error("byte {offset}: {opcode} names `{}`, which is not on the list of allowed names", dotted(module, name))]
    NotAllowed {
        /// Where the opcode stands.
        offset: u64,
        /// Its name.
        opcode: &'static str,
        /// The module, as the pickle names it.
        module: String,
        /// The name within the module.
        name: String,
    },
    /// A call of something that may be named or made, but not called.
    #[error("byte {offset}: {opcode} calls `{}`, which is not on the list of what may be called", dotted(module, name))]
    NotCallable {
        /// Where the opcode stands.
        offset: u64,
        /// Its name.
        opcode: &'static str,
        /// The module, as the pickle names it.
        module: String,
        /// The name within the module.
        name: String,
    },
    /// An opcode whose meaning lies outside the pickle.
    #[error("byte {offset}: {opcode} is refused: {reason}")]
    Outside {
        /// Where the opcode stands.
        offset: u64,
        /// Its name.
        opcode: &'static str,
        /// What it would need.
        reason: &'static str,
    },
    /// More of something than the caller's [`Limits`](crate::Limits) allow.
    #[error("byte {offset}: {opcode} asks for more than {limit} {what}")]
    TooMuch {
        /// Where the opcode stands.
        offset: u64,
        /// Its name.
        opcode: &'static str,
        /// Of what.
        what: LimitKind,
        /// How much is allowed.
        limit: u64,
    },
    /// A value that contains itself, where the caller's [`Limits`](crate::Limits) refuse that.
    #[error("byte {offset}: {opcode} hands out a value that contains itself")]
    Cycle {
        /// Where the pickle ends.
        offset: u64,
        /// Always `STOP`.
        opcode: &'static str,
    },
}

/// What there is too much of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum LimitKind {
    /// Values.
    Nodes,
    /// Places in containers and on the stack.
    Items,
    /// Bytes of strings, byte strings and large integers.
    TextBytes,
    /// Entries of the memo.
    Memo,
    /// Containers within containers.
    Depth,
    /// Values met on a walk along all paths.
    Walk,
    /// Bytes of memory for everything that is read.
    Memory,
}

impl fmt::Display for LimitKind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Nodes => "values",
            Self::Items => "places in containers",
            Self::TextBytes => "bytes of text",
            Self::Memo => "memo entries",
            Self::Depth => "levels of nesting",
            Self::Walk => "values on a walk along all paths",
            Self::Memory => "bytes of memory for its values",
        })
    }
}

/// `module.name`, on one line and no longer than a reader wants, whatever the pickle put there.
fn dotted(module: &str, name: &str) -> String {
    format!("{}.{}", shown(module), shown(name))
}

/// Foreign text for a message.
pub(crate) fn shown(text: &str) -> String {
    const LONGEST: usize = 120;
    let mut shown: String = text.chars().take(LONGEST).flat_map(char::escape_debug).collect();
    if text.chars().nth(LONGEST).is_some() {
        shown.push_str("...");
    }
    shown
}
