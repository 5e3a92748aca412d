//! Folders with data files.

use std::fs;
use std::ops::Deref;
use std::path::Path;
use std::process::{Child, Stdio};

use lowtide_testkit::Sandbox;

use crate::kit::sandbox;

/// A folder with some of the fixtures of the crate `data`, in which the command is run.
pub(crate) struct Place(Sandbox);

impl Deref for Place {
    type Target = Sandbox;

    fn deref(&self) -> &Sandbox {
        &self.0
    }
}

impl Place {
    /// With the fixtures of these names.
    pub(crate) fn with(names: &[&str]) -> Place {
        let place = Place(sandbox());
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

    pub(crate) fn copy(&self, fixture: &str, name: &str) {
        let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tensorfile/tests/fixtures/given");
        self.write(name, fs::read(fixtures.join(fixture)).unwrap());
    }

    pub(crate) fn start(&self, words: &str) -> Child {
        self.command(words).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    }
}
