//! The border to C++: nothing may be thrown across it.

use std::fs;
use std::path::Path;

/// The first lines of every function that Rust calls: from its name to the brace that opens it.
fn functions() -> Vec<String> {
    let mut found = Vec::new();
    for entry in fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("shim")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "cpp") {
            continue;
        }
        let text = fs::read_to_string(path).unwrap();
        let starts = text.match_indices(" lt_").filter(|(at, _)| {
            let line = &text[text[..*at].rfind('\n').map_or(0, |end| end + 1)..*at];
            !line.is_empty() && line.chars().all(|letter| letter.is_alphanumeric() || "_*".contains(letter))
        });
        found.extend(starts.map(|(at, _)| text[at + 1..at + text[at..].find(" {").unwrap()].to_owned()));
    }
    found
}

#[test]
fn no_function_of_the_border_throws() {
    let functions = functions();
    assert!(functions.len() > 40, "{functions:?}");
    let throwing: Vec<_> = functions.iter().filter(|function| !function.ends_with(") noexcept")).collect();
    assert!(throwing.is_empty(), "{throwing:?}");
}

#[test]
fn every_declared_function_is_looked_at() {
    let declared = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("src/ffi.rs")).unwrap();
    let functions = functions();
    let names = declared.split("fn lt_").skip(1).map(|rest| rest.split('(').next().unwrap());
    for name in names {
        assert!(functions.iter().any(|function| function.starts_with(&format!("lt_{name}("))), "lt_{name}");
    }
}
