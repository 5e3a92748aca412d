//! All who are connected, and who of them gives way.
//!
//! Nobody is refused a connection; where the places of a stage are taken, the caller that has come on least lately gives
//! way. Each stage has its own places, so that those who have not asked cannot take the room of those who are being
//! answered: of those that have not asked the oldest is closed, however much of a request has dripped in, of those that
//! are answered the one that took nothing for longest. An honest request follows its connection within moments, in
//! which fewer come than there are places for those who have not asked.

use std::net::{TcpListener, TcpStream};
use std::time::Instant;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::connection::{Connection, Stage};
use super::message::{Request, Response};

/// Stages with their places; the first is the first to lose one where files run out. One who has not asked costs a file
/// and at most 8 KiB; on a busy machine an honest caller may be held up between its connection and its request while
/// hundreds of others come.
const PLACES: [(Stage, usize); 3] = [(Stage::Leaving, 32), (Stage::Asking, 512), (Stage::Answering, 32)];

/// The open connections.
#[derive(Debug, Default)]
pub(super) struct Callers {
    connections: Vec<Connection>,
}

impl Callers {
    /// Waits until something can be read or written; whether someone new calls.
    pub(super) fn wait(&self, listener: &TcpListener, longest: &Timespec) -> bool {
        let interest = |connection: &Connection| match connection.stage() {
            Stage::Answering => PollFlags::OUT,
            _ => PollFlags::IN,
        };
        let mut watched = vec![PollFd::new(listener, PollFlags::IN)];
        watched.extend(self.connections.iter().map(|it| PollFd::new(it.stream(), interest(it))));
        // A signal ends the wait early, and nobody is there then.
        poll(&mut watched, Some(longest)).is_ok() && !watched[0].revents().is_empty()
    }

    /// Takes a new caller in, and hears what it says.
    pub(super) fn add(
        &mut self,
        stream: TcpStream,
        now: Instant,
        answer: impl FnOnce(Result<Request, Response>) -> Response,
    ) {
        let mut connection = Connection::new(stream, now);
        connection.advance(now, answer);
        self.connections.push(connection);
        self.make_room();
    }

    /// Lets all come on as far as they can.
    pub(super) fn attend(&mut self, now: Instant, answer: impl Fn(Result<Request, Response>) -> Response) {
        for connection in &mut self.connections {
            connection.advance(now, &answer);
        }
        self.make_room();
    }

    /// Closes the connection that is missed least; false where there is none.
    pub(super) fn dismiss(&mut self) -> bool {
        PLACES.iter().any(|(stage, _)| self.close_one_in(*stage))
    }

    fn make_room(&mut self) {
        self.connections.retain(|connection| connection.stage() != Stage::Over);
        for (stage, places) in PLACES {
            while self.connections.iter().filter(|connection| connection.stage() == stage).count() > places {
                self.close_one_in(stage);
            }
        }
    }

    /// Closes the one of a stage that has come on least lately.
    fn close_one_in(&mut self, stage: Stage) -> bool {
        let of_stage = self.connections.iter().enumerate().filter(|(_, it)| it.stage() == stage);
        // Of those that are as long idle, the first is the one that was there first.
        let oldest = of_stage.min_by_key(|(_, connection)| connection.idle_since()).map(|(place, _)| place);
        oldest.map(|place| self.connections.remove(place)).is_some()
    }
}
