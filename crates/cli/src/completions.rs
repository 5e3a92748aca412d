//! `lowtide completions`: what a shell needs to complete what is typed.

use std::process::ExitCode;

use clap::{Command, CommandFactory};
use clap_complete::aot::{self, generate};
use lowtide_args::{CompletionsArgs, Lowtide, Shell};

use crate::output::{print, report};

/// Bash is offered options for an empty word, where a person wants files; and what is hidden, which the other shells
/// are not.
const BASH_WRAPPER: &str = r#"
_lowtide_shown() {
    _lowtide "$@"
    local word words=("${COMPREPLY[@]}") are_options=1
    COMPREPLY=()
    for word in "${words[@]}"; do
        case " HIDDEN " in *" $word "*) continue ;; esac
        [[ $word == -* ]] || are_options=0
        COMPREPLY+=("$word")
    done
    [[ -z $2 && $are_options == 1 ]] && COMPREPLY=()
    return 0
}
complete -F _lowtide_shown -o bashdefault -o default lowtide
"#;

pub(crate) fn run(args: &CompletionsArgs) -> ExitCode {
    report(print(&script(args.shell)))
}

fn script(shell: Shell) -> String {
    let (generator, after) = match shell {
        Shell::Bash => {
            let mut hidden = Vec::new();
            hidden_words(&Lowtide::command(), &mut hidden);
            (aot::Shell::Bash, BASH_WRAPPER.replace("HIDDEN", &hidden.join(" ")))
        }
        Shell::Zsh => (aot::Shell::Zsh, String::new()),
        Shell::Fish => (aot::Shell::Fish, String::new()),
    };
    let mut script = Vec::new();
    generate(generator, &mut Lowtide::command(), "lowtide", &mut script);
    String::from_utf8(script).expect("made of our own texts") + &after
}

/// The commands and options that help does not list either.
fn hidden_words(command: &Command, words: &mut Vec<String>) {
    let options = command.get_arguments().filter(|arg| arg.is_hide_set()).filter_map(|arg| arg.get_long());
    words.extend(options.map(|name| format!("--{name}")));
    for inner in command.get_subcommands() {
        if inner.is_hide_set() {
            words.push(inner.get_name().to_owned());
        }
        hidden_words(inner, words);
    }
}

#[cfg(test)]
mod tests {
    use lowtide_core::printable_lines;

    use super::*;

    #[test]
    fn what_is_printed_is_what_was_made() {
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
            let script = script(shell);
            assert_eq!(printable_lines(&script), script, "{shell:?}");
        }
    }

    #[test]
    fn bash_is_told_what_is_hidden() {
        let mut hidden = Vec::new();
        hidden_words(&Lowtide::command(), &mut hidden);
        hidden.sort();
        assert_eq!(hidden, ["--root", "--with-parent", "man"]);
    }
}
