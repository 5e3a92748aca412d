//! Colours: where a person reads, and nowhere else.

use std::io::Read;

use pty_process::blocking::{Command, open};

use crate::kit::sandbox;

const LOWTIDE: &str = env!("CARGO_BIN_EXE_lowtide");

/// What decides about colours beside the terminal itself. Continuous integration sets the last one.
const ASKED: [&str; 4] = ["NO_COLOR", "CLICOLOR", "CLICOLOR_FORCE", "CI"];

/// What a terminal is sent.
fn in_terminal(words: &[&str], variables: &[(&str, &str)]) -> String {
    let (mut terminal, far_side) = open().unwrap();
    let command = Command::new(LOWTIDE).args(words).env("TERM", "xterm");
    let command = ASKED.iter().fold(command, |command, name| command.env_remove(name));
    let mut child = command.envs(variables.iter().copied()).spawn(far_side).unwrap();
    let mut shown = Vec::new();
    let mut bytes = [0; 4096];
    // A terminal whose other side is gone is an error on Linux.
    while let Ok(count @ 1..) = terminal.read(&mut bytes) {
        shown.extend_from_slice(&bytes[..count]);
    }
    child.wait().unwrap();
    String::from_utf8(shown).unwrap()
}

#[test]
fn help_is_coloured_in_a_terminal() {
    assert!(in_terminal(&["train", "--help"], &[]).contains("\x1b[1m\x1b[36m--host-limit\x1b[0m"));
    for variables in [("NO_COLOR", "1"), ("TERM", "dumb")] {
        let shown = in_terminal(&["train", "--help"], &[variables]);
        assert!(shown.contains("--host-limit") && !shown.contains('\x1b'), "{variables:?}: {shown:?}");
    }
    assert!(!sandbox().says("train --help").contains('\x1b'));
}

#[test]
fn errors_and_hints_are_coloured_in_a_terminal() {
    let words = ["train", "train.py"];
    let shown = in_terminal(&words, &[]);
    assert!(shown.starts_with("\x1b[1m\x1b[31merror:\x1b[0m train.py: "), "{shown:?}");
    assert!(shown.contains("\x1b[1m\x1b[36mhint:\x1b[0m for a training script"), "{shown:?}");
    assert!(in_terminal(&words, &[("NO_COLOR", "1")]).starts_with("error: train.py: "));
    assert!(sandbox().refuses("train train.py").starts_with("error: train.py: "));
    // The parser's own.
    assert!(in_terminal(&["train", "--no-such"], &[]).starts_with("\x1b[1m\x1b[31merror:\x1b[0m "));
}
