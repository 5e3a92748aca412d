//! `lowtide top` in a pseudo-terminal.

use std::process::Command;

use insta::assert_snapshot;

use super::kit::Written;
use crate::kit::sandbox;

#[test]
fn it_draws_and_ends_by_a_key() {
    let place = sandbox();
    let mut run = Written::begin(&place.path("mine"));
    run.steps(6);
    run.run_out();
    run.steps(2);
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/watching/in_terminal.py");
    for (columns, rows, key) in [("60", "24", "q"), ("200", "50", "ctrl-c")] {
        let mut command = Command::new("timeout");
        command.args([
            "60",
            "python3",
            script,
            columns,
            rows,
            "happened",
            key,
            env!("CARGO_BIN_EXE_lowtide"),
            "top",
            "mine",
        ]);
        let output = command.current_dir(place.path("")).output().unwrap();
        let shown = String::from_utf8_lossy(&output.stdout);
        assert_eq!(output.status.code(), Some(0), "{shown}");
        assert!(shown.contains("memory") && shown.contains("64.00"), "{shown}");
        // The screen from before is put back.
        assert!(shown.contains("\u{1b}[?1049h") && shown.contains("\u{1b}[?1049l"), "{shown}");
    }
}

#[test]
fn a_process_is_shown_too() {
    let place = sandbox();
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/watching/in_terminal.py");
    // Not ourselves: other tests of this process may hold runs, and those would be shown instead.
    let mut process = Command::new("sleep").arg("300").spawn().unwrap();
    for (columns, rows) in [("60", "24"), ("200", "50")] {
        let mut command = Command::new("timeout");
        let (lowtide, pid) = (env!("CARGO_BIN_EXE_lowtide"), process.id().to_string());
        command.args(["60", "python3", script, columns, rows, "holds memory now", "q", lowtide, "top", "--pid", &pid]);
        let output = command.current_dir(place.path("")).output().unwrap();
        let shown = String::from_utf8_lossy(&output.stdout);
        assert_eq!(output.status.code(), Some(0), "{shown}");
        assert!(shown.contains("in RAM") && shown.contains("host"), "{shown}");
    }
    process.kill().unwrap();
    process.wait().unwrap();
}

/// Closes its terminal, or sends a signal, once the screen is drawn, and prints how it ended.
const END: &str = r#"
import os, pty, signal, sys, time
child, terminal = pty.fork()
if child == 0:
    os.environ["TERM"] = "xterm-256color"
    os.execv(sys.argv[2], sys.argv[2:])
shown = b""
while b"\x1b[?1049h" not in shown:
    shown += os.read(terminal, 65536)
time.sleep(0.5)
if sys.argv[1] == "close":
    os.close(terminal)
else:
    os.kill(child, signal.SIGTERM)
for _ in range(1000):
    ended, status = os.waitpid(child, os.WNOHANG)
    if ended:
        sys.exit(os.waitstatus_to_exitcode(status))
    time.sleep(0.01)
os.kill(child, signal.SIGKILL)
sys.exit(99)
"#;

#[test]
fn it_ends_with_its_terminal_and_by_sigterm() {
    let place = sandbox();
    Written::begin(&place.path("mine")).steps(2);
    for how in ["close", "term"] {
        let mut command = Command::new("timeout");
        command.args(["60", "python3", "-c", END, how, env!("CARGO_BIN_EXE_lowtide"), "top", "mine"]);
        let output = command.current_dir(place.path("")).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{how}: {output:?}");
    }
}

#[test]
fn without_a_terminal_it_says_so() {
    let place = sandbox();
    Written::begin(&place.path("mine"));
    assert_snapshot!(place.refuses("top mine"), @r"
    error: this is no terminal
    hint: `lowtide watch` shows the same in a browser, `lowtide report` writes it to a file
    ");
}
