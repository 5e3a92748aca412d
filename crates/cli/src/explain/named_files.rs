//! The script and the configuration files that a command line names.

use std::collections::{HashSet, VecDeque};
use std::fs::File;
use std::io::Read;
use std::path::Path;

use lowtide_config::command::{is_python, split, words as shell_words};
use lowtide_explain::{Config, Syntax};

/// Far above any script people write by hand.
const LARGEST_FILE: u64 = 4 << 20;
/// More files than any command names.
const MOST_FILES: usize = 16;

/// Every file of settings in a command line, in the order in which they count, and the names of those that cannot be read.
pub(super) fn configs_of(command: &str) -> (Vec<Config>, Vec<String>) {
    let mut words: VecDeque<String> = split(command).unwrap_or_default().into();
    let mut seen = HashSet::new();
    let (mut configs, mut scripts, mut missing) = (Vec::new(), Vec::new(), Vec::new());
    while let Some(word) = words.pop_front() {
        let word = &*word;
        // `--config=run.yaml` names a file as `--config run.yaml` does.
        let name = word.strip_prefix("--").and_then(|flag| flag.split_once('=')).map_or(word, |(_, value)| value);
        if !is_config(name) || !seen.insert(name.to_owned()) || seen.len() > MOST_FILES {
            continue;
        }
        match text_of(Path::new(name)) {
            // A script of the shell has the command in it, which names files in its turn.
            Some(text) if is_shell_script(name) => {
                words.extend(shell_words(&text).into_iter().map(|word| word.text));
                scripts.extend(Config::parse_as(Syntax::Command, name, &text));
            }
            // A file without plain settings says nothing.
            Some(text) => configs.extend(Config::parse(name, &text)),
            None => missing.push(name.to_owned()),
        }
    }
    // What the command says counts before the defaults of what it runs.
    configs.extend(scripts);
    (configs, missing)
}

/// Whether a word names a script or a configuration that is read by its ending.
fn is_config(word: &str) -> bool {
    (Syntax::of_name(word).is_some() || is_python(word.as_ref())) && !word.starts_with('-') && !word.contains("://")
}

fn is_shell_script(word: &str) -> bool {
    Syntax::of_name(word) == Some(Syntax::Command)
}

fn text_of(path: &Path) -> Option<String> {
    let mut bytes = Vec::new();
    File::open(path).ok()?.take(LARGEST_FILE + 1).read_to_end(&mut bytes).ok()?;
    String::from_utf8(bytes).ok().filter(|text| text.len() as u64 <= LARGEST_FILE)
}
