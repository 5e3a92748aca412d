//! The server in a crowd: callers who never ask, never read or never go, and an honest one among them.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use lowtide_watch::Board;
use tempfile::TempDir;

use crate::kit::{Served, Written, at};

const REQUEST: &[u8] = b"GET /api/runs HTTP/1.1\r\nHost: localhost\r\n\r\n";

/// How a bad caller behaves, once it is connected.
#[derive(Debug, Clone, Copy)]
enum Manner {
    /// Says nothing.
    Silent,
    /// Sends a request of which every second a byte comes.
    Dripping,
    /// Sends headers without end, a line every tenth of a second.
    Endless,
    /// Says that it has nothing more to say, in the middle of a request, and stays.
    HalfClosed,
    /// Asks, then sends a body a byte a second.
    SlowBody,
    /// Asks for much and reads nothing.
    Deaf,
    /// Asks for much and reads a little every tenth of a second.
    HardOfHearing,
}

impl Manner {
    fn first_words(self) -> &'static [u8] {
        match self {
            Manner::Silent => b"",
            Manner::Dripping => b"G",
            Manner::Endless => b"GET / HTTP/1.1\r\nHost: localhost\r\n",
            Manner::HalfClosed => b"GET / HTTP/1.1\r\nHo",
            Manner::SlowBody => b"GET / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999\r\n\r\n",
            Manner::Deaf | Manner::HardOfHearing => b"GET /api/run/0 HTTP/1.1\r\nHost: localhost\r\n\r\n",
        }
    }

    fn pause(self) -> Duration {
        match self {
            Manner::Dripping | Manner::SlowBody => Duration::from_secs(1),
            _ => Duration::from_millis(100),
        }
    }

    /// What it does after a while; an error where the server closed the connection.
    fn go_on(self, stream: &mut TcpStream) -> io::Result<()> {
        match self {
            Manner::Silent | Manner::HalfClosed | Manner::Deaf => Ok(()),
            Manner::Dripping | Manner::SlowBody => stream.write_all(b"E"),
            Manner::Endless => stream.write_all(b"X: y\r\n"),
            Manner::HardOfHearing => stream.read_exact(&mut [0; 512]),
        }
    }

    fn connect(self, address: SocketAddr) -> io::Result<TcpStream> {
        let mut stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(Duration::from_secs(1)))?;
        stream.write_all(self.first_words())?;
        if matches!(self, Manner::HalfClosed) {
            stream.shutdown(Shutdown::Write)?;
        }
        Ok(stream)
    }
}

/// A server with a run whose data no socket takes at once.
fn served() -> (Served, TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let mut run = Written::begin(folder.path(), at(0.0));
    for step in 1..=1190 {
        run.ran_out(at(step as f64), step as f64, step, "😀".repeat(1000));
    }
    let mut board = Board::open(&[folder.path().to_owned()]).unwrap();
    board.catch_up(at(1200.0)).unwrap();
    (Served::new(board), folder)
}

/// How long fifty honest callers take until all have read what bad ones ask for: next to nothing, unless the machine is busy.
fn honest_crowd(address: SocketAddr) -> Duration {
    let begun = Instant::now();
    thread::scope(|scope| {
        for _ in 0..50 {
            scope.spawn(|| {
                let mut stream = TcpStream::connect(address).unwrap();
                stream.write_all(Manner::Deaf.first_words()).unwrap();
                // The server may send some of so many away.
                let _ = stream.read_to_end(&mut Vec::new());
            });
        }
    });
    begun.elapsed()
}

/// The status that an honest caller gets, and how long that took.
fn ask(address: SocketAddr, patience: Duration) -> (String, Duration) {
    let begun = Instant::now();
    let answer = || -> io::Result<String> {
        let mut stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(patience))?;
        stream.write_all(REQUEST)?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer.lines().next().unwrap_or("nothing").to_owned())
    };
    (answer().unwrap_or_else(|error| error.to_string()), begun.elapsed())
}

