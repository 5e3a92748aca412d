//! As much of HTTP/1.1 as a page for one person needs: GET, one request a connection, everything bounded.

/// The most bytes that a request may have.
const HEAD: usize = 8 << 10;
/// What a request ends with.
const END: &[u8] = b"\r\n\r\n";

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
        }
    }
}

impl Response {
    /// A refusal in words.
    pub(crate) fn refusal(status: Status, text: &str) -> Response {
        Response { status, kind: "text/plain; charset=utf-8", body: format!("{text}\n") }
    }

    /// Head and body, as they are sent. Nothing of it may be kept, framed, or load anything from elsewhere.
    pub(crate) fn into_bytes(self) -> Vec<u8> {
        let Response { status, kind, body } = self;
        let allow = if status == Status::NotAllowed { "Allow: GET\r\n" } else { "" };
        let mut text = format!(
            "HTTP/1.1 {}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\nConnection: close\r\n{allow}\
             Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\nReferrer-Policy: no-referrer\r\n\
             Content-Security-Policy: default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; \
             connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'\r\n\r\n",
            status.line(),
            body.len()
        );
        text.push_str(&body);
        text.into_bytes()
    }
}

/// A request while it arrives, up to the blank line. What comes behind that is not looked at.
#[derive(Debug, Default)]
pub(crate) struct RequestHead {
    bytes: Vec<u8>,
}

impl RequestHead {
    /// Takes further bytes; the request or its refusal, once that is known.
    pub(crate) fn push(&mut self, bytes: &[u8]) -> Option<Result<Request, Response>> {
        // The end may have begun in the bytes before.
        let looked_at = self.bytes.len().saturating_sub(END.len() - 1);
        self.bytes.extend_from_slice(bytes);
        let end = self.bytes[looked_at..].windows(END.len()).position(|window| window == END);
        match end.map(|end| looked_at + end) {
            Some(end) if end <= HEAD => Some(parse(&self.bytes[..end])),
            None if self.bytes.len() <= HEAD => None,
            _ => Some(Err(Response::refusal(Status::TooLarge, "the request is too long"))),
        }
    }
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
        RequestHead::default().push(text.as_bytes()).expect("the request is whole")
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
        check_refused("GET /\r\n\r\n", Status::BadRequest);
        check_refused("GET / HTTP/1.1\r\n\r\n", Status::BadRequest);
        check_refused("GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", Status::BadRequest);
        check_refused("GET / HTTP/1.1\r\nHost: a\r\nno colon\r\n\r\n", Status::BadRequest);
        check_refused("GET / HTTP/1.1\r\nHost : a\r\n\r\n", Status::BadRequest);
        check_refused("GET / HTTP/2\r\nHost: a\r\n\r\n", Status::BadRequest);
        check_refused("GET http://a/ HTTP/1.1\r\nHost: a\r\n\r\n", Status::BadRequest);
        check_refused("POST / HTTP/1.1\r\nHost: a\r\n\r\n", Status::NotAllowed);
        check_refused(&format!("GET /{} HTTP/1.1\r\nHost: a\r\n\r\n", "x".repeat(HEAD + 2000)), Status::TooLarge);
        let no_text = RequestHead::default().push(b"GET /\xff HTTP/1.1\r\n\r\n").unwrap();
        assert_eq!(no_text.unwrap_err().status, Status::BadRequest);
    }

    #[test]
    fn a_request_may_come_byte_by_byte_and_ends_at_the_blank_line() {
        let mut head = RequestHead::default();
        let text = b"GET /a HTTP/1.1\r\nHost: b\r\n\r\n";
        let (last, before) = text.split_last().unwrap();
        assert!(before.iter().all(|byte| head.push(&[*byte]).is_none()));
        assert_eq!(head.push(&[*last, b'G', b'E', b'T']).unwrap().unwrap().path, "/a");
        let mut endless = RequestHead::default();
        let refused = (0..=HEAD).find_map(|_| endless.push(b"x")).unwrap();
        assert_eq!(refused.unwrap_err().status, Status::TooLarge);
    }
}
