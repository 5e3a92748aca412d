//! The program under test.

use lowtide_testkit::Sandbox;

/// An empty folder with `lowtide` to run in it.
pub(crate) fn sandbox() -> Sandbox {
    Sandbox::new(env!("CARGO_BIN_EXE_lowtide"))
}
