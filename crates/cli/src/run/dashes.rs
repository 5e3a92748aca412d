//! `lowtide run python train.py`: a command without the `--` before it.

use std::ffi::{OsStr, OsString};

use clap::{Arg, Args, Command};
use lowtide_args::RunArgs;
use lowtide_config::command::quoted;

use crate::output::Failure;

/// What was meant by words after `lowtide run` that have no `--` among them; `None` where something else is wrong.
pub(crate) fn without_dashes(words: &[OsString]) -> Option<Failure> {
    if words.iter().any(|word| word == "--") {
        return None;
    }
    let known = RunArgs::augment_args(Command::new("run"));
    let mut at = 0;
    while words.get(at)?.as_encoded_bytes().starts_with(b"-") {
        at += length(&known, &words[at])?;
    }
    let (own, command) = words.split_at(at);
    let meant: Vec<&OsStr> = ["lowtide", "run"]
        .map(OsStr::new)
        .into_iter()
        .chain(own.iter().map(|word| &**word))
        .chain([OsStr::new("--")])
        .chain(command.iter().map(|word| &**word))
        .collect();
    let text = "the command to run stands after `--`".to_owned();
    Some(Failure::bad_input(text, Some(quoted(&meant))))
}

/// How many words an option takes, itself included; `None` where it is none of ours.
fn length(known: &Command, word: &OsStr) -> Option<usize> {
    let word = word.to_str()?;
    let name = word.split('=').next()?;
    let is_it = |arg: &&Arg| match name.strip_prefix("--") {
        Some(long) => {
            arg.get_long() == Some(long) || arg.get_all_aliases().is_some_and(|others| others.contains(&long))
        }
        None => arg.get_short().is_some_and(|short| name == format!("-{short}")),
    };
    let takes_values = known.get_arguments().find(is_it)?.get_action().takes_values();
    Some(if takes_values && !word.contains('=') { 2 } else { 1 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_meant() {
        let meant = |text: &str| {
            let words: Vec<OsString> = text.split(' ').map(OsString::from).collect();
            without_dashes(&words)?.hint
        };
        let told = |text: &str| Some(text.to_owned());
        assert_eq!(meant("python train.py"), told("lowtide run -- python train.py"));
        assert_eq!(
            meant("-q --batch 4 --out=x --shrink-batch python train.py --bs 3"),
            told("lowtide run -q --batch 4 --out=x --shrink-batch -- python train.py --bs 3")
        );
        assert_eq!(meant("--rung a={micro} ./t"), told("lowtide run --rung 'a={micro}' -- ./t"));
        assert_eq!(meant("--batch x -- python"), None);
        assert_eq!(meant("--no-such python"), None);
        assert_eq!(meant("--dry-run"), None);
    }
}
