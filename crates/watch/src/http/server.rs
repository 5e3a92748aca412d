//! Serving the page and its data.

use std::fs::File;
use std::io::{self, Read};
use std::net::{IpAddr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::message::{self, Request, Response, Status};
use crate::error::WatchError;
use crate::prometheus;
use crate::runs::Board;
use crate::views::page;
use crate::views::page_data::{self, PageCursor};

/// The port that is tried first where none is asked for.
pub const PORT: u16 = 7823;
/// How many ports after it are tried.
const PORTS: u16 = 50;
/// The most connections at once.
const CONNECTIONS: usize = 32;
/// How often a server that nobody calls looks whether it is to end.
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

    /// How long nobody has called; `None` where nobody ever did.
    #[must_use]
    pub fn idle(&self) -> Option<Duration> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner).map(|asked| asked.elapsed())
    }

    /// Answers until `end` is set. The runs are only looked at here; someone else keeps them new.
    pub fn serve(&self, board: &Arc<Mutex<Board>>, end: &AtomicBool) {
        let open = Arc::new(AtomicUsize::new(0));
        while !end.load(Ordering::Relaxed) {
            let mut waiting = [PollFd::new(&self.listener, PollFlags::IN)];
            // A signal ends the wait early, and nobody is there then.
            let callers = poll(&mut waiting, Some(&TICK)).unwrap_or(0);
            let Ok((stream, _)) = self.listener.accept() else {
                // A caller who cannot be taken, as where no more files can be opened, stays for the next try.
                if callers > 0 {
                    thread::sleep(PAUSE);
                }
                continue;
            };
            *self.asked.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
            if open.load(Ordering::Relaxed) >= CONNECTIONS {
                let _ = Response::refusal(Status::Busy, "too many connections").write(&stream);
                continue;
            }
            open.fetch_add(1, Ordering::Relaxed);
            let caller = Caller { board: board.clone(), token: self.token.clone() };
            let done = open.clone();
            thread::spawn(move || {
                // The one who called may have gone, which is no error.
                let _ = caller.answer(&stream);
                done.fetch_sub(1, Ordering::Relaxed);
            });
        }
    }
}

/// One connection.
struct Caller {
    board: Arc<Mutex<Board>>,
    token: Option<String>,
}

impl Caller {
    fn answer(&self, mut stream: &TcpStream) -> io::Result<()> {
        stream.set_nonblocking(false)?;
        stream.set_read_timeout(Some(message::PATIENCE))?;
        stream.set_write_timeout(Some(message::PATIENCE))?;
        let response = match message::read(stream, Instant::now()) {
            Ok(request) => self.respond(&request),
            Err(refusal) => refusal,
        };
        response.write(&mut stream)
    }

    /// No path of the file system is ever made from a request: answers are few, and runs are known by number.
    fn respond(&self, request: &Request) -> Response {
        if let Err(refusal) = self.admit(request) {
            return refusal;
        }
        if request.path == "/" {
            return Response { status: Status::Ok, kind: "text/html; charset=utf-8", body: page::live() };
        }
        let board = self.board.lock().unwrap_or_else(PoisonError::into_inner);
        if request.path == "/api/runs" {
            return json(&page_data::list(&board));
        }
        if request.path == "/metrics" {
            return Response {
                status: Status::Ok,
                kind: prometheus::CONTENT_TYPE,
                body: prometheus::exposition(&board),
            };
        }
        let number = |key| request.value(key).and_then(|value| value.parse().ok()).unwrap_or(0);
        let cursor = PageCursor {
            generation: request.value("generation").unwrap_or_default(),
            points: number("points"),
            marks: number("marks"),
            moments: number("moments"),
        };
        if let Some(monitor) = board.monitor().filter(|_| request.path == "/api/process") {
            return json(&page_data::process(monitor, &cursor));
        }
        let id = request.path.strip_prefix("/api/run/").and_then(|id| id.parse::<usize>().ok());
        match id.and_then(|id| board.runs().get(id)) {
            Some(run) => json(&page_data::run(run, &cursor)),
            None => Response::refusal(Status::NotFound, "there is no such page"),
        }
    }

    /// Without a token, only names of this machine are taken: a page from elsewhere could have its own name point here.
    fn admit(&self, request: &Request) -> Result<(), Response> {
        match &self.token {
            None if is_this_machine(&request.host) => Ok(()),
            None => Err(Response::refusal(Status::Misdirected, "this page is known as localhost or 127.0.0.1 only")),
            Some(token) if request.value("token").is_some_and(|given| is_same(given, token)) => Ok(()),
            Some(_) => {
                Err(Response::refusal(Status::Forbidden, "the token is missing or wrong; the whole address has one"))
            }
        }
    }
}

fn is_this_machine(host: &str) -> bool {
    let inner = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    match inner {
        Some(inner) => inner.parse().is_ok_and(|address: Ipv6Addr| address.is_loopback()),
        None => {
            host == "localhost" || host.parse().is_ok_and(|address: IpAddr| address.is_ipv4() && address.is_loopback())
        }
    }
}

/// Compares without telling by its time how much is right.
fn is_same(given: &str, token: &str) -> bool {
    let differences = given.bytes().zip(token.bytes()).fold(0, |differences, (a, b)| differences | (a ^ b));
    given.len() == token.len() && differences == 0
}

fn json(value: &serde_json::Value) -> Response {
    Response { status: Status::Ok, kind: "application/json", body: value.to_string() }
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
