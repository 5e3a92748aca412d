//! What can be wrong with a shard.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error as ThisError;

/// A part of the file that has a checksum of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// The first 64 bytes.
    Header,
    /// The table of records.
    Index,
    /// The last 64 bytes.
    Footer,
}

impl fmt::Display for Part {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(match self {
            Self::Header => "header",
            Self::Index => "index",
            Self::Footer => "footer",
        })
    }
}

/// A shard that cannot be read or written; each names the file.
#[derive(Debug, ThisError)]
pub enum Error {
    /// The system refused.
    #[error("cannot {action} {file}: {source}", file = file.display())]
    Io {
        /// The file.
        file: PathBuf,
        /// What was to be done with it.
        action: &'static str,
        /// What the system said.
        source: io::Error,
    },
    /// The file begins with something else.
    #[error("{file} is not a Lowtide shard: it begins with {found:02x?}", file = file.display())]
    NotAShard {
        /// The file.
        file: PathBuf,
        /// Its first bytes, at most 8.
        found: Vec<u8>,
    },
    /// The file is of a version that this program does not know.
    #[error(
        "{file} has version {found} of the shard format, this program reads versions {oldest} to {newest}",
        file = file.display()
    )]
    Version {
        /// The file.
        file: PathBuf,
        /// The version it has.
        found: u32,
        /// The oldest version that can be read.
        oldest: u32,
        /// The newest.
        newest: u32,
    },
    /// The file does not end as a shard does.
    #[error("{file} has no end: it was cut off at {found} bytes, or its end was overwritten", file = file.display())]
    NoEnd {
        /// The file.
        file: PathBuf,
        /// The size it has.
        found: u64,
    },
    /// The file does not have the size it should have.
    #[error("{file} should have {expected} bytes and has {found}", file = file.display())]
    WrongSize {
        /// The file.
        file: PathBuf,
        /// The size it should have, or the least that a shard has.
        expected: u64,
        /// The size it has.
        found: u64,
    },
    /// A part of the file is not what was written.
    #[error(
        "the {part} of {file} at offset {offset} is damaged: its checksum should be {expected:08x} and is {found:08x}",
        file = file.display()
    )]
    Damaged {
        /// The file.
        file: PathBuf,
        /// The part.
        part: Part,
        /// Where it begins.
        offset: u64,
        /// The checksum that the file gives for it.
        expected: u32,
        /// The checksum that it has.
        found: u32,
    },
    /// A record is not what was written.
    #[error(
        "record {record} of {file} at offset {offset} is damaged: its checksum should be {expected:08x} and is \
         {found:08x}",
        file = file.display()
    )]
    DamagedRecord {
        /// The file.
        file: PathBuf,
        /// The number of the record.
        record: u64,
        /// Where it begins.
        offset: u64,
        /// The checksum that the index gives for it.
        expected: u32,
        /// The checksum that it has.
        found: u32,
    },
    /// The checksums are right and the content makes no sense: whoever wrote it was wrong.
    #[error("{file} makes no sense at offset {offset}: {reason}", file = file.display())]
    Malformed {
        /// The file.
        file: PathBuf,
        /// Where the part in question begins.
        offset: u64,
        /// What is wrong.
        reason: &'static str,
    },
    /// The file was written to or replaced while it was open.
    #[error(
        "{file} was changed while it was being read: it had {expected} bytes and has {found}",
        file = file.display()
    )]
    Changed {
        /// The file.
        file: PathBuf,
        /// Its size when it was opened.
        expected: u64,
        /// Its size now, which may be the same.
        found: u64,
    },
    /// There is no such record.
    #[error("{file} has {records} records, and record {record} was asked for", file = file.display())]
    NoSuchRecord {
        /// The file.
        file: PathBuf,
        /// What was asked for.
        record: u64,
        /// How many there are.
        records: u64,
    },
    /// A buffer is not as large as what is read into it.
    #[error("{needed} bytes are read from {file}, and the buffer has {given}", file = file.display())]
    Buffer {
        /// The file.
        file: PathBuf,
        /// What [`Reader::bytes_of`](super::Reader::bytes_of) said.
        needed: u64,
        /// The size of the buffer.
        given: u64,
    },
    /// A sample cannot be written.
    #[error("a sample cannot be written to {file}: tensor `{tensor}` {reason}", file = file.display())]
    Sample {
        /// The file.
        file: PathBuf,
        /// The name of the tensor.
        tensor: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The file is there already, and a shard is never overwritten.
    #[error("{file} is there already", file = file.display())]
    Exists {
        /// The file.
        file: PathBuf,
    },
    /// Somebody else is writing the file.
    #[error("{file} is being written by another process", file = file.display())]
    Busy {
        /// The file.
        file: PathBuf,
    },
}

impl Error {
    /// Makes an error of what the system said about `file`.
    pub(super) fn io(file: &Path, action: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Io { file: file.to_path_buf(), action, source }
    }
}
