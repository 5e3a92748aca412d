//! What is typed, and what a shell makes of it.

use super::shell::Shell;

const TAB: &str = "\t";

fn typed(keys: &str) -> String {
    format!("{keys}{TAB}")
}

fn typed_twice(keys: &str) -> String {
    format!("{keys}{TAB}{TAB}")
}

/// Types beginnings of words, and looks for their ends.
#[track_caller]
pub(crate) fn check(shell: &mut Shell) {
    shell.place().write("crashed.log", "");
    shell.place().write("mine.yaml", "");
    shell.place().write("folder/inside", "");
    shell.completes(&typed("lowtide expl"), &["lowtide explain "]);
    shell.completes(&typed("lowtide explain --comm"), &["--command"]);
    shell.completes(&typed("lowtide explain cra"), &["explain crashed.log"]);
    shell.completes(&typed("lowtide train mi"), &["train mine.yaml"]);
    shell.completes(&typed("lowtide train mine.yaml --host"), &["--host-limit"]);
    shell.completes(&typed("lowtide train --out fol"), &["--out folder/"]);
    shell.completes(&typed("lowtide run --preset nano"), &["--preset nanogpt"]);
    shell.completes(&typed("lowtide run --dry-run -- cat cra"), &["-- cat crashed.log"]);
    shell.completes(&typed("lowtide generate sco"), &["generate scoring "]);
    shell.completes(&typed("lowtide generate scoring --format pkl."), &["--format pkl.gz"]);
    shell.completes(&typed("lowtide completions zs"), &["completions zsh"]);
    shell.completes(&typed("lowtide help doc"), &["help doctor"]);
    // What help does not list is not offered: there is a hidden command that begins so.
    shell.completes("lowtide ma\t#end", &["lowtide ma#end"]);
    shell.completes(&typed_twice("lowtide "), &["completions", "doctor", "explain", "generate", "watch"]);
}

#[test]
fn bash_completes() {
    let mut shell = Shell::bash();
    check(&mut shell);
    // Files, not options.
    shell.completes(&typed_twice("lowtide explain "), &["crashed.log"]);
    // One option is hidden, and then none begins like this.
    shell.completes("lowtide doctor --ro\t#end", &["lowtide doctor --ro#end"]);
}
