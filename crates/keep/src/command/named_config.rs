//! A batch in a file of settings that the command line names, which a retry changes only where the user says so: what the
//! script does with its keys is not known.

use std::ffi::OsString;
use std::path::Path;

use lowtide_config::command::at_script;
use lowtide_config::{Config, Setting, Syntax, whole_number};
use lowtide_trainers::{Access, Key, file, key_of_option, key_of_path};

use crate::command::gap::RungGap;

/// What would make a retry change the one file that a command names and that has a batch.
pub(crate) fn by_named_file(command: &[OsString], access: &Access<'_>) -> Option<RungGap> {
    let files = named_files(command, access);
    let mut found = files.iter().filter_map(gap_of);
    found.next().filter(|_| found.next().is_none())
}

fn gap_of(file: &Config) -> Option<RungGap> {
    let batch = only(file, Key::Batch)?;
    let accum = only(file, Key::Accumulation);
    let key = |setting: &Setting| setting.path.join(".");
    let accumulates = accum.map_or("KEY".to_owned(), key);
    Some(RungGap::NamedFile {
        at: format!("{}, line {}", file.name, file.line_of(batch.span.start)),
        file: file.name.clone(),
        set: format!("{} is {}", key(batch), batch.value),
        template: format!("{}={{micro}} {accumulates}={{accum}}", key(batch)),
    })
}

/// Forms of configurations that are not read.
const UNREAD: [&str; 8] = ["toml", "ini", "cfg", "conf", "json5", "jsonc", "hocon", "gin"];

/// Files of settings that a command line names; one that is not read may set anything.
pub(crate) fn named_files(command: &[OsString], access: &Access<'_>) -> Vec<Config> {
    let own: Vec<&str> = at_script(command).1.iter().filter_map(|word| word.to_str()).collect();
    let before = std::iter::once("").chain(own.iter().copied());
    before.zip(&own).filter_map(|(before, word)| named_file(before, word, access)).collect()
}

/// The file of settings that a word names, behind `=` or an option.
fn named_file(before: &str, word: &str, access: &Access<'_>) -> Option<Config> {
    let (option, name) = word.rsplit_once('=').unwrap_or((before, word));
    if word.starts_with('-') && !word.contains('=') {
        return None;
    }
    let is_unread = || Path::new(name).extension().is_some_and(|it| UNREAD.iter().any(|form| it == *form));
    match Syntax::of_name(name) {
        Some(Syntax::Yaml | Syntax::Json) => match file(Path::new(name), access) {
            Ok(config) => Some(config),
            // Data may be of any form.
            Err(_) if !["conf", "cfg", "settings", "param"].iter().any(|part| option.contains(part)) => None,
            Err(problem) => Some(Config::unread(name, None, &problem)),
        },
        None if is_unread() => Some(Config::unread(name, None, "is in a form that is not read here")),
        _ => None,
    }
}

/// The one plain number that a file has for something.
fn only(file: &Config, key: Key) -> Option<&Setting> {
    let about = |path: &[String]| key_of_path(path).map(|(key, _)| key).or_else(|| key_of_option(path.last()?));
    let is_it = |setting: &&Setting| about(&setting.path) == Some(key) && whole_number(&setting.value).is_some();
    let is_file = matches!(file.syntax, Syntax::Yaml | Syntax::Json);
    let mut found = file.settings.iter().filter(|_| is_file).filter(is_it);
    found.next().filter(|_| found.next().is_none())
}
