//! Logs and configurations: what is said of them, word by word, and what no bytes can do.

mod advice;
mod already_on;
mod any_bytes;
mod arithmetic;
mod culprit;
mod devices;
mod engines;
mod fidelity;
mod golden;
mod got_over;
mod host;
mod json_lines;
mod misread;
mod order;
mod others;
mod own_words;
mod pieces;
mod ranks;
mod remedies;
mod reports;
mod servers;
mod stories;
mod threads;
mod torch_words;
mod wording;
