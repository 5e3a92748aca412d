//! What several files of tests ask.

use lowtide_oom::{Certainty, Engine, Oom, Place, read};

/// Reads a message and compares what names it.
pub(crate) fn check(text: &str, engine: Engine, place: Place, certainty: Certainty, requested: Option<u64>) -> Oom {
    let oom = read(text).unwrap_or_else(|| panic!("not read: {text}"));
    let requested_here = oom.requested.map(|bytes| bytes.get());
    assert_eq!((oom.engine, oom.place, oom.certainty, requested_here), (engine, place, certainty, requested), "{text}");
    oom
}
