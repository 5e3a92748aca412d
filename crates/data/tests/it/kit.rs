//! The files of others that all tests share.

use std::path::{Path, PathBuf};

/// The fixtures of the crate that reads the files.
pub(crate) fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tensorfile/tests/fixtures").join(name)
}
