//! A folder with scripts, and `lowtide run` as it is started.

use std::fs;
use std::ops::Deref;
use std::process::Command;
use std::thread::sleep;
use std::time::Duration;

use lowtide_testkit::{Printout, Sandbox};
use serde_json::Value;

/// A folder to work in.
pub(crate) struct Place(Sandbox);

impl Deref for Place {
    type Target = Sandbox;

    fn deref(&self) -> &Sandbox {
        &self.0
    }
}

impl Place {
    pub(crate) fn new() -> Place {
        // A shell starts jobs in the background with Ctrl-C ignored, and whoever runs these tests may be such a job:
        // `env` starts the program with its signals as they should be.
        Place(Sandbox::new("env"))
    }

    /// A folder with one script in it.
    pub(crate) fn with(name: &str, text: &str) -> Place {
        let place = Place::new();
        place.write(name, text);
        place
    }

    pub(crate) fn command(&self, words: &[&str]) -> Command {
        let mut command = self.0.command("--default-signal=INT,QUIT");
        command.args([env!("CARGO_BIN_EXE_lowtide"), "run"]).args(words);
        for name in ["PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF", "PYTHONUNBUFFERED"] {
            command.env_remove(name);
        }
        command
    }

    pub(crate) fn run(&self, words: &[&str]) -> Printout {
        Printout::of(self.command(words).output().unwrap())
    }

    /// The story of the run in a folder.
    pub(crate) fn story(&self, folder: &str) -> Value {
        self.json(&format!("{folder}/summary.json"))
    }

    /// Waits until a file is there, and gives its text.
    pub(crate) fn await_text(&self, name: &str) -> String {
        for _ in 0..3000 {
            match fs::read_to_string(self.path(name)) {
                Ok(text) if text.ends_with('\n') => return text,
                _ => sleep(Duration::from_millis(10)),
            }
        }
        panic!("{name} is not written");
    }
}

/// The lines on standard error that are the command's own.
pub(crate) fn own_err(printout: &Printout) -> Vec<&str> {
    printout.stderr.lines().filter(|line| !line.starts_with("lowtide: ")).collect()
}

/// Whether a process is there and has not ended.
pub(crate) fn lives(pid: &str) -> bool {
    let stat = fs::read_to_string(format!("/proc/{}/stat", pid.trim())).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X']))
}

pub(crate) fn signal(name: &str, pid: u32) {
    let sent = Command::new("sh").args(["-c", &format!("kill -{name} {pid}")]).status().unwrap();
    assert!(sent.success());
}
