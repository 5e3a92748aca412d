//! A changed copy of a script that is run as if it were the script.
//!
//! The command line stays as it is. What makes Python take the copy's text is `stand_in.py`, which every Python of the
//! command reads at its start because its folder is first on `PYTHONPATH`.
//!
//! Another path in the place of the script's would change `__file__`, `sys.argv[0]`, the siblings' folder and what
//! spawned workers import. Instead `stand_in.py` is the `sitecustomize` of every Python that the command starts. It
//! answers where Python reads that one file: imports and `-m` by the loader, workers by `runpy`. The main script is
//! read by C code, unless its path can be imported from, as a zip archive's can: so for one moment it can, and `runpy`
//! runs the text. Exit codes, Ctrl-C and tracebacks are then Python's own. A mark is left where the copy was taken, so
//! that a Python which ignores the variable is noticed; if the script on disk is no longer the one that was read,
//! nothing is replaced.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::{env, fs};

use lowtide_config::command::at_script;

use crate::{ConfigCopy, KeepError, Launch};

/// The variable by which Python looks for modules in further folders.
pub(crate) const PATHS: &str = "PYTHONPATH";
/// The name under which Python looks for what is to be read at its start.
const HOOK: &str = "sitecustomize.py";
const STAND_IN: &str = include_str!("stand_in.py");
/// Written by the stand-in when the copy was taken.
const USED: &str = "used";

/// What makes Python run the copy of a script.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StandIn {
    /// The folder for `PYTHONPATH`.
    pub folder: PathBuf,
    /// The script as it was when the copy was made.
    pub script: String,
}

impl StandIn {
    /// Puts the folder before all others where the command looks for modules.
    pub(crate) fn enter(&self, launch: &mut Launch, own: Option<OsString>) {
        let folder = std::path::absolute(&self.folder).unwrap_or_else(|_| self.folder.clone());
        let joined = |rest: Option<&OsStr>| {
            let rest = rest.map(env::split_paths).into_iter().flatten();
            env::join_paths(std::iter::once(folder.clone()).chain(rest)).unwrap_or_else(|_| folder.clone().into())
        };
        // `env PYTHONPATH=src python train.py` has its own.
        for word in &mut launch.command {
            if let Some(rest) = word.as_bytes().strip_prefix(b"PYTHONPATH=") {
                *word = [OsStr::new(PATHS), &joined(Some(OsStr::from_bytes(rest)))].join(OsStr::new("="));
            }
        }
        launch.environment.push((PATHS.into(), joined(own.as_deref())));
    }

    /// Writes what Python reads at its start.
    fn write(&self, copy: &ConfigCopy) -> Result<(), KeepError> {
        let real = |path: &Path| path.canonicalize().map_err(KeepError::file(path));
        let original = real(&copy.original)?;
        let now = fs::read(&original).map_err(KeepError::file(&original))?;
        if now != self.script.as_bytes() {
            return Err(KeepError::ScriptChanged { path: copy.original.clone() });
        }
        fs::create_dir_all(&self.folder).map_err(KeepError::file(&self.folder))?;
        let paths = [original, real(&copy.path)?].map(|path| path.into_os_string().into_vec()).join(&0);
        for (name, content) in [(HOOK, STAND_IN.as_bytes()), ("original", self.script.as_bytes()), ("paths", &paths)] {
            lowtide_disk::write(&self.folder.join(name), content)?;
        }
        Ok(())
    }
}

impl ConfigCopy {
    /// Writes the copy, and what makes the command take it.
    pub(crate) fn write(&self) -> Result<(), KeepError> {
        lowtide_disk::write(&self.path, self.text.as_bytes())?;
        self.stand_in.as_ref().map_or(Ok(()), |stand_in| stand_in.write(self))
    }

    /// Whether the command took the copy; of a configuration file that is taken for granted.
    pub(crate) fn was_used(&self) -> bool {
        let is_there = |stand_in: &StandIn| stand_in.folder.join(USED).exists();
        self.stand_in.as_ref().is_none_or(is_there)
    }
}

/// The option of the command's Python by which it reads nothing at its start.
pub(crate) fn deaf_option(command: &[OsString]) -> Option<String> {
    let launcher = at_script(command).0;
    let is_python = |word: &OsString| {
        let name = Path::new(word).file_name().and_then(OsStr::to_str).unwrap_or_default();
        name.starts_with("python") || name.starts_with("pypy")
    };
    let options = &launcher[launcher.iter().position(is_python)? + 1..];
    let options = options.iter().filter_map(|word| word.to_str()).take_while(|word| word.starts_with('-'));
    let is_deaf = |word: &&str| {
        // What follows these is their value.
        let letters = word[1..].split(['X', 'W', 'm', 'c']).next().unwrap_or_default();
        !word.starts_with("--") && letters.contains(['I', 'E', 'S'])
    };
    options.into_iter().find(is_deaf).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use lowtide_config::command::{quoted, split};

    use super::*;

    #[test]
    fn pythons_that_read_nothing_at_their_start() {
        let deaf = |text: &str| deaf_option(&split(text).unwrap().into_iter().map(OsString::from).collect::<Vec<_>>());
        assert_eq!(deaf("python -u -I train.py"), Some("-I".to_owned()));
        assert_eq!(deaf("python3.11 -uES train.py"), Some("-uES".to_owned()));
        for text in ["python -u -X dev train.py -I", "python -Werror::SyntaxWarning train.py", "torchrun -S train.py"] {
            assert_eq!(deaf(text), None, "{text}");
        }
    }

    #[test]
    fn the_folder_comes_first() {
        let stand_in = StandIn { folder: "/r/retry-1".into(), script: String::new() };
        let entered = |text: &str, own: Option<&str>| {
            let command = split(text).unwrap().into_iter().map(OsString::from).collect();
            let mut launch = Launch { command, environment: Vec::new(), copy: None };
            stand_in.enter(&mut launch, own.map(OsString::from));
            (quoted(&launch.command), launch.environment[0].1.clone().into_string().unwrap())
        };
        assert_eq!(entered("python t.py", None), ("python t.py".to_owned(), "/r/retry-1".to_owned()));
        assert_eq!(entered("python t.py", Some("a:b")).1, "/r/retry-1:a:b");
        assert_eq!(entered("env PYTHONPATH=src python t.py", None).0, "env PYTHONPATH=/r/retry-1:src python t.py");
    }
}
