//! A folder with scripts, and the program as it is started.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::thread::sleep;
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;

/// A folder to work in.
pub(crate) struct Place(TempDir);

impl Place {
    pub(crate) fn new() -> Place {
        Place(tempfile::tempdir().unwrap())
    }

    /// A folder with one script in it.
    pub(crate) fn with(name: &str, text: &str) -> Place {
        let place = Place::new();
        fs::write(place.path(name), text).unwrap();
        place
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub(crate) fn command(&self, words: &[&str]) -> Command {
        // A shell starts jobs in the background with Ctrl-C ignored, and whoever runs these tests may be such a job.
        let mut command = Command::new("env");
        command.args(["--default-signal=INT,QUIT", env!("CARGO_BIN_EXE_lowtide"), "run"]);
        command.current_dir(self.0.path()).args(words).env_remove("COLUMNS").stdin(Stdio::null());
        for name in ["PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF", "PYTHONUNBUFFERED"] {
            command.env_remove(name);
        }
        command
    }

    pub(crate) fn run(&self, words: &[&str]) -> Ran {
        Ran::of(self.command(words).output().unwrap())
    }

    /// The story of the run in a folder.
    pub(crate) fn story(&self, folder: &str) -> Value {
        serde_json::from_slice(&fs::read(self.path(folder).join("summary.json")).unwrap()).unwrap()
    }

    pub(crate) fn text(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap()
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

/// What a command said, and how it ended.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Ran {
    pub(crate) fn of(output: Output) -> Ran {
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        Ran { code: output.status.code(), out: text(output.stdout), err: text(output.stderr) }
    }

    /// The lines on standard error that are the command's own.
    pub(crate) fn own_err(&self) -> Vec<&str> {
        self.err.lines().filter(|line| !line.starts_with("lowtide: ")).collect()
    }
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
