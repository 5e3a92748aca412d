//! Texts that are read: errors and sizes.

use lowtide_core::{Bytes, LineSpec};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

/// Whether a text is an out-of-memory error.
#[pyfunction]
pub(crate) fn is_oom(text: &str) -> bool {
    lowtide_oom::read(text).is_some()
}

/// What an out-of-memory error says, as JSON; none where the text is no such error.
#[pyfunction]
pub(crate) fn read_oom_json(text: &str) -> Option<String> {
    lowtide_oom::read(text).map(|oom| serde_json::to_string(&oom).expect("plain numbers and texts"))
}

/// The bytes of a limit on a device with `total` bytes; none for no limit.
#[pyfunction]
pub(crate) fn limit_bytes(text: &str, total: u64) -> PyResult<Option<u64>> {
    let spec: LineSpec = text.parse().map_err(refuse)?;
    Ok(spec.resolve(Bytes(total)).map_err(refuse)?.limit().map(Bytes::get))
}

/// A size as people read it.
#[pyfunction]
pub(crate) fn shown_bytes(bytes: u64) -> String {
    Bytes(bytes).to_string()
}

fn refuse(error: lowtide_core::Error) -> PyErr {
    PyValueError::new_err(error.to_string())
}
