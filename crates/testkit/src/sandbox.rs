//! A folder that goes away, with a program to run in it.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;
use tempfile::TempDir;

/// A folder that a person stands in, and the program that they start there.
pub struct Sandbox {
    folder: TempDir,
    program: PathBuf,
}

impl Sandbox {
    /// An empty folder. `program` is what Cargo built for the tests: `env!("CARGO_BIN_EXE_...")`.
    pub fn new(program: impl Into<PathBuf>) -> Sandbox {
        Sandbox { folder: tempfile::tempdir().unwrap(), program: program.into() }
    }

    /// The folder itself.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// A file or folder in it.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Writes a file, and the folders that it is in.
    pub fn write(&self, name: &str, bytes: impl AsRef<[u8]>) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }

    /// The text of a file.
    #[track_caller]
    pub fn text(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap()
    }

    /// The value in a file of JSON.
    #[track_caller]
    pub fn json(&self, name: &str) -> Value {
        serde_json::from_str(&self.text(name)).unwrap()
    }

    /// Names of what is in a folder, hidden things too.
    #[track_caller]
    pub fn names(&self, folder: &str) -> BTreeSet<String> {
        let entries = fs::read_dir(self.path(folder)).unwrap();
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }

    /// The program with these words, ready to run in the folder, without input and as wide as it likes.
    pub fn command(&self, words: &str) -> Command {
        let mut command = Command::new(&self.program);
        command.current_dir(self.folder()).args(words.split_whitespace());
        command.env_remove("COLUMNS").stdin(Stdio::null());
        command
    }

    /// Runs the program to its end.
    pub fn run(&self, words: &str) -> Printout {
        Printout::of(self.command(words).output().unwrap())
    }

    /// What the program says where all is well: exit code 0, and nothing on standard error.
    #[track_caller]
    pub fn says(&self, words: &str) -> String {
        let printout = self.run(words);
        assert_eq!((printout.code, &*printout.stderr), (Some(0), ""), "{words}");
        printout.stdout
    }

    /// What the program says when it is given something bad: exit code 2, and nothing on standard output. The path of
    /// the folder is left out.
    #[track_caller]
    pub fn refuses(&self, words: &str) -> String {
        let refusal = self.run(words).refusal();
        refusal.replace(&self.folder().canonicalize().unwrap().display().to_string(), "PLACE")
    }
}

/// What a program printed, and its exit code.
#[derive(Debug)]
pub struct Printout {
    /// `None` where a signal ended it.
    pub code: Option<i32>,
    /// All of standard output.
    pub stdout: String,
    /// All of standard error.
    pub stderr: String,
}

impl Printout {
    /// Of a program that has ended.
    pub fn of(output: Output) -> Printout {
        let text = |bytes| String::from_utf8(bytes).unwrap();
        Printout { code: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) }
    }

    /// What is on standard error, where the exit code is 2 and nothing else was printed.
    #[track_caller]
    pub fn refusal(self) -> String {
        assert_eq!((self.code, &*self.stdout), (Some(2), ""), "{}", self.stderr);
        self.stderr
    }
}
