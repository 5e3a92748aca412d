//! The page and its data, served.

mod message;
mod server;

pub use server::{PORT, Server};
