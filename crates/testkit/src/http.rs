//! Pages over real connections.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};

/// Head and body of what a server answers. `address` is `HOST:PORT`, `target` begins with a slash.
pub fn get(address: &str, target: &str) -> io::Result<(String, String)> {
    let mut stream = TcpStream::connect(address)?;
    write!(stream, "GET {target} HTTP/1.1\r\nHost: localhost\r\n\r\n")?;
    stream.shutdown(Shutdown::Write)?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let (head, body) = answer.split_once("\r\n\r\n").ok_or(io::ErrorKind::UnexpectedEof)?;
    Ok((head.to_owned(), body.to_owned()))
}
