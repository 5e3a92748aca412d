//! `docs/reference/events.md`: all events and their fields, written from their declaration. `make reference` writes it anew.

use std::env;
use std::fmt::Write;
use std::fs;
use std::path::Path;

const SOURCE: &str = include_str!("../../src/event/record.rs");
const FILE: &str = "../../docs/reference/events.md";
/// Write the file instead of comparing it.
const WRITE: &str = "LOWTIDE_WRITE_REFERENCE";

const OPENING: &str = "\
# Events

One JSON object a line, in `events.jsonl` of every run folder and on standard output with `--json`. Each has `schema` (1), `time`
(seconds since the run began, or since it was resumed) and `event` (one of the names below), and `rank` where it happened on one of several ranks; sizes are in bytes. New events and new
fields may come: pass over what you do not know. This page is written from the program itself by `make reference`.
";

#[test]
fn the_reference_is_current() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(FILE);
    let text = reference();
    if env::var_os(WRITE).is_some() {
        fs::write(&path, text).unwrap();
        return;
    }
    let there = fs::read_to_string(&path).unwrap_or_default();
    assert!(there == text, "docs/reference/events.md is not current: `make reference` writes it anew");
}

fn reference() -> String {
    let (_, body) = SOURCE.split_once("pub enum Event {\n").unwrap();
    let (body, _) = body.split_once("\n}\n").unwrap();
    let mut page = OPENING.to_owned();
    let (mut doc, mut name) = (String::new(), None);
    for line in body.lines() {
        let indent = line.len() - line.trim_start().len();
        let line = line.trim();
        if let Some(words) = line.strip_prefix("///") {
            doc.push_str(words);
        } else if let Some(renamed) = line.strip_prefix("#[serde(rename = \"") {
            name = renamed.split('"').next().map(str::to_owned);
        } else if indent == 4 && line.ends_with(['{', ',']) && !line.starts_with('}') {
            let variant = line.trim_end_matches([' ', '{', ',']);
            let name = name.take().unwrap_or_else(|| snake_case(variant));
            write!(page, "\n## `{name}`\n\n{}\n", doc.trim()).unwrap();
            doc.clear();
            if line.ends_with('{') {
                page.push_str("\n| field | what |\n| --- | --- |\n");
            }
        } else if let Some((field, _)) = line.split_once(": ").filter(|_| indent == 8 && !line.starts_with('#')) {
            let field = name.take().unwrap_or_else(|| field.to_owned());
            writeln!(page, "| `{field}` | {} |", doc.trim()).unwrap();
            doc.clear();
        }
    }
    page
}

fn snake_case(name: &str) -> String {
    let mut snake = String::new();
    for letter in name.chars() {
        if letter.is_uppercase() && !snake.is_empty() {
            snake.push('_');
        }
        snake.extend(letter.to_lowercase());
    }
    snake
}
