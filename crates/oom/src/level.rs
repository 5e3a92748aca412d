//! The levels of loggers.

/// Below that of what went wrong.
pub(crate) const CALM: &str = "trace debug info notice";
/// Of what a program goes on from.
pub(crate) const WARNINGS: &str = "warning warn wrn";
/// Of what went wrong.
const ERRORS: &str = "error err critical fatal";

/// Whether a word is the name of a level, letter case aside.
pub(crate) fn is_level(word: &str) -> bool {
    [CALM, WARNINGS, ERRORS].iter().any(|levels| levels.split(' ').any(|level| level.eq_ignore_ascii_case(word)))
}
