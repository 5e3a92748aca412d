//! A shell in a terminal, as a person has it: keys go in, and what is shown comes out.

use std::env;
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::path::Path;
use std::process::Child;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use lowtide_testkit::Sandbox;
use pty_process::Size;
use pty_process::blocking::{Pty, open};

use crate::kit::sandbox;

/// What is not shown by then will not be.
const PATIENCE: Duration = Duration::from_secs(20);
const PROMPT: &str = "ready> ";

/// A shell that knows what `lowtide completions` says, in a folder of its own.
pub(crate) struct Shell {
    child: Child,
    terminal: Pty,
    output: Receiver<Vec<u8>>,
    shown: String,
    place: Sandbox,
}

impl Shell {
    pub(crate) fn bash() -> Shell {
        let place = prepared("bash", "lowtide.bash");
        place.write("rc", format!("PS1='{PROMPT}'\nbind 'set bell-style none'\n. ./lowtide.bash\n"));
        Shell::start(place, "bash", &["--noprofile", "--rcfile", "rc", "-i"])
    }

    pub(crate) fn zsh() -> Shell {
        let place = prepared("zsh", "_lowtide");
        place.write(
            ".zshrc",
            format!("PS1='{PROMPT}'\nsetopt no_beep\nfpath=($PWD $fpath)\nautoload -U compinit\ncompinit -u -D\n"),
        );
        Shell::start(place, "zsh", &["-i"])
    }

    fn start(place: Sandbox, program: &str, words: &[&str]) -> Shell {
        let (terminal, far_side) = open().unwrap();
        terminal.resize(Size::new(50, 120)).unwrap();
        let programs = Path::new(env!("CARGO_BIN_EXE_lowtide")).parent().unwrap();
        let path = format!("{}:{}", programs.display(), env::var("PATH").unwrap());
        let command = pty_process::blocking::Command::new(program)
            .args(words)
            .current_dir(place.folder())
            .env("PATH", path)
            .env("TERM", "dumb")
            .env("ZDOTDIR", place.folder())
            .env("HOME", place.folder());
        let child = command.spawn(far_side).unwrap();
        let (sender, output) = mpsc::channel();
        let mut reader = File::from(terminal.as_fd().try_clone_to_owned().unwrap());
        thread::spawn(move || {
            let mut bytes = [0; 4096];
            // A terminal whose other side is gone is an error on Linux.
            while let Ok(count) = reader.read(&mut bytes) {
                if count == 0 || sender.send(bytes[..count].to_vec()).is_err() {
                    return;
                }
            }
        });
        let mut shell = Shell { child, terminal, output, shown: String::new(), place };
        shell.wait_for(PROMPT);
        shell
    }

    /// The folder that it stands in.
    pub(crate) fn place(&self) -> &Sandbox {
        &self.place
    }

    /// Types keys, and waits until all of these are shown since then; the line is thrown away after.
    #[track_caller]
    pub(crate) fn completes(&mut self, keys: &str, expect: &[&str]) {
        self.shown.clear();
        self.terminal.write_all(keys.as_bytes()).unwrap();
        expect.iter().for_each(|part| self.wait_for(part));
        self.shown.clear();
        // Ctrl-U and Enter, after which both shells ask again. Ctrl-C may be ignored, as tests in the background do.
        self.terminal.write_all(b"\x15\r").unwrap();
        self.wait_for(PROMPT);
    }

    #[track_caller]
    fn wait_for(&mut self, part: &str) {
        let begun = Instant::now();
        while !self.shown.contains(part) {
            let left = PATIENCE.saturating_sub(begun.elapsed());
            match self.output.recv_timeout(left) {
                Ok(bytes) => self.shown.push_str(&String::from_utf8_lossy(&bytes)),
                Err(RecvTimeoutError::Timeout) => panic!("{part:?} was not shown: {:?}", self.shown),
                Err(RecvTimeoutError::Disconnected) => panic!("the shell is gone: {:?}", self.shown),
            }
        }
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A folder with the completions for a shell in a file.
fn prepared(shell: &str, file: &str) -> Sandbox {
    let place = sandbox();
    let script = place.says(&format!("completions {shell}"));
    place.write(file, script);
    place
}
