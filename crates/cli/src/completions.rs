//! `lowtide completions`: what a shell needs to complete what is typed.

use std::process::ExitCode;

use clap::{Command, CommandFactory};
use clap_complete::aot::{self, generate};
use lowtide_args::{CompletionsArgs, Lowtide, Shell};

use crate::output::{print, report};

/// Bash is offered options for an empty word, where a person wants files; and hidden options, which are words of a list
/// there.
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
    let mut command = visible();
    let hidden: Vec<String> = command.get_subcommands().flat_map(hidden_options).collect();
    let generator = match shell {
        Shell::Bash => aot::Shell::Bash,
        Shell::Zsh => aot::Shell::Zsh,
        Shell::Fish => aot::Shell::Fish,
    };
    let mut script = Vec::new();
    generate(generator, &mut command, "lowtide", &mut script);
    let script = String::from_utf8(script).expect("made of our own texts");
    match shell {
        Shell::Bash => {
            let words: Vec<String> = hidden.iter().map(|name| format!("--{name}")).collect();
            script + &BASH_WRAPPER.replace("HIDDEN", &words.join(" "))
        }
        // A line for each option.
        Shell::Zsh => without_lines(&script, |line| {
            hidden.iter().any(|name| line.contains(&format!("--{name}=[")) || line.contains(&format!("--{name}[")))
        }),
        Shell::Fish => without_lines(&script, |line| hidden.iter().any(|name| line.contains(&format!(" -l {name} ")))),
    }
}

fn without_lines(text: &str, is_out: impl Fn(&str) -> bool) -> String {
    text.split_inclusive('\n').filter(|line| !is_out(line)).collect()
}

/// The program with the commands that help lists.
fn visible() -> Command {
    let commands = Lowtide::command();
    let listed = commands.get_subcommands().filter(|command| !command.is_hide_set()).cloned();
    Command::new("lowtide").version(env!("CARGO_PKG_VERSION")).subcommands(listed)
}

fn hidden_options(command: &Command) -> Vec<String> {
    let options = command.get_arguments().filter(|arg| arg.is_hide_set()).filter_map(|arg| arg.get_long());
    options.map(str::to_owned).collect()
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
    fn nothing_is_offered_that_help_does_not_list() {
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
            let script = script(shell);
            assert!(script.contains("explain") && !script.contains("manual pages"), "{shell:?}");
            let mentions = script.matches("with-parent").count();
            // Of bash they are kept away when it is asked.
            assert_eq!(mentions > 0, shell == Shell::Bash, "{shell:?}");
        }
        assert!(script(Shell::Bash).contains("case \" --root --with-parent \" in"));
    }
}
