//! A changed copy of a script, or of a module that it imports, which is run as if it were that file.
//!
//! Where the batch stands in one file and accumulation in another, both have a copy, each with a door of its own.
//!
//! The command line stays as it is. What makes Python take the copy's text is `script.py`, which comes into every Python
//! of the command by a [`Door`].
//!
//! Another path in the place of the script's would change `__file__`, `sys.argv[0]`, the siblings' folder and what
//! spawned workers import. Instead `script.py` answers where Python reads that one file: imports and `-m` by the loader,
//! workers by `runpy`. The main script is
//! read by C code, unless its path can be imported from, as a zip archive's can: so for one moment it can, and `runpy`
//! runs the text. Exit codes, Ctrl-C and tracebacks are then Python's own. A mark is left where the copy was taken, so
//! that a Python which ignores the variable is noticed; if the script on disk is no longer the one that was read,
//! nothing is replaced.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use lowtide_config::command::at_script;

use crate::inside::door::{Door, Moment, Part};
use crate::{ConfigCopy, KeepError, Launch};

const STAND_IN: &str = include_str!("../inside/script.py");
/// Written by `script.py` when the copy was taken.
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
        self.door().enter(launch, own);
    }

    /// Whether Python can be told of the folder.
    pub(crate) fn can_be_taken(&self) -> Result<(), KeepError> {
        let unlisted = || KeepError::Unlisted { folder: self.folder.clone() };
        self.door().can_be_listed().then_some(()).ok_or_else(unlisted)
    }

    fn door(&self) -> Door {
        Door { folder: self.folder.clone() }
    }

    /// Writes what Python reads at its start.
    fn write(&self, copy: &ConfigCopy) -> Result<(), KeepError> {
        self.can_be_taken()?;
        let real = |path: &Path| path.canonicalize().map_err(KeepError::file(path));
        let original = real(&copy.original)?;
        let now = fs::read(&original).map_err(KeepError::file(&original))?;
        if now != self.script.as_bytes() {
            return Err(KeepError::ScriptChanged { path: copy.original.clone() });
        }
        let paths = [original, real(&copy.path)?].map(|path| path.into_os_string().into_vec()).join(&0);
        let files = vec![("original", self.script.clone().into_bytes()), ("paths", paths)];
        self.door().write(&[Part { name: "script", moment: Moment::Start, text: STAND_IN, files }])
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
        let is_there = |stand_in: &StandIn| stand_in.door().folder_of(Moment::Start).join(USED).exists();
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
    use lowtide_config::command::split;

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
}
