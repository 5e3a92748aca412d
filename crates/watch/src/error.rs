//! Why something cannot be watched.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use thiserror::Error;

/// Something that cannot be watched or served.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum WatchError {
    /// There is nothing at this path.
    #[error("{}: there is no such folder", path.display())]
    Missing {
        /// The path.
        path: PathBuf,
    },
    /// The path is not a folder.
    #[error("{}: this is a file, not the folder of a run", path.display())]
    NoFolder {
        /// The path.
        path: PathBuf,
    },
    /// No run is in this folder.
    #[error("{}: no run is in this folder: neither events.jsonl nor config.yaml is there", path.display())]
    NoRun {
        /// The folder.
        path: PathBuf,
    },
    /// A file or folder may not be read.
    #[error("{}: {source}", path.display())]
    Unreadable {
        /// The path.
        path: PathBuf,
        /// What the system answered.
        source: io::Error,
    },
    /// An address cannot be listened at.
    #[error("cannot listen at {address}: {}", told(source))]
    Address {
        /// The address.
        address: SocketAddr,
        /// What the system answered.
        source: io::Error,
    },
    /// No random token could be made.
    #[error("/dev/urandom: {0}: no token can be made for an address that others can reach")]
    Token(io::Error),
}

impl WatchError {
    /// Whether a port cannot be had because another program listens there.
    #[must_use]
    pub fn is_port_in_use(&self) -> bool {
        matches!(self, WatchError::Address { source, .. } if source.kind() == io::ErrorKind::AddrInUse)
    }

    /// What may help.
    #[must_use]
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            WatchError::Missing { .. } | WatchError::NoRun { .. } | WatchError::NoFolder { .. } => {
                Some("`lowtide train` says at its end which folder the run is in; `runs/` is where they are by default")
            }
            WatchError::Address { source, .. } => match source.kind() {
                io::ErrorKind::AddrInUse => Some("without --port the next free port is taken"),
                io::ErrorKind::PermissionDenied => Some("ports below 1024 are for the administrator"),
                io::ErrorKind::AddrNotAvailable => Some("--host takes an address of this machine"),
                _ => None,
            },
            _ => None,
        }
    }
}

fn told(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::AddrInUse => "another program listens there".to_owned(),
        io::ErrorKind::PermissionDenied => "permission denied".to_owned(),
        io::ErrorKind::AddrNotAvailable => "this machine has no such address".to_owned(),
        _ => error.to_string(),
    }
}
