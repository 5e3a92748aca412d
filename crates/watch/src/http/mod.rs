//! The page and its data, served.

mod callers;
mod connection;
mod desk;
mod message;
mod server;

pub use server::{PORT, Server};
