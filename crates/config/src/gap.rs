//! Settings that are there without a plain value: what a program computes, changes later or passes on.

use crate::Scope;

/// A setting whose value the text does not give.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Gap {
    /// The keys that lead to it, outermost first; empty where any name may be meant.
    pub path: Vec<String>,
    /// Where it stands in the text, in bytes.
    pub at: usize,
    /// What stands there, cut to a bounded length.
    pub text: String,
    /// Why its value is not known.
    pub kind: GapKind,
    /// What it belongs to. Of the file are those that a later assignment of the file's own takes the place of.
    pub scope: Scope,
}

/// Why the value of a setting is not known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum GapKind {
    /// It is set where the reader of plain values does not follow: under an `if`, with others at once, over several
    /// lines.
    Computed,
    /// Its value is changed again: `steps //= 8`.
    Changed,
    /// It stands for the value of another setting: `*anchor`, `if x: steps = args.steps`.
    Alias,
    /// Something that may set any name: `exec(...)`, `from base import *`.
    Anything,
    /// Its file is not read; the text says why. Of a path any name that begins with it may be meant.
    Unread,
}

const LONGEST: usize = 80;

impl Gap {
    /// A gap at a place of a text; of what stands there, the first line is kept.
    pub(crate) fn new(path: Vec<String>, at: usize, text: &str, kind: GapKind, scope: Scope) -> Self {
        let text = text.lines().next().unwrap_or_default().trim().chars().take(LONGEST).collect();
        Self { path, at, text, kind, scope }
    }
}
