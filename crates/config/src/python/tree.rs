//! The syntax tree of a Python file, and names as they stand in it.

use std::ops::ControlFlow;

use tree_sitter::{ParseOptions, Parser, Tree};

/// Far above any script that people write by hand; it takes a second.
const LARGEST: usize = 1 << 20;
/// How often the parser may say that it goes on: for so many bytes once, and so often besides. A script takes one for
/// fifty bytes, and more where the parser looks for a way past errors.
const PATIENCE: (usize, usize) = (8, 10_000);

/// The syntax tree of a text; `None` where it is larger than any script, or where the parser would take too long.
#[must_use]
pub fn tree(text: &str) -> Option<Tree> {
    if text.len() > LARGEST {
        return None;
    }
    let mut parser = Parser::new();
    parser.set_language(&tree_sitter_python::LANGUAGE.into()).expect("the grammar is of the parser's version");
    let mut left = text.len() / PATIENCE.0 + PATIENCE.1;
    let mut patience = |_: &_| {
        left = left.saturating_sub(1);
        if left == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    let options = ParseOptions::new().progress_callback(&mut patience);
    parser.parse_with_options(&mut |at, _| &text.as_bytes()[at.min(text.len())..], None, Some(options))
}

/// The last part of a dotted name.
#[must_use]
pub fn last_name(text: &str) -> &str {
    text.rsplit('.').next().unwrap_or(text).trim()
}

/// Whether a text is a name.
#[must_use]
pub fn is_name(text: &str) -> bool {
    text.starts_with(|c: char| c.is_alphabetic() || c == '_') && text.chars().all(|c| c.is_alphanumeric() || c == '_')
}
