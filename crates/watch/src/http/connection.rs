//! One connection: a request that arrives, an answer that leaves, and the other side's goodbye.
//!
//! Nothing here waits. Each stage has a bound on its time, whatever the other side does: a request is timed from its first
//! byte to its last, so that one which drips is over when one that says nothing is.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::{Duration, Instant};

use super::message::{Request, RequestHead, Response, Status};

/// How long a request may take to arrive, in all.
const ASKING: Duration = Duration::from_secs(5);
/// How long nothing of an answer may be taken.
const STALLED: Duration = Duration::from_secs(5);
/// How long an answer may take to leave, in all.
const ANSWERING: Duration = Duration::from_secs(60);
/// How long the other side may take to go.
const LEAVING: Duration = Duration::from_secs(1);
/// The most that is read and dropped of one who does not go.
const LEFTOVER: usize = 256 << 10;
/// The most that is read at once, so that all have their turn.
const PIECE: usize = 4 << 10;

/// A caller.
#[derive(Debug)]
pub(super) struct Connection {
    stream: TcpStream,
    dialogue: Dialogue,
    /// When this stage began.
    begun: Instant,
    /// When this stage last came on. Bytes of a request do not count: who sends the most is not the most honest.
    moved: Instant,
}

/// How far a connection is, with what it has to remember.
#[derive(Debug)]
enum Dialogue {
    Asking(RequestHead),
    Answering {
        answer: Vec<u8>,
        sent: usize,
    },
    /// All is sent. What the other side still says is read and dropped: to close over it would take the answer back.
    Leaving {
        read: usize,
    },
    Over,
}

/// How far a connection is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    /// Its request has not arrived.
    Asking,
    /// Its answer is on its way.
    Answering,
    /// It was answered.
    Leaving,
    /// It can be closed.
    Over,
}

impl Connection {
    pub(super) fn new(stream: TcpStream, now: Instant) -> Connection {
        // A stream that would block is not to be had here: the others would wait for it.
        let dialogue = match stream.set_nonblocking(true) {
            Ok(()) => Dialogue::Asking(RequestHead::default()),
            Err(_) => Dialogue::Over,
        };
        Connection { stream, dialogue, begun: now, moved: now }
    }

    pub(super) fn stage(&self) -> Stage {
        match self.dialogue {
            Dialogue::Asking(_) => Stage::Asking,
            Dialogue::Answering { .. } => Stage::Answering,
            Dialogue::Leaving { .. } => Stage::Leaving,
            Dialogue::Over => Stage::Over,
        }
    }

    pub(super) fn stream(&self) -> &TcpStream {
        &self.stream
    }

    /// Since when it has made others wait: the one with the earliest moment gives way.
    pub(super) fn idle_since(&self) -> Instant {
        self.moved
    }

    /// Reads and writes what can be without waiting.
    pub(super) fn advance(&mut self, now: Instant, answer: impl FnOnce(Result<Request, Response>) -> Response) {
        if let Dialogue::Asking(head) = &mut self.dialogue
            && let Some(request) = arrival(&self.stream, head, now.duration_since(self.begun))
        {
            self.enter(Dialogue::Answering { answer: answer(request).into_bytes(), sent: 0 }, now);
        }
        if let Dialogue::Answering { answer, sent } = &mut self.dialogue {
            match send(&self.stream, &answer[*sent..]) {
                Ok(0) if now.duration_since(self.moved) < STALLED && now.duration_since(self.begun) < ANSWERING => {}
                Ok(0) | Err(_) => self.enter(Dialogue::Over, now),
                Ok(count) if *sent + count == answer.len() => {
                    let _ = self.stream.shutdown(Shutdown::Write);
                    self.enter(Dialogue::Leaving { read: 0 }, now);
                }
                Ok(count) => {
                    *sent += count;
                    self.moved = now;
                }
            }
        }
        if let Dialogue::Leaving { read } = &mut self.dialogue {
            match receive(&self.stream, &mut [0; PIECE]) {
                Some(Ok(count)) if count > 0 && *read + count <= LEFTOVER => *read += count,
                None => {}
                _ => self.enter(Dialogue::Over, now),
            }
            if now.duration_since(self.begun) >= LEAVING {
                self.enter(Dialogue::Over, now);
            }
        }
    }

    fn enter(&mut self, dialogue: Dialogue, now: Instant) {
        (self.dialogue, self.begun, self.moved) = (dialogue, now, now);
    }
}

/// The request, once it is there or cannot come any more.
fn arrival(stream: &TcpStream, head: &mut RequestHead, taken: Duration) -> Option<Result<Request, Response>> {
    let refusal = |status, text| Some(Err(Response::refusal(status, text)));
    if taken >= ASKING {
        return refusal(Status::TooLate, "the request took too long");
    }
    let mut piece = [0; PIECE];
    match receive(stream, &mut piece)? {
        Ok(0) => refusal(Status::BadRequest, "the request ends too early"),
        Ok(count) => head.push(&piece[..count]),
        Err(_) => refusal(Status::BadRequest, "the request cannot be read"),
    }
}

/// What is there to be read; `None` where there is nothing yet, zero bytes where nothing will come.
fn receive(mut stream: &TcpStream, piece: &mut [u8]) -> Option<io::Result<usize>> {
    match stream.read(piece) {
        Err(error) if is_too_early(&error) => None,
        result => Some(result),
    }
}

/// How much could be sent.
fn send(mut stream: &TcpStream, bytes: &[u8]) -> io::Result<usize> {
    match stream.write(bytes) {
        Err(error) if is_too_early(&error) => Ok(0),
        result => result,
    }
}

fn is_too_early(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}
