//! The script that a command line runs, and the files beside it that it is made of.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use lowtide_config::Config;
use lowtide_config::command::{at_script, is_module};
use lowtide_config::python::is_name;

use crate::Access;
use crate::sources::read;

/// Files beside a script that are looked into.
const MOST_SIBLINGS: usize = 32;

/// Where the script is that a command line runs, also as `-m package.module`; `None` where none can be read.
#[must_use]
pub fn script_path(command: &[OsString], access: &Access<'_>) -> Option<PathBuf> {
    let (launcher, _) = at_script(command);
    let word = launcher.last()?;
    let is_there = |path: &PathBuf| (access.read)(path).is_some();
    if !is_module(command, launcher.len() - 1) {
        return Some(PathBuf::from(word)).filter(is_there);
    }
    let inner: PathBuf = word.to_str()?.split('.').collect();
    // The folder that the command is started in comes first.
    let folders = (access.variable)("PYTHONPATH").unwrap_or_default();
    let folders = std::iter::once(PathBuf::new()).chain(std::env::split_paths(&folders));
    folders
        .flat_map(|folder| [folder.join(&inner).with_extension("py"), folder.join(&inner).join("__main__.py")])
        .find(is_there)
}

/// The script that a command line runs, where it can be read.
#[must_use]
pub fn script(command: &[OsString], access: &Access<'_>) -> Option<Config> {
    Some(read(&script_path(command, access)?, access))
}

/// The modules that a line imports: `import a, b.c as d`, `from a import x`, `from . import a`.
fn imported(line: &str) -> impl Iterator<Item = &str> {
    let line = line.split('#').next().unwrap_or_default().trim();
    let (module, names) = match (line.strip_prefix("import "), line.strip_prefix("from ")) {
        (Some(names), _) => ("", names),
        (_, Some(rest)) => rest.split_once(" import ").unwrap_or((rest, "")),
        _ => ("", ""),
    };
    let module = module.trim().trim_start_matches('.');
    // Names of another module's are none of modules.
    let names = if module.is_empty() { names } else { module };
    let names = names.split([',', ';']).filter_map(|name| name.trim_matches(['(', ')', ' ']).split(' ').next());
    names.map(|name| name.trim_start_matches('.')).filter(|name| name.split('.').all(is_name))
}

/// The modules beside a script that it imports, where they can be read: options are often declared in one of them.
#[must_use]
pub fn siblings(script: &Config, access: &Access<'_>) -> Vec<Config> {
    let folder = Path::new(&script.name).parent().unwrap_or(Path::new(""));
    let mut paths: Vec<PathBuf> = Vec::new();
    for line in script.text.lines() {
        for module in imported(line) {
            let path = folder.join(module.split('.').collect::<PathBuf>()).with_extension("py");
            if !paths.contains(&path) && paths.len() < MOST_SIBLINGS {
                paths.push(path);
            }
        }
    }
    paths.retain(|path| (access.read)(path).is_some());
    paths.iter().map(|path| read(path, access)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_that_import_modules() {
        for (line, expected) in [
            ("import settings", &["settings"][..]),
            ("import os, settings as s, pkg.data  # three", &["os", "settings", "pkg.data"]),
            ("    from settings import BATCH_SIZE, STEPS", &["settings"]),
            ("from .settings import (A, B)", &["settings"]),
            ("from . import settings, data", &["settings", "data"]),
            ("from pkg.data import *", &["pkg.data"]),
            ("important = 3", &[]),
            ("print('import settings')", &[]),
        ] {
            assert_eq!(imported(line).collect::<Vec<_>>(), expected, "{line}");
        }
    }
}
