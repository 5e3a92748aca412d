//! Searches for many phrases at once, built only where they are worth their time.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use aho_corasick::{AhoCorasick, AhoCorasickKind};

/// Holds back lines that have none of some words, so that nobody looks for each of these words in every line.
#[derive(Debug)]
pub struct Sieve {
    words: fn() -> Vec<&'static str>,
    table: LateTable,
}

impl Sieve {
    /// A sieve for the words that a function names.
    #[must_use]
    pub const fn new(words: fn() -> Vec<&'static str>) -> Self {
        Self { words, table: LateTable::after(SOME) }
    }

    /// Whether a line may have one of the words: the first lines pass unseen, every line that has one passes.
    #[must_use]
    pub fn passes(&self, line: &str) -> bool {
        self.table.get(|| self.build()).is_none_or(|table| table.is_match(line))
    }

    /// Whether a line has one of the words.
    #[must_use]
    pub fn is_match(&self, line: &str) -> bool {
        self.table.now(|| self.build()).is_match(line)
    }

    /// A form that is small and soon built: sieves have many words, and few logs ask them long.
    fn build(&self) -> AhoCorasick {
        build(AhoCorasickKind::ContiguousNFA, (self.words)())
    }
}

/// One search for many phrases, as a table: for lists that nearly every line is asked about.
pub(crate) fn quick(phrases: impl IntoIterator<Item = &'static str>) -> AhoCorasick {
    build(AhoCorasickKind::DFA, phrases)
}

fn build(kind: AhoCorasickKind, phrases: impl IntoIterator<Item = &'static str>) -> AhoCorasick {
    AhoCorasick::builder().kind(Some(kind)).build(phrases).expect("a short list of literals always builds")
}

/// A table that is built once it was asked for so often that this is worth its time: to build one takes as long as to look through
/// dozens of lines phrase by phrase.
#[derive(Debug)]
pub struct LateTable<T = AhoCorasick> {
    asked: AtomicUsize,
    few: usize,
    table: OnceLock<T>,
}

/// Lines that are looked through without a table, and those that pass a sieve unseen: more than most posts have.
const FEW: usize = 48;
const SOME: usize = 128;

impl<T> LateTable<T> {
    pub(crate) const fn new() -> Self {
        Self::after(FEW)
    }

    /// A table that is built when it is asked for once more than so often.
    #[must_use]
    pub const fn after(few: usize) -> Self {
        Self { asked: AtomicUsize::new(0), few, table: OnceLock::new() }
    }

    /// The table, where it is there or worth building.
    pub fn get(&self, build: impl FnOnce() -> T) -> Option<&T> {
        match self.table.get() {
            Some(table) => Some(table),
            None if self.asked.fetch_add(1, Ordering::Relaxed) < self.few => None,
            None => Some(self.now(build)),
        }
    }

    /// The table, built at once where it is not there.
    pub fn now(&self, build: impl FnOnce() -> T) -> &T {
        self.table.get_or_init(build)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_lines_pass_unseen_and_then_those_with_a_word() {
        static SIEVE: Sieve = Sieve::new(|| vec!["one", "two"]);
        assert!((0..SOME).all(|_| SIEVE.passes("three")));
        assert!(!SIEVE.passes("three") && SIEVE.passes("twofold"));
        assert!(!SIEVE.is_match("three") && SIEVE.is_match("twofold"));
    }
}
