//! As much of HTTP/1.1 as a page for one person needs: GET, one request a connection, everything bounded.

use std::io::{self, Read, Write};
use std::time::{Duration, Instant};

/// The most bytes that a request may have.
const HEAD: usize = 8 << 10;
/// How long a request may take to arrive.
pub(crate) const PATIENCE: Duration = Duration::from_secs(5);

/// What was asked for.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Request {
    /// The path, as it was sent.
    pub(crate) path: String,
    /// Keys and values after the question mark, as they were sent.
    query: Vec<(String, String)>,
    /// The value of the only `Host` header, without its port.
    pub(crate) host: String,
}

impl Request {
    /// The value of a key after the question mark.
    pub(crate) fn value(&self, key: &str) -> Option<&str> {
        self.query.iter().find(|(name, _)| name == key).map(|(_, value)| value.as_str())
    }
}

/// What is answered.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Response {
    pub(crate) status: Status,
    pub(crate) kind: &'static str,
    pub(crate) body: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Status {
    Ok,
    BadRequest,
    Forbidden,
    NotFound,
    NotAllowed,
    TooLate,
    TooLarge,
    Misdirected,
    Busy,
}

impl Status {
    fn line(self) -> &'static str {
        match self {
            Status::Ok => "200 OK",
            Status::BadRequest => "400 Bad Request",
            Status::Forbidden => "403 Forbidden",
            Status::NotFound => "404 Not Found",
            Status::NotAllowed => "405 Method Not Allowed",
            Status::TooLate => "408 Request Timeout",
            Status::TooLarge => "431 Request Header Fields Too Large",
            Status::Misdirected => "421 Misdirected Request",
            Status::Busy => "503 Service Unavailable",
        }
    }
}

impl Response {
    /// A refusal in words.
    pub(crate) fn refusal(status: Status, text: &str) -> Response {
        Response { status, kind: "text/plain; charset=utf-8", body: format!("{text}\n") }
    }

    /// Writes head and body. Nothing of it may be kept, framed, or load anything from elsewhere.
    pub(crate) fn write(&self, mut to: impl Write) -> io::Result<()> {
        let Response { status, kind, body } = self;
        let allow = if *status == Status::NotAllowed { "Allow: GET\r\n" } else { "" };
        write!(
            to,
            "HTTP/1.1 {}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\nConnection: close\r\n{allow}\
             Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\nReferrer-Policy: no-referrer\r\n\
             Content-Security-Policy: default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; \
             connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'\r\n\r\n",
            status.line(),
            body.len()
        )?;
        to.write_all(body.as_bytes())?;
        to.flush()
    }
}

/// Reads a request up to the blank line.
pub(crate) fn read(mut from: impl Read, begun: Instant) -> Result<Request, Response> {
    let mut head = Vec::new();
    let mut piece = [0; 1024];
    let end = loop {
        if let Some(end) = head.windows(4).position(|bytes| bytes == b"\r\n\r\n") {
            break end;
        }
        if head.len() > HEAD {
            return Err(Response::refusal(Status::TooLarge, "the request is too long"));
        }
        if begun.elapsed() > PATIENCE {
            return Err(Response::refusal(Status::TooLate, "the request took too long"));
        }
        match from.read(&mut piece) {
            Ok(0) => return Err(Response::refusal(Status::BadRequest, "the request ends too early")),
            Ok(read) => head.extend_from_slice(&piece[..read]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => return Err(Response::refusal(Status::TooLate, "the request took too long")),
        }
    };
    parse(&head[..end])
}

fn parse(head: &[u8]) -> Result<Request, Response> {
    let bad = |text| Response::refusal(Status::BadRequest, text);
    let head = str::from_utf8(head).map_err(|_| bad("the request is no text"))?;
    let mut lines = head.split("\r\n");
    let words: Vec<&str> = lines.next().unwrap_or_default().split(' ').collect();
    let [method, target, version] = words[..] else { return Err(bad("the first line is no request")) };
    if !matches!(version, "HTTP/1.1" | "HTTP/1.0") {
        return Err(bad("the version of HTTP is not 1.1"));
    }
    if method != "GET" {
        return Err(Response::refusal(Status::NotAllowed, "only GET is answered"));
    }
    if !target.starts_with('/') {
        return Err(bad("the target is no path"));
    }
    let mut hosts = Vec::new();
    for line in lines {
        let (name, value) = line.split_once(':').ok_or_else(|| bad("a header has no colon"))?;
        if name.is_empty() || name.contains(|c: char| c.is_whitespace() || c.is_control()) {
            return Err(bad("a header has no name"));
        }
        if name.eq_ignore_ascii_case("host") {
            hosts.push(value.trim());
        }
    }
    let [host] = hosts[..] else { return Err(bad("there must be one Host header")) };
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let pair = |pair: &str| {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        (key.to_owned(), value.to_owned())
    };
    let query = query.split('&').filter(|text| !text.is_empty()).map(pair).collect();
    Ok(Request { path: path.to_owned(), query, host: without_port(host).to_ascii_lowercase() })
}

/// `[::1]:80` is `[::1]`; `localhost:80` is `localhost`.
fn without_port(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) && !name.ends_with(':') => name,
        _ => host,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_text(text: &str) -> Result<Request, Response> {
        read(text.as_bytes(), Instant::now())
    }

    #[track_caller]
    fn check_refused(text: &str, status: Status) {
        assert_eq!(read_text(text).unwrap_err().status, status, "{text:?}");
    }

    #[test]
    fn a_request_is_taken_apart() {
        let request = read_text("GET /api/run/3?points=12&token=a%20b HTTP/1.1\r\nhOsT: LocalHost:80\r\n\r\n").unwrap();
        assert_eq!((request.path.as_str(), request.host.as_str()), ("/api/run/3", "localhost"));
        assert_eq!((request.value("points"), request.value("x")), (Some("12"), None));
        for (host, name) in [("[::1]:8000", "[::1]"), ("127.0.0.1", "127.0.0.1"), ("[::1]", "[::1]")] {
            assert_eq!(without_port(host), name);
        }
    }

    #[test]
    fn what_is_no_request_is_refused() {
        check_refused("", Status::BadRequest);
        check_refused("GET /\r\n\r\n", Status::BadRequest);
        check_refused("GET / HTTP/1.1\r\n\r\n", Status::BadRequest);
        check_refused("GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", Status::BadRequest);
        check_refused("GET / HTTP/1.1\r\nHost: a\r\nno colon\r\n\r\n", Status::BadRequest);
        check_refused("GET / HTTP/1.1\r\nHost : a\r\n\r\n", Status::BadRequest);
        check_refused("GET / HTTP/2\r\nHost: a\r\n\r\n", Status::BadRequest);
        check_refused("GET http://a/ HTTP/1.1\r\nHost: a\r\n\r\n", Status::BadRequest);
        check_refused("POST / HTTP/1.1\r\nHost: a\r\n\r\n", Status::NotAllowed);
        check_refused(&format!("GET /{} HTTP/1.1\r\nHost: a\r\n\r\n", "x".repeat(HEAD + 2000)), Status::TooLarge);
        assert_eq!(read(&b"GET /\xff HTTP/1.1\r\n\r\n"[..], Instant::now()).unwrap_err().status, Status::BadRequest);
    }
}
