//! Why a file cannot be read or written.

use std::fmt;
use std::io;
use std::path::PathBuf;

use lowtide_core::Bytes;
use lowtide_disk::DiskError;
use lowtide_pickle::PickleError;
use thiserror::Error;

/// A file that is broken, cut short, or holds what this crate does not read; each text names the file, the place and
/// the problem.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum TensorFileError {
    /// The file could not be opened or read.
    #[error("{}: {place}: {source}", file.display())]
    Io {
        /// The file.
        file: PathBuf,
        /// Where in it.
        place: Place,
        /// What the system answered.
        source: io::Error,
    },
    /// Something reaches beyond the end of the file.
    #[error("{}: {place}: needs the bytes up to {end}, but the file has {length}: it was cut short", file.display())]
    CutShort {
        /// The file.
        file: PathBuf,
        /// What reaches too far.
        place: Place,
        /// Where it should end, in bytes from the start of the file.
        end: u64,
        /// How long the file is, in bytes.
        length: u64,
    },
    /// Something contradicts its format.
    #[error("{}: {place}: {problem}", file.display())]
    Malformed {
        /// The file.
        file: PathBuf,
        /// Where in it.
        place: Place,
        /// What is wrong.
        problem: String,
    },
    /// The pickle in the file is broken or asks for what it may not have.
    #[error("{}: {place}: {source}", file.display())]
    Pickle {
        /// The file.
        file: PathBuf,
        /// Where in it; the byte offsets in the text of the source count from here.
        place: Place,
        /// What the pickle reader found.
        source: Box<PickleError>,
    },
    /// Something that is whole and that this crate does not read.
    #[error("{}: {place}: {what} is not read here", file.display())]
    Unsupported {
        /// The file.
        file: PathBuf,
        /// Where in it.
        place: Place,
        /// What it is.
        what: String,
        /// What to do about it.
        hint: Option<&'static str>,
    },
    /// A value that was to be written and cannot be.
    #[error("{}: {place}: cannot be written: {problem}", file.display())]
    Unwritable {
        /// The file to be; it was not touched.
        file: PathBuf,
        /// Where in the value.
        place: Place,
        /// What is wrong with it.
        problem: String,
    },
    /// A file that is small and decodes to much: more than the [limit](crate::DecodeLimit) allows.
    #[error("{}: {place}: decodes to {what}; the limit for a file of {size} is {limit}", file.display())]
    TooMuch {
        /// The file.
        file: PathBuf,
        /// Where in it.
        place: Place,
        /// What it decodes to.
        what: String,
        /// How much of it may be.
        limit: String,
        /// How large the file is.
        size: Bytes,
    },
    /// Bytes that are not those that were written.
    #[error("{}: {place}: damaged: its checksum is {found:08x}, and {expect:08x} was written", file.display())]
    Checksum {
        /// The file.
        file: PathBuf,
        /// Where in it.
        place: Place,
        /// The checksum in the file.
        expect: u32,
        /// That of the bytes.
        found: u32,
    },
}

impl TensorFileError {
    /// What to do about it, where that is known.
    #[must_use]
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::Unsupported { hint, .. } => *hint,
            Self::TooMuch { .. } => Some(RAISE),
            Self::CutShort { .. } | Self::Checksum { .. } | Self::Malformed { .. } => {
                Some("copy or write the file again")
            }
            Self::Io { source, .. } => match source.kind() {
                io::ErrorKind::NotFound => Some("is the path right?"),
                io::ErrorKind::PermissionDenied => Some("the file must be readable for you: chmod +r"),
                _ => None,
            },
            Self::Pickle { source, .. } => match **source {
                PickleError::NotAllowed { .. } | PickleError::NotCallable { .. } => {
                    Some("nothing was executed; save plain containers and tensors, such as a state_dict")
                }
                _ => None,
            },
            _ => None,
        }
    }
}

/// What to do about a limit.
const RAISE: &str = "if you trust the file, raise the limit: --decode-limit SIZE, or data.decode_limit of a run";

impl From<DiskError> for TensorFileError {
    fn from(error: DiskError) -> Self {
        Self::Io { file: error.path, place: Place::Whole, source: error.source }
    }
}

/// A place in a file.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Place {
    /// The file as a whole.
    Whole,
    /// A byte, counted from the start.
    Byte(u64),
    /// A pickle that begins at this byte; its own offsets count from there.
    Pickle(u64),
    /// An entry of an archive, and the byte of the file at which it begins.
    Entry {
        /// Its name.
        name: String,
        /// Where it begins.
        offset: u64,
    },
    /// A value within what the file holds, such as `graphs.0.edge_index`.
    Value(String),
}

impl fmt::Display for Place {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Whole => formatter.write_str("the file"),
            Self::Byte(offset) => write!(formatter, "byte {offset}"),
            Self::Pickle(offset) => write!(formatter, "the pickle at byte {offset}"),
            Self::Entry { name, offset } => write!(formatter, "`{}` at byte {offset}", name.escape_debug()),
            Self::Value(path) if path.is_empty() => formatter.write_str("the root value"),
            Self::Value(path) => write!(formatter, "the value `{}`", path.escape_debug()),
        }
    }
}
