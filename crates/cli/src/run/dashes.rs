//! `lowtide run python train.py`: a command without the `--` before it.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::fs::PermissionsExt;

use clap::{Arg, Args, Command};
use lowtide_args::RunArgs;
use lowtide_config::command::{is_python, quoted};

use crate::output::Failure;

/// What was meant by words after `lowtide run` that have no `--` among them, or an option of training before it; `None`
/// where something else is wrong.
pub(crate) fn without_dashes(words: &[OsString]) -> Option<Failure> {
    let known = RunArgs::augment_args(Command::new("run"));
    if matches!(words, [] | [_]) && words.first().is_none_or(|word| word == "--") {
        let text = "no command to run is given".to_owned();
        return Some(Failure::bad_input(text, Some("lowtide run -- python train.py".to_owned())));
    }
    let mut at = 0;
    while words.get(at)?.as_encoded_bytes().starts_with(b"-") && words[at] != "--" {
        if let Some(flag) = limit_of_training(&words[at]) {
            let text =
                format!("{flag} is for `lowtide train`: the memory of a command is for its own framework to limit");
            let hint = "in PyTorch, torch.cuda.set_per_process_memory_fraction(0.5) is half of the card".to_owned();
            return Some(Failure::bad_input(text, Some(hint)));
        }
        at += length(&known, &words[at])?;
    }
    if words.iter().any(|word| word == "--") {
        return None;
    }
    let (own, command) = words.split_at(at);
    let meant: Vec<&OsStr> = ["lowtide", "run"]
        .map(OsStr::new)
        .into_iter()
        .chain(own.iter().map(|word| &**word))
        .chain([OsStr::new("--")])
        .chain(command.first().filter(|word| is_bare_script(word)).map(|_| OsStr::new("python")))
        .chain(command.iter().map(|word| &**word))
        .collect();
    let text = "the command to run stands after `--`".to_owned();
    Some(Failure::bad_input(text, Some(quoted(&meant))))
}

/// Whether a word names a Python script that cannot be run by itself.
pub(super) fn is_bare_script(word: &OsStr) -> bool {
    let is_executable = |word: &OsStr| {
        let has_folder = word.as_encoded_bytes().contains(&b'/');
        has_folder && fs::metadata(word).is_ok_and(|metadata| metadata.permissions().mode() & 0o111 != 0)
    };
    is_python(word) && !is_executable(word)
}

/// The memory limits of `lowtide train`, which have no meaning for a command.
fn limit_of_training(word: &OsStr) -> Option<&'static str> {
    let name = word.to_str()?.split('=').next()?;
    ["--limit", "--host-limit"].into_iter().find(|flag| *flag == name)
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
        assert_eq!(meant("train.py --bs 3"), told("lowtide run -- python train.py --bs 3"));
        assert_eq!(meant("-q ./no-such.py"), told("lowtide run -q -- python ./no-such.py"));
        assert_eq!(without_dashes(&[]).and_then(|it| it.hint), told("lowtide run -- python train.py"));
        assert_eq!(meant("--"), told("lowtide run -- python train.py"));
        assert_eq!(meant("--batch x -- python"), None);
        assert_eq!(meant("--no-such python"), None);
        assert_eq!(meant("--dry-run"), None);
        let of_training = meant("-q --limit 8GiB -- python train.py");
        assert!(of_training.is_some_and(|hint| hint.contains("set_per_process_memory_fraction")));
        assert_eq!(meant("-q -- python train.py --limit 3"), None);
    }
}
