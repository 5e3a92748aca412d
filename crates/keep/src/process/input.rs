//! The standard input that all starts of a command share.
//!
//! A file is rewound before a restart, for its readers share one offset. What was read from a pipe is gone: a copy of our
//! own would have to be read before the command asks, and would take away what stands behind it for the next command of
//! the shell. A pipe counts nothing, so inotify tells whether somebody read from it; where that cannot be had (all that the
//! system has of it may be in use), what was read is not known, and counts as gone: a start that reads the rest, or nothing,
//! would train on that.

use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;

use rustix::fs::inotify::{CreateFlags, Reader, WatchFlags, add_watch, init};
use rustix::fs::{FileType, SeekFrom, fstat, seek, tell};
use rustix::stdio::stdin;
use rustix::termios::isatty;

/// What a start left of the standard input for the next one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InputState {
    /// All of it: nothing was read.
    Whole,
    /// All of it: a file that was read stands where the first start found it.
    Rewound,
    /// What was typed in a terminal is gone.
    Typed,
    /// What was read from a pipe or a socket is gone, or may be.
    Gone,
}

/// The standard input before the first start.
#[derive(Debug)]
pub(crate) enum StandardInput {
    /// A file that can be rewound.
    File { offset: u64 },
    /// A pipe, a socket or a terminal.
    Stream { is_terminal: bool, reads: Option<OwnedFd>, waiting: u64 },
    /// None, or one that nothing can be lost of.
    Other,
}

impl StandardInput {
    pub(crate) fn look() -> Self {
        let kind = fstat(stdin()).map(|status| FileType::from_raw_mode(status.st_mode));
        let is_terminal = isatty(stdin());
        match kind {
            Ok(FileType::RegularFile | FileType::BlockDevice) => tell(stdin()).map_or(Self::Other, Self::at),
            Ok(FileType::Fifo | FileType::Socket) => Self::stream(false),
            Ok(FileType::CharacterDevice) if is_terminal => Self::stream(true),
            _ => Self::Other,
        }
    }

    const fn at(offset: u64) -> Self {
        Self::File { offset }
    }

    fn stream(is_terminal: bool) -> Self {
        Self::Stream { is_terminal, reads: reads().ok(), waiting: waiting() }
    }

    /// Makes it ready for another start, as far as that is possible.
    pub(crate) fn renew(&mut self) -> InputState {
        match self {
            Self::File { offset } => match tell(stdin()) {
                Ok(now) if now == *offset => InputState::Whole,
                _ if seek(stdin(), SeekFrom::Start(*offset)).is_ok() => InputState::Rewound,
                _ => InputState::Gone,
            },
            Self::Stream { is_terminal, reads, waiting: before } => {
                let now = waiting();
                let is_less = now < std::mem::replace(before, now);
                match (reads.as_ref().map(was_read), *is_terminal) {
                    (Some(true), true) => InputState::Typed,
                    (Some(true) | None, false) => InputState::Gone,
                    _ if is_less && !*is_terminal => InputState::Gone,
                    _ => InputState::Whole,
                }
            }
            Self::Other => InputState::Whole,
        }
    }
}

/// Hears of every read from the standard input, by whomever.
fn reads() -> rustix::io::Result<OwnedFd> {
    let reads = init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC)?;
    add_watch(&reads, "/proc/self/fd/0", WatchFlags::ACCESS)?;
    Ok(reads)
}

/// Whether something was read since the last look.
fn was_read(reads: &OwnedFd) -> bool {
    let mut buffer = [MaybeUninit::uninit(); 4096];
    let mut events = Reader::new(reads, &mut buffer);
    std::iter::from_fn(|| events.next().ok().map(drop)).count() > 0
}

/// Bytes that can be read at once.
fn waiting() -> u64 {
    rustix::io::ioctl_fionread(stdin()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nobody_watched_counts_as_read() {
        let state = |is_terminal| StandardInput::Stream { is_terminal, reads: None, waiting: 0 }.renew();
        assert_eq!([state(false), state(true)], [InputState::Gone, InputState::Whole]);
    }
}
