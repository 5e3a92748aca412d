//! One message to one [`Oom`].

use crate::look_alike::{LookAlike, resemblance};
use crate::{Oom, scan_post};

/// Reads a message, of one line or many; where several lines report, the surest one counts.
#[must_use]
pub fn read(text: &str) -> Option<Oom> {
    let found = scan_post(text.as_bytes()).map(|hit| hit.oom);
    found.reduce(|best, oom| if oom.certainty > best.certainty { oom } else { best })
}

/// What a text that is no out-of-memory error, but resembles one, is instead.
///
/// `None` for a text that is one, and for a text that resembles none.
#[must_use]
pub fn look_alike(text: &str) -> Option<LookAlike> {
    if read(text).is_some() { None } else { resemblance(text) }
}
