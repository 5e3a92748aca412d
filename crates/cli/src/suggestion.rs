//! What was probably meant by words that no command takes.

use std::ffi::{OsStr, OsString};
use std::path::Path;

use lowtide_config::command::{is_python, quoted};

use crate::output::Failure;
use crate::run::without_dashes;

/// Programs that start a training script.
const LAUNCHERS: [&str; 4] = ["torchrun", "accelerate", "deepspeed", "srun"];

/// What to type instead; `None` where something else is wrong, and the parser says it best.
pub(crate) fn of(words: &[OsString]) -> Option<Failure> {
    let (command, after) = words.split_first()?;
    match command.to_str() {
        Some("run") => without_dashes(after),
        Some("train") => script(after),
        _ => instead_of_command(words),
    }
}

/// A Python script in the place of a configuration, which is for `lowtide run`.
pub(crate) fn script(words: &[OsString]) -> Option<Failure> {
    let first = words.iter().position(|word| !word.as_encoded_bytes().starts_with(b"-"))?;
    let python = python_before(&words[first])?;
    let text = format!("{}: lowtide train takes a configuration of its own, in YAML", words[first].display());
    let hint = format!("for a training script of yours: lowtide run -- {python}{}", quoted(&words[first..]));
    Some(Failure::bad_input(text, Some(hint)))
}

/// A file, or another program, in the place of a command.
fn instead_of_command(words: &[OsString]) -> Option<Failure> {
    let first = &words[0];
    let refused = |hint: String| {
        Some(Failure::bad_input(format!("{}: this is no command of lowtide", first.display()), Some(hint)))
    };
    if first.to_str().is_some_and(|name| LAUNCHERS.contains(&name)) {
        return refused(format!("to run it and to keep it alive: lowtide run -- {}", quoted(words)));
    }
    if let Some(python) = python_before(first) {
        return refused(format!("to run it and to keep it alive: lowtide run -- {python}{}", quoted(words)));
    }
    let path = Path::new(first);
    if !path.is_file() {
        return None;
    }
    match path.extension().and_then(OsStr::to_str) {
        Some("yaml" | "yml") => refused(format!("to train what it configures: lowtide train {}", quoted(words))),
        _ => refused(format!("to see why a run ended, from its log: lowtide explain {}", quoted(words))),
    }
}

/// What stands before a word that is Python's to run: nothing before an interpreter; `None` where it is neither.
fn python_before(word: &OsStr) -> Option<&'static str> {
    if word.to_str().is_some_and(|word| word.starts_with("python")) {
        return Some("");
    }
    is_python(word).then_some("python ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meant(text: &str) -> Option<String> {
        let words: Vec<OsString> = text.split(' ').map(OsString::from).collect();
        of(&words)?.hint
    }

    #[test]
    fn a_training_script_is_for_run() {
        let train = "for a training script of yours: lowtide run -- python train.py --lr 3";
        assert_eq!(meant("train train.py --lr 3").as_deref(), Some(train));
        assert_eq!(meant("train --json python3 train.py --lr 3"), Some(train.replace("python", "python3")));
        let alive = |command: &str| Some(format!("to run it and to keep it alive: lowtide run -- {command}"));
        assert_eq!(meant("train.py --lr 3"), alive("python train.py --lr 3"));
        assert_eq!(meant("python train.py"), alive("python train.py"));
        assert_eq!(meant("torchrun --nproc_per_node 2 t.py"), alive("torchrun --nproc_per_node 2 t.py"));
        assert_eq!(meant("run python t.py").as_deref(), Some("lowtide run -- python t.py"));
    }

    #[test]
    fn a_file_is_for_the_command_that_takes_it() {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str| {
            let path = folder.path().join(name);
            std::fs::write(&path, "").unwrap();
            path.to_str().unwrap().to_owned()
        };
        let (log, config) = (file("out.log"), file("mine.yaml"));
        let explain = format!("to see why a run ended, from its log: lowtide explain {log}");
        assert_eq!(meant(&log), Some(explain));
        assert_eq!(meant(&config), Some(format!("to train what it configures: lowtide train {config}")));
    }

    #[test]
    fn a_misspelt_command_is_left_to_the_parser() {
        assert_eq!(meant("trian"), None);
        assert_eq!(meant("train --no-such"), None);
        assert_eq!(meant("train mine.yaml --no-such"), None);
        assert_eq!(meant("-v"), None);
    }
}
