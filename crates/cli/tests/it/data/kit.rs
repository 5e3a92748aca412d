//! A folder with files, and `lowtide` run in it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use tempfile::TempDir;

/// A folder with some of the fixtures of the crate `data`, in which the command is run.
pub(crate) struct Place(TempDir);

impl Place {
    /// With the fixtures of these names.
    pub(crate) fn with(names: &[&str]) -> Place {
        let place = Place(tempfile::tempdir().unwrap());
        names.iter().for_each(|name| place.copy(name, name));
        place
    }

    /// With the fixtures of these names in the folder `src`.
    pub(crate) fn with_sources(names: &[&str]) -> Place {
        let place = Place::with(&[]);
        fs::create_dir(place.path("src")).unwrap();
        names.iter().for_each(|name| place.copy(name, &format!("src/{name}")));
        place
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub(crate) fn copy(&self, fixture: &str, name: &str) {
        let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../data/tests/fixtures/given");
        let to = self.path(name);
        fs::create_dir_all(to.parent().unwrap()).unwrap();
        fs::copy(fixtures.join(fixture), to).unwrap();
    }

    pub(crate) fn command(&self, words: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_lowtide"));
        command.current_dir(self.0.path()).args(words.split_whitespace()).env_remove("COLUMNS");
        command
    }

    pub(crate) fn start(&self, words: &str) -> Child {
        self.command(words).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    }

    pub(crate) fn run(&self, words: &str) -> Output {
        self.command(words).output().unwrap()
    }

    /// What a command says that ends well.
    #[track_caller]
    pub(crate) fn says(&self, words: &str) -> String {
        let output = self.run(words);
        assert_eq!((output.status.code(), text(&output.stderr)), (Some(0), String::new()));
        text(&output.stdout)
    }

    /// What a command says that is given something bad, and prints nothing else; the path of the place is left out.
    #[track_caller]
    pub(crate) fn complains(&self, words: &str) -> String {
        let output = self.run(words);
        assert_eq!((output.status.code(), text(&output.stdout)), (Some(2), String::new()));
        text(&output.stderr).replace(&self.0.path().canonicalize().unwrap().display().to_string(), "PLACE")
    }
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}
