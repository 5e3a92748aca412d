//! Scripts that are given to a shell in one word.

use std::ffi::{OsStr, OsString};
use std::path::Path;

use crate::KeepError;

const SHELLS: [&str; 5] = ["sh", "bash", "dash", "zsh", "ksh"];

/// What is wrong with `sh -c SCRIPT` where the script asks for no words of the command line: it does not get them.
pub(crate) fn deaf_script(command: &[OsString]) -> Option<KeepError> {
    let at = command.iter().position(|word| is_shell(word))?;
    let (shell, words) = command[at..].split_first()?;
    // Options come before it: `bash -l -o pipefail -c SCRIPT`.
    let is_before = |(index, word): &(usize, &OsString)| {
        word.as_encoded_bytes().starts_with(b"-") || (*index > 0 && words[index - 1] == "-o")
    };
    let mut options = words.iter().enumerate().take_while(is_before);
    let (index, option) = options.find(|(_, word)| takes_script(word))?;
    let script = words.get(index + 1)?.to_string_lossy().into_owned();
    let asks = script.match_indices('$').any(|(at, _)| {
        let after = script[at + 1..].trim_start_matches('{');
        after.starts_with(['@', '*']) || after.starts_with(|character: char| character.is_ascii_digit())
    });
    (!asks).then(|| KeepError::DeafScript { shell: format!("{} {}", shell.display(), option.display()), script })
}

fn is_shell(word: &OsStr) -> bool {
    Path::new(word).file_name().is_some_and(|name| SHELLS.iter().any(|shell| name == *shell))
}

/// `-c`, also among others as in `-ec`.
fn takes_script(word: &OsStr) -> bool {
    word.to_str().is_some_and(|word| word.starts_with('-') && !word.starts_with("--") && word.ends_with('c'))
}
