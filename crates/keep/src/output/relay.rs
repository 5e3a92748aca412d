//! Passes a command's output on, with a copy into its log.
//!
//! One thread a stream, 128 KiB at a time: read, written to the log, written on. What is moved is in the processor's
//! cache for both writes; larger pieces are slower. The last 1.5 MiB stay in memory for a look at the last words, so
//! that a full disk costs the log and nothing else, and an error is still there after a whole pipe of the other stream.
//! Lines go to the log whole, so that two streams do not cut each other's. Where both go on to one place, neither begins in
//! the middle of the other's line, as long as that goes on soon.

use std::io::{self, ErrorKind, Read, Write};
use std::sync::{Condvar, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use crate::output::tail::Stream;
use crate::output::transcript::{Transcript, WholeLines};

/// What is moved at once: little enough to be in the processor's cache when it is written, twice.
const BUFFER: usize = 128 << 10;
/// How long a stream waits for the end of a line of the other: what is left of it is mostly in the pipe already. A bar stays
/// without an end.
const PATIENCE: Duration = Duration::from_millis(10);

/// Whose line is open in the place to which streams go on.
#[derive(Debug)]
pub(crate) struct Turns {
    open: Mutex<Option<Stream>>,
    is_free: Condvar,
    patience: Duration,
}

impl Default for Turns {
    fn default() -> Self {
        Self { open: Mutex::default(), is_free: Condvar::new(), patience: PATIENCE }
    }
}

impl Turns {
    fn write(&self, stream: Stream, to: &mut impl Write, bytes: &[u8]) -> io::Result<()> {
        let open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let is_of_other = |open: &mut Option<Stream>| open.is_some_and(|open| open != stream);
        let waited = self.is_free.wait_timeout_while(open, self.patience, is_of_other);
        let (mut open, _) = waited.unwrap_or_else(PoisonError::into_inner);
        let written = taken(to, bytes);
        *open = (!bytes.ends_with(b"\n") && !bytes.ends_with(b"\r")).then_some(stream);
        drop(open);
        self.is_free.notify_all();
        written
    }
}

/// Copies a stream until the other side is closed. `is_empty` says whether nothing of it waits to be read.
///
/// Where nobody takes the output any more, copying ends: the command's next write then fails, as it would without us.
pub(crate) fn relay(
    stream: Stream,
    mut from: impl Read,
    is_empty: impl Fn() -> bool,
    mut to: impl Write,
    turns: &Turns,
    transcript: &Mutex<Transcript>,
) {
    let mut buffer = vec![0; BUFFER];
    let mut lines = WholeLines::default();
    let log = || transcript.lock().unwrap_or_else(PoisonError::into_inner);
    let note = |bytes: &[u8]| log().take(stream, bytes);
    loop {
        {
            // Nothing may be noted in between, or it would count as written before what is read next.
            let mut log = log();
            if is_empty() {
                log.tail.found_empty(stream);
            }
        }
        let size = match from.read(&mut buffer) {
            Ok(0) => break,
            Ok(size) => size,
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            // The far side of a pseudo-terminal is closed: EIO.
            Err(_) => break,
        };
        let bytes = &buffer[..size];
        lines.pass(bytes, note);
        if turns.write(stream, &mut to, bytes).is_err() {
            break;
        }
    }
    lines.finish(note);
}

/// Writes all, also to an output that somebody else has set to not wait.
fn taken(to: &mut impl Write, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match to.write(bytes) {
            Ok(0) => return Err(ErrorKind::WriteZero.into()),
            Ok(size) => bytes = &bytes[size..],
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => thread::sleep(Duration::from_millis(1)),
            Err(error) => return Err(error),
        }
    }
    to.flush()
}

#[cfg(test)]
mod tests {
    use std::io::Seek;

    use super::*;

    struct Closed;

    impl Write for Closed {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(ErrorKind::BrokenPipe.into())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// To which two streams are written.
    #[derive(Default)]
    struct Place(Mutex<Vec<u8>>);

    impl Write for &Place {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn what_passes_is_the_same_in_both_places() {
        let text = "a line\nand another".repeat(200_000);
        let mut file = tempfile::tempfile().unwrap();
        let log = Mutex::new(Transcript::new(file.try_clone()));
        let mut to = Vec::new();
        relay(Stream::Output, text.as_bytes(), || false, &mut to, &Turns::default(), &log);
        assert_eq!(to, text.as_bytes());
        drop(log);
        let mut kept = String::new();
        file.rewind().and_then(|()| file.read_to_string(&mut kept)).unwrap();
        assert!(kept == text);
    }

    #[test]
    fn a_line_is_not_cut_by_the_other_stream() {
        let written = |patience| {
            let turns = Turns { patience, ..Turns::default() };
            let place = Place::default();
            let write = |stream, text: &str| turns.write(stream, &mut &place, text.as_bytes()).unwrap();
            write(Stream::Output, "step 1 ");
            thread::scope(|scope| {
                let errors = scope.spawn(|| write(Stream::Errors, "error\n"));
                if patience.is_zero() {
                    errors.join().unwrap();
                }
                write(Stream::Output, "loss 2\n");
            });
            String::from_utf8(place.0.into_inner().unwrap()).unwrap()
        };
        assert_eq!(written(Duration::from_secs(600)), "step 1 loss 2\nerror\n");
        // A line that nobody ends keeps nobody waiting.
        assert_eq!(written(Duration::ZERO), "step 1 error\nloss 2\n");
    }

    #[test]
    fn it_ends_where_nobody_listens() {
        let log = Mutex::new(Transcript::new(tempfile::tempfile()));
        relay(Stream::Output, io::repeat(b'y'), || false, Closed, &Turns::default(), &log);
        assert!(log.lock().unwrap().bytes > 0);
    }
}
