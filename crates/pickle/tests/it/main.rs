//! Pickles as Python writes them, as an attacker would, and as any bytes.

mod any_bytes;
mod attacks;
mod fold;
mod protocols;
