//! A folder by which parts of ours come into every Python that a command starts.
//!
//! The folder is first on `PYTHONPATH` and has a `sitecustomize.py`, `door.py` here, which Python reads at its start. It runs
//! the parts, each a Python file of its own, at once or when the command has imported a module, and then the sitecustomize that
//! Python would have read. A Python that reads no such file (`-I`, `-E`, `-S`) or is on another machine leaves no mark.
//!
//! A new part is a Python file beside this one and a [`Part`] that [`Inside::parts`](crate::Inside::parts) gives out.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::{env, fs};

use crate::{KeepError, Launch};

/// The variable by which Python looks for modules in further folders.
pub(crate) const PATHS: &str = "PYTHONPATH";
/// The name under which Python looks for what is to be read at its start.
const HOOK: &str = "sitecustomize.py";
const DOOR: &str = include_str!("door.py");
/// Written by the first Python that came through.
const SEEN: &str = "seen";

/// When a part is run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Moment {
    /// Before anything of the command.
    Start,
    /// When the command has imported this module, and never where it does not.
    After(&'static str),
}

/// A Python file that is run in every Python of a command, and what it reads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Part {
    /// The name of the file, without its ending.
    pub(crate) name: &'static str,
    pub(crate) moment: Moment,
    /// What it runs: Python 3.8 or newer, which imports nothing that the command has not.
    pub(crate) text: &'static str,
    /// Files that stand beside it, by name.
    pub(crate) files: Vec<(&'static str, Vec<u8>)>,
}

/// A folder for `PYTHONPATH`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Door {
    pub(crate) folder: PathBuf,
}

impl Door {
    /// Writes the folder with all that comes in by it.
    pub(crate) fn write(&self, parts: &[Part]) -> Result<(), KeepError> {
        for part in parts {
            let folder = self.folder_of(part.moment);
            fs::create_dir_all(&folder).map_err(KeepError::file(&folder))?;
            for (name, content) in &part.files {
                lowtide_disk::write(&folder.join(name), content)?;
            }
            lowtide_disk::write(&folder.join(part.name).with_extension("py"), part.text.as_bytes())?;
        }
        lowtide_disk::write(&self.folder.join(HOOK), DOOR.as_bytes())?;
        Ok(())
    }

    /// Where the parts of a moment are.
    pub(crate) fn folder_of(&self, moment: Moment) -> PathBuf {
        match moment {
            Moment::Start => self.folder.join("start"),
            Moment::After(module) => self.folder.join("after").join(module),
        }
    }

    /// Puts the folder before all others where the command looks for modules; `own` is what it has of its own.
    pub(crate) fn enter(&self, launch: &mut Launch, own: Option<OsString>) {
        if !self.can_be_listed() {
            return;
        }
        let folder = self.path().into_os_string();
        // A folder without a name is the one that the command runs in; a variable without a value names none.
        let joined = |rest: Option<&OsStr>| match rest.filter(|rest| !rest.is_empty()) {
            Some(rest) => [folder.as_os_str(), rest].join(OsStr::new(":")),
            None => folder.clone(),
        };
        // `env PYTHONPATH=src python train.py` has its own.
        for word in &mut launch.command {
            if let Some(rest) = word.as_bytes().strip_prefix(b"PYTHONPATH=") {
                *word = [OsStr::new(PATHS), &joined(Some(OsStr::from_bytes(rest)))].join(OsStr::new("="));
            }
        }
        // Another door may be there already, and what is set last counts.
        let set = launch.environment.iter_mut().find(|(name, _)| name == PATHS);
        match set {
            Some((_, value)) => *value = joined(Some(value)),
            None => launch.environment.push((PATHS.into(), joined(own.as_deref()))),
        }
    }

    /// Whether the folder can stand in `PYTHONPATH`, which has colons between folders.
    pub(crate) fn can_be_listed(&self) -> bool {
        env::join_paths([self.path()]).is_ok()
    }

    fn path(&self) -> PathBuf {
        std::path::absolute(&self.folder).unwrap_or_else(|_| self.folder.clone())
    }

    /// Removes the folder, where nothing was run.
    pub(crate) fn remove(&self) {
        // What stays is in nobody's way.
        let _ = fs::remove_dir_all(&self.folder);
    }

    /// Whether a Python came through.
    pub(crate) fn was_seen(&self) -> bool {
        self.folder.join(SEEN).exists()
    }
}

#[cfg(test)]
mod tests {
    use lowtide_config::command::{quoted, split};

    use super::*;

    #[test]
    fn the_folder_comes_first() {
        let entered = |text: &str, own: Option<&str>| {
            let command = split(text).unwrap().into_iter().map(OsString::from).collect();
            let mut launch = Launch { command, environment: Vec::new(), copies: Vec::new() };
            Door { folder: "/r/retry-1".into() }.enter(&mut launch, own.map(OsString::from));
            let first = launch.environment[0].1.clone().into_string().unwrap();
            Door { folder: "/r/inside-1".into() }.enter(&mut launch, own.map(OsString::from));
            assert_eq!(launch.environment, [(PATHS.into(), format!("/r/inside-1:{first}").into())]);
            (quoted(&launch.command), first)
        };
        assert_eq!(entered("python t.py", None), ("python t.py".to_owned(), "/r/retry-1".to_owned()));
        assert_eq!(entered("python t.py", Some("a:b")).1, "/r/retry-1:a:b");
        // Set and empty: Python itself would not look into the folder that it runs in.
        assert_eq!(entered("python t.py", Some("")).1, "/r/retry-1");
        assert_eq!(entered("env PYTHONPATH= python t.py", None).0, "env PYTHONPATH=/r/inside-1:/r/retry-1 python t.py");
        let words = "env PYTHONPATH=/r/inside-1:/r/retry-1:src python t.py";
        assert_eq!(entered("env PYTHONPATH=src python t.py", None).0, words);
    }

    #[test]
    fn a_folder_that_cannot_be_listed_takes_nothing_away() {
        let environment = vec![(PATHS.into(), "src".into())];
        let mut launch = Launch { command: vec!["python".into()], environment, copies: Vec::new() };
        Door { folder: "/runs/at 10:20".into() }.enter(&mut launch, None);
        assert_eq!(launch.environment, [(PATHS.into(), "src".into())]);
    }
}
