//! The script and the configuration files that a command line names.

use std::collections::HashSet;
use std::ffi::OsString;
use std::fs::File;
use std::io::Read;
use std::path::Path;

use lowtide_config::command::{is_python, split};
use lowtide_explain::{Config, Syntax};

/// Far above any script people write by hand.
const LARGEST_FILE: u64 = 4 << 20;
/// More files than any command names.
const MOST_FILES: usize = 16;

/// Every file of settings in a command line, in the order in which they count, and the names of those that cannot be read.
pub(super) fn configs_of(command: &str) -> (Vec<Config>, Vec<String>) {
    let words: Vec<OsString> = split(command).unwrap_or_default().into_iter().map(OsString::from).collect();
    let mut seen = HashSet::new();
    let (mut configs, mut missing) = (Vec::new(), Vec::new());
    for word in words.iter().filter_map(|word| word.to_str()) {
        // `--config=run.yaml` names a file as `--config run.yaml` does.
        let name = word.strip_prefix("--").and_then(|flag| flag.split_once('=')).map_or(word, |(_, value)| value);
        if !is_config(name) || !seen.insert(name.to_owned()) || seen.len() > MOST_FILES {
            continue;
        }
        match text_of(Path::new(name)) {
            // A file without plain settings says nothing.
            Some(text) => configs.extend(Config::parse(name, &text)),
            None => missing.push(name.to_owned()),
        }
    }
    (configs, missing)
}

/// Whether a word names a script or a configuration that is read by its ending.
fn is_config(word: &str) -> bool {
    let is_file = Syntax::of_name(word).is_some_and(|syntax| syntax != Syntax::Command);
    (is_file || is_python(word.as_ref())) && !word.starts_with('-') && !word.contains("://")
}

fn text_of(path: &Path) -> Option<String> {
    let mut bytes = Vec::new();
    File::open(path).ok()?.take(LARGEST_FILE + 1).read_to_end(&mut bytes).ok()?;
    String::from_utf8(bytes).ok().filter(|text| text.len() as u64 <= LARGEST_FILE)
}