/// So many bad callers, who come back when they are sent away, and twelve honest requests among them.
#[track_caller]
fn check(manner: Manner, number: usize) {
    let (served, _folder) = served();
    let address = served.address();
    // Who has to wait for a bad caller waits five seconds or more; who waits for a processor, less than three and some times what the machine needs.
    let patience = Duration::from_secs(3) + 5 * honest_crowd(address);
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..number {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    let Ok(mut stream) = manner.connect(address) else { continue };
                    let mut last = Instant::now();
                    while !is_over.load(Ordering::Relaxed) {
                        thread::sleep(Duration::from_millis(100));
                        if last.elapsed() >= manner.pause() {
                            last = Instant::now();
                            if manner.go_on(&mut stream).is_err() {
                                break;
                            }
                        }
                    }
                }
            });
        }
        // All of them are there, and have their answers, before the first honest one is.
        thread::sleep(Duration::from_secs(2));
        let answers: Vec<(String, Duration)> = (0..12)
            .map(|_| {
                thread::sleep(Duration::from_millis(50));
                ask(address, patience)
            })
            .collect();
        is_over.store(true, Ordering::Relaxed);
        let is_good = |(status, time): &(String, Duration)| status == "HTTP/1.1 200 OK" && *time < patience;
        assert!(answers.iter().all(is_good), "{manner:?} {number}: {answers:?}, patience {patience:?}");
    });
}

#[test]
fn callers_who_drip_keep_nobody_out() {
    check(Manner::Dripping, 50);
    check(Manner::Dripping, 200);
}

#[test]
fn callers_who_say_nothing_keep_nobody_out() {
    check(Manner::Silent, 200);
}

#[test]
fn headers_without_end_and_halves_of_requests_keep_nobody_out() {
    check(Manner::Endless, 100);
    check(Manner::HalfClosed, 100);
}

#[test]
fn slow_bodies_keep_nobody_out() {
    check(Manner::SlowBody, 100);
}

#[test]
fn callers_who_do_not_read_keep_nobody_out() {
    check(Manner::Deaf, 50);
    check(Manner::HardOfHearing, 50);
}

#[test]
fn a_request_that_drips_is_over_in_time_however_much_of_it_comes() {
    let (served, _folder) = served();
    let begun = Instant::now();
    let mut stream = Manner::Dripping.connect(served.address()).unwrap();
    stream.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
    let mut answer = Vec::new();
    while !answer.ends_with(b"\n") {
        let mut piece = [0; 1000];
        match stream.read(&mut piece) {
            Ok(0) => break,
            Ok(count) => answer.extend_from_slice(&piece[..count]),
            Err(_) => stream.write_all(b"E").unwrap(),
        }
        assert!(begun.elapsed() < Duration::from_secs(7), "nothing came");
    }
    assert!(answer.starts_with(b"HTTP/1.1 408 "), "{}", answer.escape_ascii());
}

#[test]
fn what_comes_behind_a_request_does_not_cost_its_answer() {
    let (served, _folder) = served();
    for behind in [REQUEST.repeat(50), vec![b'x'; 100_000]] {
        let mut stream = TcpStream::connect(served.address()).unwrap();
        stream.write_all(&[REQUEST, &behind].concat()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert_eq!(answer.matches("HTTP/1.1 ").count(), 1, "{answer:.80}");
        assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer:.80}");
    }
}

#[test]
fn a_long_answer_reaches_a_reader_who_pauses_now_and_then() {
    let (served, _folder) = served();
    let mut stream = Manner::Deaf.connect(served.address()).unwrap();
    let mut answer = Vec::new();
    let mut piece = vec![0; 256 << 10];
    loop {
        match stream.read(&mut piece).unwrap() {
            0 => break,
            count => answer.extend_from_slice(&piece[..count]),
        }
        thread::sleep(Duration::from_millis(20));
    }
    let end = answer.windows(4).position(|bytes| bytes == b"\r\n\r\n").unwrap() + 4;
    assert!(answer.len() > 3_500_000, "{}", answer.len());
    serde_json::from_slice::<serde_json::Value>(&answer[end..]).unwrap();
}
