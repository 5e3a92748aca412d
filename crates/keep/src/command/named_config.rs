//! A batch in a file of settings that the command line names, which a retry changes only where the user says so: what the
//! script does with its keys is not known.

use std::ffi::OsString;

use lowtide_config::{Config, Setting, Syntax, whole_number};
use lowtide_trainers::{Access, Key, key_of_option, key_of_path};

use crate::command::discovery::{RungGap, named_files};

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

/// The one plain number that a file has for something.
fn only(file: &Config, key: Key) -> Option<&Setting> {
    let about = |path: &[String]| key_of_path(path).map(|(key, _)| key).or_else(|| key_of_option(path.last()?));
    let is_it = |setting: &&Setting| about(&setting.path) == Some(key) && whole_number(&setting.value).is_some();
    let is_file = matches!(file.syntax, Syntax::Yaml | Syntax::Json);
    let mut found = file.settings.iter().filter(|_| is_file).filter(is_it);
    found.next().filter(|_| found.next().is_none())
}
