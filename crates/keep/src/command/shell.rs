//! Scripts of a shell: given to it in one word, or in a file with the training command in it.

use std::ffi::{OsStr, OsString};
use std::path::Path;

use lowtide_trainers::{Access, Key, key_of_option};

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

/// A training command in the file of a shell's script.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InShell {
    /// The file.
    pub script: String,
    /// The line that begins the command, from 1.
    pub line: usize,
    /// That line with `lowtide run --` before the program.
    pub kept: String,
    /// Variables with defaults that the file has for the batch and the accumulation, with the numbers.
    pub variables: Option<[(String, u64); 2]>,
}

/// Programs that train.
const TRAINING: [&str; 4] = ["python", "torchrun", "accelerate", "deepspeed"];

impl InShell {
    /// What the file of a shell's script has that the command runs.
    pub(crate) fn find(command: &[OsString], access: &Access<'_>) -> Option<Self> {
        let (first, rest) = command.split_first()?;
        let file = match is_shell(first) {
            true => rest.first().filter(|word| !word.as_encoded_bytes().starts_with(b"-"))?,
            false => first,
        };
        let text = (access.read)(Path::new(file))?;
        let is_its = is_shell(first) || Path::new(file).extension().is_some_and(|it| it == "sh");
        let is_its = is_its || text.lines().next().is_some_and(|line| line.starts_with("#!") && line.ends_with("sh"));
        let mut kept = text.lines().enumerate().filter_map(|(index, line)| Some((index + 1, with_us(line)?)));
        let (line, kept) = kept.next().filter(|_| is_its)?;
        let variables = default_of(&text, Key::Batch).zip(default_of(&text, Key::Accumulation));
        let script = file.to_string_lossy().into_owned();
        Some(Self { script, line, kept, variables: variables.map(|(micro, accum)| [micro, accum]) })
    }
}

/// A line that runs a training program, with `lowtide run --` before it.
fn with_us(line: &str) -> Option<String> {
    let line = line.trim();
    let mut at = 0;
    for word in line.split_whitespace() {
        let start = at + line[at..].find(word)?;
        at = start + word.len();
        if word.contains('=') && !word.starts_with('-') || ["exec", "time", "nohup"].contains(&word) {
            continue;
        }
        let program = word.rsplit('/').next().unwrap_or(word);
        let is_other = [" -c ", " -m pip", " -V", " --version"].iter().any(|words| line[start..].contains(words));
        let is_it = TRAINING.iter().any(|it| program.starts_with(it)) && line[at..].contains(' ') && !is_other;
        return is_it.then(|| format!("{}lowtide run -- {}", &line[..start], &line[start..]));
    }
    None
}

/// A variable that is about a number and has a default: `${BATCH:-64}`.
fn default_of(text: &str, key: Key) -> Option<(String, u64)> {
    text.split("${").skip(1).find_map(|rest| {
        let (name, rest) = rest.split_once(['-', '='])?;
        let name = name.trim_end_matches(':');
        let number = rest.split('}').next()?.parse().ok()?;
        (key_of_option(name) == Some(key)).then(|| (name.to_owned(), number))
    })
}

fn is_shell(word: &OsStr) -> bool {
    Path::new(word).file_name().is_some_and(|name| SHELLS.iter().any(|shell| name == *shell))
}

/// `-c`, also among others as in `-ec`.
fn takes_script(word: &OsStr) -> bool {
    word.to_str().is_some_and(|word| word.starts_with('-') && !word.starts_with("--") && word.ends_with('c'))
}

#[cfg(test)]
mod tests {
    use lowtide_config::command::split;

    use super::*;

    fn found(command: &str, text: &str) -> Option<InShell> {
        let command: Vec<OsString> = split(command).unwrap().into_iter().map(OsString::from).collect();
        let file = |path: &Path| path.ends_with("train.sh").then(|| text.to_owned());
        InShell::find(&command, &Access { variable: &|_| None, read: &file, cards: &|| 0 })
    }

    #[test]
    fn the_training_command_in_a_file() {
        let text = "#!/bin/bash\nB=${BATCH:-64}\npython -m pip install x\nCUDA_VISIBLE_DEVICES=0 python3 train.py --bs $B \\\n  --x 1\n";
        let kept = "CUDA_VISIBLE_DEVICES=0 lowtide run -- python3 train.py --bs $B \\";
        for command in ["bash train.sh", "./train.sh", "bash jobs/train.sh --lr 3"] {
            let it = found(command, text).unwrap();
            assert_eq!((it.line, &*it.kept, it.variables), (4, kept, None), "{command}");
        }
        let both = text.replace("--x 1", "--accum ${ACCUM:-1}");
        let variables = found("sh train.sh", &both).unwrap().variables.unwrap();
        assert_eq!(variables, [("BATCH".to_owned(), 64), ("ACCUM".to_owned(), 1)]);
        for (command, text) in [("bash -c 'python t.py'", text), ("bash train.sh", "make\n"), ("cat train.sh", text)] {
            assert_eq!(found(command, text), None, "{command}");
        }
    }
}
