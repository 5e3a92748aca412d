//! The script that a command line runs, and the files beside it that it is made of.

use std::ffi::OsString;
use std::ops::Range;
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
    paths.iter().map(|path| imported_part(read(path, access))).collect()
}

/// A module without the settings of code that runs only where it is the script itself.
fn imported_part(mut module: Config) -> Config {
    let blocks = main_blocks(&module.text);
    let runs = |at: usize| !blocks.iter().any(|block| block.contains(&at));
    module.settings.retain(|setting| runs(setting.span.start));
    module.gaps.retain(|gap| runs(gap.at));
    module
}

/// The text of a module without the code that runs only where it is the script itself; all lines stay where they are.
#[must_use]
pub fn imported_text(module: &Config) -> String {
    let blocks = main_blocks(&module.text);
    let is_blank = |at: usize, c: char| c != '\n' && blocks.iter().any(|block| block.contains(&at));
    let blanked = module
        .text
        .char_indices()
        .map(|(at, c)| if is_blank(at, c) { " ".repeat(c.len_utf8()) } else { c.to_string() });
    blanked.collect()
}

/// Where `if __name__ == "__main__":` stands in a text, with all that is indented below it.
fn main_blocks(text: &str) -> Vec<Range<usize>> {
    let mut blocks: Vec<Range<usize>> = Vec::new();
    let (mut at, mut is_inside) = (0, false);
    for line in text.split_inclusive('\n') {
        let is_main = line.starts_with("if __name__") && line.contains("__main__") && !line.contains("!=");
        is_inside =
            is_main || is_inside && (line.trim().is_empty() || line.starts_with([' ', '\t', '#', ')', ']', '}']));
        match blocks.last_mut() {
            Some(block) if is_inside && !is_main => block.end = at + line.len(),
            _ if is_main => blocks.push(at..at + line.len()),
            _ => {}
        }
        at += line.len();
    }
    blocks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_imported_module_does_not_run() {
        let text = "N = 4\nif __name__ == \"__main__\":\n    batch_size = 16\n\n    run(\n        batch_size)\nM = 3\n";
        let module = Config::parse_as(lowtide_config::Syntax::Python, "m.py", text).unwrap();
        let names = |config: &Config| config.settings.iter().map(|it| it.path.concat()).collect::<Vec<_>>();
        assert_eq!(names(&imported_part(module.clone())), ["N", "M"]);
        assert!(imported_part(module.clone()).gaps.is_empty());
        let imported = imported_text(&module);
        assert_eq!((imported.len(), imported.lines().count()), (text.len(), 7));
        assert_eq!(imported.split_whitespace().collect::<Vec<_>>().concat(), "N=4M=3");
    }

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
