//! Which files are configurations.

use std::path::Path;

use lowtide_config::{Config, Syntax};

use crate::Surroundings;

/// How a configuration file is written, by its name.
pub(crate) fn syntax_of(path: &Path) -> Option<Syntax> {
    match path.extension()?.to_str()? {
        "py" => Some(Syntax::Python),
        "yaml" | "yml" => Some(Syntax::Yaml),
        "json" => Some(Syntax::Json),
        _ => None,
    }
}

/// A configuration file, read; `Err` says why it cannot be.
pub(crate) fn read(path: &Path, around: &Surroundings<'_>) -> Result<Config, String> {
    let syntax = syntax_of(path).ok_or("neither .py nor .yaml nor .json")?;
    let text = (around.read)(path).ok_or("cannot be read")?;
    let name = path.to_string_lossy();
    Config::parse_as(syntax, &name, &text).map_err(|error| {
        let error = error.to_string();
        // Who reports it names the file.
        error.strip_prefix(&*name).unwrap_or(&error).trim_start_matches([',', ':', ' ']).to_owned()
    })
}
