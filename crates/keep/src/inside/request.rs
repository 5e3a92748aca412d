//! What is put into the Pythons of a command, as it was asked for.

use std::env;
use std::ffi::{OsStr, OsString};
use std::path::Path;

use lowtide_core::Bytes;
use lowtide_trainers::Access;

use crate::inside::door::Part;
use crate::inside::host_reserve;
use crate::{MemoryWatch, StartRecord, TrainerGuard};

/// What is put into the Pythons of a command, as it was asked for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Inside {
    /// What is written down when memory runs out.
    pub memory: MemoryWatch,
    /// Whether errors are undone inside of the process.
    pub guard: TrainerGuard,
    /// Host memory that PyTorch falls back on when a device is full, for each process.
    pub reserve: Option<Bytes>,
}

impl Inside {
    /// Whether nothing is put into them.
    #[must_use]
    pub fn is_nothing(self) -> bool {
        self.memory == MemoryWatch::Off && self.guard == TrainerGuard::Off && self.reserve.is_none()
    }

    /// The parts of the next start, after those that were, for a run that has this folder.
    pub(crate) fn parts(self, folder: &Path, starts: &[StartRecord]) -> Vec<Part> {
        let reserve = self.reserve.and_then(|bytes| host_reserve::part(bytes, folder, starts));
        self.memory.part(folder, starts).into_iter().chain(self.guard.parts()).chain(reserve).collect()
    }
}

/// Words by which a command line or a shell script shows that it starts a Python.
const SIGNS: [&str; 6] = ["python", "pypy", ".py", "torchrun", "accelerate", "deepspeed"];

/// Whether a command is Python, or a script that starts one, as far as its words and its program's text show it.
#[must_use]
pub fn is_python_command(command: &[OsString], access: &Access<'_>) -> bool {
    let shows = |text: &str| SIGNS.iter().any(|sign| text.contains(sign));
    if command.iter().any(|word| shows(&word.to_string_lossy())) {
        return true;
    }
    let scripts = command.iter().take(3).filter(|word| !word.as_encoded_bytes().starts_with(b"-"));
    scripts.filter_map(|word| text_of(word, access)).any(|text| text.starts_with("#!") && shows(&text))
}

/// The text of a program, which is in the folders of programs where its name has no path.
fn text_of(program: &OsStr, access: &Access<'_>) -> Option<String> {
    if program.as_encoded_bytes().contains(&b'/') {
        return (access.read)(Path::new(program));
    }
    let folders = (access.variable)("PATH")?;
    env::split_paths(&folders).find_map(|folder| (access.read)(&folder.join(program)))
}

#[cfg(test)]
mod tests {
    use lowtide_config::command::split;

    use super::*;

    #[test]
    fn commands_that_are_python() {
        let read = |path: &Path| match path.to_str()? {
            "./go.sh" => Some("#!/bin/sh\nsource env\npython3 train.py\n".to_owned()),
            "./other.sh" => Some("#!/bin/sh\n./trainer --fast\n".to_owned()),
            "/venv/bin/tune" => Some("#!/venv/bin/python3\nfrom torchtune import main\n".to_owned()),
            _ => None,
        };
        let variable = |name: &str| (name == "PATH").then(|| "/usr/bin:/venv/bin".into());
        let access = Access { variable: &variable, read: &read, cards: &|| 0 };
        let is_python = |text: &str| {
            let words: Vec<OsString> = split(text).unwrap().into_iter().map(OsString::from).collect();
            is_python_command(&words, &access)
        };
        for text in [
            "python train.py",
            "/opt/conda/bin/python3.11 -m pkg.train",
            "torchrun --nproc_per_node=2 train.py",
            "env A=1 python t.py",
            "sh -c 'cd src && python train.py'",
            "./go.sh",
            "bash ./go.sh",
            "tune run full",
            "./train.py",
        ] {
            assert!(is_python(text), "{text}");
        }
        for text in ["./other.sh", "sh -c 'echo hello'", "make all", "./mine --bs 32"] {
            assert!(!is_python(text), "{text}");
        }
    }
}
