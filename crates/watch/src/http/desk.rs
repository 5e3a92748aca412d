//! What is answered to whom.

use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Mutex, PoisonError};

use super::message::{Request, Response, Status};
use crate::prometheus;
use crate::runs::Board;
use crate::views::page;
use crate::views::page_data::{self, PageCursor};

/// Who has the answers.
pub(super) struct Desk<'a> {
    pub(super) board: &'a Mutex<Board>,
    pub(super) token: Option<&'a str>,
}

impl Desk<'_> {
    /// No path of the file system is ever made from a request: answers are few, and runs are known by number.
    pub(super) fn respond(&self, request: &Request) -> Response {
        if request.path == "/" {
            return Response { status: Status::Ok, kind: "text/html; charset=utf-8", body: page::live() };
        }
        let board = self.board.lock().unwrap_or_else(PoisonError::into_inner);
        if request.path == "/api/runs" {
            return json(page_data::list(&board));
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
            return json(page_data::process(monitor, &cursor));
        }
        let id = request.path.strip_prefix("/api/run/").and_then(|id| id.parse::<usize>().ok());
        match id.and_then(|id| board.runs().get(id)) {
            Some(run) => json(page_data::run(run, &cursor)),
            None => Response::refusal(Status::NotFound, "there is no such page"),
        }
    }

    /// Without a token, only names of this machine are taken: a page from elsewhere could have its own name point here.
    pub(super) fn admit(&self, request: &Request) -> Result<(), Response> {
        match self.token {
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

fn json(value: serde_json::Value) -> Response {
    Response { status: Status::Ok, kind: "application/json", body: page_data::text(value) }
}
