//! The server against good and bad callers, over real connections.

use std::fs;
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::SystemTime;

use lowtide_watch::{Board, Server, WatchError};
use serde_json::Value;
use tempfile::TempDir;

const LOOPBACK: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// A server with one run, ended when this goes.
struct Served {
    address: SocketAddr,
    url: String,
    end: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    _folder: TempDir,
}

impl Served {
    fn at(host: IpAddr) -> Served {
        let folder = tempfile::tempdir().unwrap();
        let run = folder.path().join("<b>mine");
        fs::create_dir(&run).unwrap();
        fs::write(folder.path().join("secret.txt"), "secret").unwrap();
        let step = |step: u64| {
            format!(
                "{{\"schema\":1,\"time\":{step},\"event\":\"step\",\"step\":{step},\"loss\":1.5,\"learning_rate\":0.1,\
                 \"samples\":8,\"tokens\":null,\"seconds\":1,\"allocated\":10,\"peak\":20,\"reserved\":30,\"micro_batch\":8}}\n"
            )
        };
        fs::write(run.join("events.jsonl"), (1..=3).map(step).collect::<String>()).unwrap();
        let mut board = Board::open(&[run]).unwrap();
        board.catch_up(SystemTime::now()).unwrap();
        let server = Server::listen(host, Some(0)).unwrap();
        let (address, url) = (server.address(), server.url());
        let end = Arc::new(AtomicBool::new(false));
        let flag = end.clone();
        let board = Arc::new(Mutex::new(board));
        let thread = Some(std::thread::spawn(move || server.serve(&board, &flag)));
        Served { address, url, end, thread, _folder: folder }
    }

    /// What is answered to these bytes.
    fn raw(&self, request: &[u8]) -> String {
        let mut stream = TcpStream::connect((LOOPBACK, self.address.port())).unwrap();
        // The server may have answered and gone before all was sent.
        let _ = stream.write_all(request);
        let _ = stream.shutdown(Shutdown::Write);
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        String::from_utf8(answer).unwrap()
    }

    fn get(&self, target: &str, host: &str) -> String {
        self.raw(format!("GET {target} HTTP/1.1\r\nHost: {host}\r\n\r\n").as_bytes())
    }

    #[track_caller]
    fn check(&self, target: &str, host: &str, status: u32) {
        let answer = self.get(target, host);
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{target} {host}: {answer:.80}");
        assert!(!answer.contains("secret"), "{answer}");
    }

    fn json(&self, target: &str) -> Value {
        let answer = self.get(target, "localhost");
        serde_json::from_str(answer.split_once("\r\n\r\n").unwrap().1).unwrap()
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.end.store(true, Ordering::Relaxed);
        self.thread.take().map(JoinHandle::join).unwrap().unwrap();
    }
}

#[test]
fn only_names_of_this_machine_are_answered() {
    let served = Served::at(LOOPBACK);
    for host in ["localhost", "LOCALHOST:9", "127.0.0.1", "127.0.0.1:7823", "[::1]", "[::1]:80"] {
        served.check("/", host, 200);
    }
    for host in ["evil.example", "127.0.0.1.evil.example", "localhost.evil.example:7823", "", "10.0.0.1", "[::2]"] {
        served.check("/", host, 421);
        served.check("/api/runs", host, 421);
    }
}

#[test]
fn nothing_but_the_page_and_its_data_can_be_read() {
    let served = Served::at(LOOPBACK);
    for target in
        ["/api/run/1", "/api/run/-1", "/api/run/", "/api/run/0/../../secret.txt", "/../secret.txt", "//secret.txt"]
    {
        served.check(target, "localhost", 404);
    }
    for target in ["/%2e%2e/secret.txt", "/secret.txt", "/api/run/..%2f..%2fsecret.txt", "/etc/passwd", "/api/runs/"] {
        served.check(target, "localhost", 404);
    }
    served.check("secret.txt", "localhost", 400);
}

#[test]
fn bad_requests_are_refused_and_the_next_is_answered() {
    let served = Served::at(LOOPBACK);
    let long = format!("GET / HTTP/1.1\r\nHost: localhost\r\nX: {}\r\n\r\n", "x".repeat(100_000));
    let cases: [(&[u8], &str); 6] = [
        (b"\0\xff\r\n\r\n", "400"),
        (b"GET /\r\n\r\n", "400"),
        (b"GET / HTTP/1.1\r\n\r\n", "400"),
        (b"GET / HTTP/1.1\r\nHost: localhost\r\nHost: evil\r\n\r\n", "400"),
        (b"POST / HTTP/1.1\r\nHost: localhost\r\n\r\n", "405"),
        (b"GET / HTTP/1.1\r\nHost: local", "400"),
    ];
    for (request, status) in cases {
        let answer = served.raw(request);
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{request:?}: {answer}");
    }
    // Such a caller may be cut off before it has read the refusal.
    let answer = served.raw(long.as_bytes());
    assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 431 "), "{answer}");
    served.check("/", "localhost", 200);
}

#[test]
fn an_address_for_others_needs_its_token() {
    let served = Served::at(IpAddr::V4(Ipv4Addr::UNSPECIFIED));
    let token = served.url.split_once("?token=").unwrap().1;
    assert_eq!(token.len(), 32);
    served.check(&format!("/?token={token}"), "machine.example", 200);
    served.check(&format!("/api/runs?token={token}"), "machine.example", 200);
    let wrong = format!("/?token={}", token.replace(|c: char| c.is_ascii_digit(), "x"));
    for target in ["/", "/api/runs", "/?token=", wrong.as_str(), &format!("/?token={token}0")] {
        served.check(target, "localhost", 403);
    }
    let other = Served::at(IpAddr::V4(Ipv4Addr::UNSPECIFIED));
    assert_ne!(other.url.split_once("?token=").unwrap().1, token);
}

#[test]
fn only_what_is_new_is_told() {
    let served = Served::at(LOOPBACK);
    let list = served.json("/api/runs");
    assert_eq!((&list["runs"][0]["name"], &list["runs"][0]["figures"]["step"]), (&"<b>mine".into(), &3.into()));
    let whole = served.json("/api/run/0");
    assert_eq!((&whole["points_from"], &whole["points"]["step"]), (&0.into(), &serde_json::json!([1, 2, 3])));
    let generation = whole["generation"].as_str().unwrap();
    let rest = served.json(&format!("/api/run/0?generation={generation}&points=3&marks=0"));
    assert_eq!((&rest["points_from"], &rest["points"]["step"]), (&2.into(), &serde_json::json!([3])));
    let other = served.json("/api/run/0?generation=9.9.9&points=3&marks=0");
    assert_eq!(other["points_from"], 0);
    let beyond = served.json(&format!("/api/run/0?generation={generation}&points=99999999&marks=7"));
    assert_eq!(beyond["points_from"], 0);
}

#[test]
fn a_port_in_use_is_told() {
    let taken = TcpListener::bind((LOOPBACK, 0)).unwrap();
    let address = taken.local_addr().unwrap();
    let error = Server::listen(LOOPBACK, Some(address.port())).unwrap_err();
    assert!(matches!(error, WatchError::Address { .. }));
    assert_eq!(error.to_string(), format!("cannot listen at {address}: another program listens there"));
    assert_eq!(error.hint(), Some("without --port the next free port is taken"));
}
