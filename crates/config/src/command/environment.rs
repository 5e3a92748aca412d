//! Variables that a command line sets for the program behind them.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use super::script::at_script;

/// Options of `env` whose value is the next word.
const WITH_VALUE: [&str; 6] = ["-u", "--unset", "-C", "--chdir", "-S", "--split-string"];

/// The word that sets a variable for the program of a command line, the last of several: in `env BATCH=8 python train.py` the
/// second, for `BATCH`.
#[must_use]
pub fn sets<W: AsRef<OsStr>>(command: &[W], name: &str) -> Option<usize> {
    let launcher = match at_script(command).0.len() {
        0 => program_behind_env(command)?,
        length => length,
    };
    let begins =
        |word: &W| word.as_ref().as_bytes().strip_prefix(name.as_bytes()).is_some_and(|it| it.starts_with(b"="));
    command[..launcher].iter().rposition(begins)
}

/// What a command line sets a variable to.
#[must_use]
pub fn set_value<'a, W: AsRef<OsStr>>(command: &'a [W], name: &str) -> Option<&'a OsStr> {
    let word = command[sets(command, name)?].as_ref();
    Some(OsStr::from_bytes(&word.as_bytes()[name.len() + 1..]))
}

/// Where the program stands that `env` starts.
fn program_behind_env<W: AsRef<OsStr>>(command: &[W]) -> Option<usize> {
    let is_env = |word: &W| Path::new(word.as_ref()).file_name().is_some_and(|name| name == "env");
    let mut at = command.iter().position(is_env)? + 1;
    while let Some(word) = command.get(at).map(AsRef::as_ref) {
        if WITH_VALUE.iter().any(|option| word == *option) {
            at += 1;
        } else if !word.as_bytes().starts_with(b"-") && !word.as_bytes().contains(&b'=') {
            break;
        }
        at += 1;
    }
    Some(at.min(command.len()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::split;

    #[test]
    fn what_stands_before_the_program() {
        for (command, expected) in [
            ("env BS=8 python train.py BS=4", Some("8")),
            ("BS=1 env A=2 BS=8 torchrun -n 2 train.py", Some("8")),
            ("env -i -u BS BS=8 ./train --x BS=4", Some("8")),
            ("env A=1 ./train BS=4", None),
            ("./train BS=4", None),
            ("sudo BS=3 python train.py", Some("3")),
            ("env BS= ./train", Some("")),
            ("env BSX=3 ./train", None),
            ("env -u", None),
        ] {
            let words = split(command).unwrap();
            assert_eq!(set_value(&words, "BS").map(|it| it.to_str().unwrap()), expected, "{command}");
        }
    }
}
