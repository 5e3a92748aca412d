//! What the Python package `lowtide` has of Rust: decisions, events, and texts that are read.
//!
//! Nothing here knows torch. Tensors stay in Python, in the user's own torch; what crosses is numbers and texts. The
//! package in `python/lowtide` says what each of these is for, and is the only one that calls them.

mod decisions;
mod events;
mod texts;

use pyo3::prelude::*;

#[pymodule(gil_used = true)]
mod _native {
    #[pymodule_export]
    use crate::decisions::{Answer, Decider};
    #[pymodule_export]
    use crate::events::EventFile;
    #[pymodule_export]
    use crate::texts::{is_oom, limit_bytes, read_oom_json, shown_bytes};

    use super::{Bound, PyModule, PyModuleMethods, PyResult};

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}
