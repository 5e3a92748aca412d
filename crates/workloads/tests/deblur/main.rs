//! The film sharpener: its figures against another implementation's, what its outputs see, evaluation in tiles, that it
//! learns, and films in files.

#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod frames;
mod kit;
mod lpips;
mod network;
