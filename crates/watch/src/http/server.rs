//! Serving the page and its data.
//!
//! HTTP by hand, some 300 lines: GET, one request a connection, 8 KiB, five seconds in all, one thread that never waits
//! for one caller. On a loopback address the Host header must be a name of this machine, against pages that point their
//! own name here; any other address has a token.

use std::fs::File;
use std::io::{self, Read};
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::Timespec;

use super::callers::Callers;
use super::desk::Desk;
use super::message::{Request, Response};
use crate::error::WatchError;
use crate::runs::Board;

/// The port that is tried first where none is asked for.
pub const PORT: u16 = 7823;
/// How many ports after it are tried.
const PORTS: u16 = 50;
/// The most callers who are taken before those that are there are looked at again.
const AT_ONCE: usize = 8;
/// How often a server that nobody calls looks whether it is to end, and whether someone's time is over.
const TICK: Timespec = Timespec { tv_sec: 0, tv_nsec: 250_000_000 };
/// How long a server waits where a caller cannot be taken.
const PAUSE: Duration = Duration::from_millis(50);

/// A page at an address, not yet served.
#[derive(Debug)]
pub struct Server {
    listener: TcpListener,
    address: SocketAddr,
    token: Option<String>,
    asked: Mutex<Option<Instant>>,
}

impl Server {
    /// Listens at an address. Where no port is given, the first free one from [`PORT`] on is taken.
    ///
    /// An address that other machines can reach gets a token, without which nothing is answered.
    ///
    /// # Errors
    ///
    /// The port is in use, may not be used, or no token can be made.
    pub fn listen(host: IpAddr, port: Option<u16>) -> Result<Server, WatchError> {
        let (first, last) = port.map_or((PORT, PORT + PORTS), |port| (port, port));
        let listener = listen_within(host, first, last)?;
        let address = SocketAddr::new(host, first);
        let address = listener.local_addr().map_err(|source| WatchError::Address { address, source })?;
        listener.set_nonblocking(true).map_err(|source| WatchError::Address { address, source })?;
        let token = if host.is_loopback() { None } else { Some(random_token().map_err(WatchError::Token)?) };
        Ok(Server { listener, address, token, asked: Mutex::new(None) })
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// What to open in a browser.
    #[must_use]
    pub fn url(&self) -> String {
        let token = self.token.as_ref().map_or(String::new(), |token| format!("?token={token}"));
        format!("http://{}/{token}", self.address)
    }

    /// How long nobody has asked for anything who may; `None` where nobody ever did.
    #[must_use]
    pub fn idle(&self) -> Option<Duration> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner).map(|asked| asked.elapsed())
    }

    /// Answers until `end` is set. The runs are only looked at here; someone else keeps them new.
    ///
    /// One thread for all: a caller who is slow costs a place, of which there is always one for the next.
    pub fn serve(&self, board: &Mutex<Board>, end: &AtomicBool) {
        let desk = Desk { board, token: self.token.as_deref() };
        let mut callers = Callers::default();
        while !end.load(Ordering::Relaxed) {
            let is_called = callers.wait(&self.listener, &TICK);
            callers.attend(Instant::now(), |request| self.answer(&desk, request));
            if is_called {
                self.take(&mut callers, &desk);
            }
        }
    }

    /// Takes those who call. Each is listened to at once, for an honest request mostly lies there already.
    fn take(&self, callers: &mut Callers, desk: &Desk) {
        for _ in 0..AT_ONCE {
            match self.listener.accept() {
                Ok((stream, _)) => callers.add(stream, Instant::now(), |request| self.answer(desk, request)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                // One who has gone already.
                Err(error) if matches!(error.kind(), io::ErrorKind::ConnectionAborted | io::ErrorKind::Interrupted) => {
                }
                // As where no more files can be opened. The caller stays for the next try.
                Err(_) if callers.dismiss() => {}
                Err(_) => return thread::sleep(PAUSE),
            }
        }
    }

    fn answer(&self, desk: &Desk, request: Result<Request, Response>) -> Response {
        let admitted = request.and_then(|request| desk.admit(&request).map(|()| request));
        match admitted {
            Ok(request) => {
                *self.asked.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
                desk.respond(&request)
            }
            Err(refusal) => refusal,
        }
    }
}

fn listen_within(host: IpAddr, first: u16, last: u16) -> Result<TcpListener, WatchError> {
    let mut refusal = None;
    for port in first..=last {
        let address = SocketAddr::new(host, port);
        match TcpListener::bind(address) {
            Ok(listener) => return Ok(listener),
            Err(source) => {
                let is_in_use = source.kind() == io::ErrorKind::AddrInUse;
                refusal = Some(WatchError::Address { address, source });
                if !is_in_use {
                    break;
                }
            }
        }
    }
    Err(refusal.expect("at least one port is tried"))
}

fn random_token() -> io::Result<String> {
    let mut bytes = [0; 16];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}
