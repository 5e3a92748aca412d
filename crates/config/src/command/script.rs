//! Which word of a command line is the script that it runs.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use crate::python::is_name;

/// A command line as what launches a script, the script or its module included, and the script's own words; all are
/// its own where no script is named.
#[must_use]
pub fn at_script<W: AsRef<OsStr>>(command: &[W]) -> (&[W], &[W]) {
    let is_script = |at: &usize| is_python(command[*at].as_ref()) || is_module(command, *at);
    command.split_at((0..command.len()).find(is_script).map_or(0, |at| at + 1))
}

/// Programs that run a module by `-m`.
const INTERPRETERS: [&str; 6] = ["python", "pypy", "torchrun", "accelerate", "deepspeed", "uv"];
/// Modules that run a script of somebody else's.
const RUNNERS: [&str; 14] = [
    "torch.distributed",
    "accelerate",
    "deepspeed",
    "cProfile",
    "profile",
    "pdb",
    "ipdb",
    "trace",
    "coverage",
    "debugpy",
    "memray",
    "scalene",
    "viztracer",
    "memory_profiler",
];

/// Whether a word is the module that `python -m package.module` runs, and not one that runs others.
#[must_use]
pub fn is_module<W: AsRef<OsStr>>(command: &[W], at: usize) -> bool {
    let word = |at: usize| command[at].as_ref();
    if at == 0 || !matches!(word(at - 1).as_bytes(), b"-m" | b"--module") {
        return false;
    }
    let Some(name) = word(at).to_str().filter(|name| name.split('.').all(is_name)) else { return false };
    let is_interpreter = |word: &OsStr| {
        let name = Path::new(word).file_name().map(OsStr::as_bytes).unwrap_or_default();
        INTERPRETERS.iter().any(|interpreter| name.starts_with(interpreter.as_bytes()))
    };
    let is_runner = RUNNERS
        .iter()
        .any(|runner| name.strip_prefix(runner).is_some_and(|rest| rest.is_empty() || rest.starts_with('.')));
    !is_runner && (0..at).any(|before| is_interpreter(word(before)))
}

/// Whether a word names a Python file.
#[must_use]
pub fn is_python(word: &OsStr) -> bool {
    let path = Path::new(word);
    path.extension().is_some_and(|extension| extension == "py") && !word.as_bytes().starts_with(b"-")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::split;

    #[test]
    fn the_words_after_the_script_are_its_own() {
        let split_at = |text: &str| {
            let words = split(text).unwrap();
            let (launcher, own) = at_script(&words);
            (launcher.len(), own.len())
        };
        assert_eq!(split_at("python -u -m pkg.train cfg.py --n 2"), (4, 3));
        assert_eq!(split_at("torchrun --nproc_per_node 2 -m pkg.train -n 1"), (5, 2));
        assert_eq!(split_at("python -m torch.distributed.run --nproc_per_node 2 train.py -m 3"), (6, 2));
        assert_eq!(split_at("srun -m block python train.py"), (5, 0));
        assert_eq!(split_at("python train.py -m pkg"), (2, 2));
        assert_eq!(split_at("t -m pkg"), (0, 3));
    }
}
