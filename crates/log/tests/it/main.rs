//! What the readers promise for any log.

mod any_bytes;
