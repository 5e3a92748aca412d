//! Settings that are words or numbers of their own kind.

pub(crate) mod sizes;
pub(crate) mod words;
