//! What the Python package `lowtide` has of Rust: decisions, events, texts that are read, and training data.
//!
//! Nothing here links torch. Tensors are made in Python, by the user's own torch; what crosses is numbers, texts, and memory
//! (`block.rs`) by DLPack (`dlpack.rs`) or as host memory that torch falls back on (`reserve.rs`), the only files with `unsafe`. The
//! package in `python/lowtide` says what each of these is for, and is the only one that calls them.

mod block;
mod decisions;
mod dlpack;
mod events;
mod failure;
mod feed;
mod feed_batch;
mod feed_steps;
mod help;
mod host;
mod pack;
mod reserve;
mod tensors;
mod texts;

use pyo3::prelude::*;

#[pymodule(gil_used = true)]
mod _native {
    #[pymodule_export]
    use crate::block::held_bytes;
    #[pymodule_export]
    use crate::decisions::{Answer, Decider};
    #[pymodule_export]
    use crate::dlpack::Part;
    #[pymodule_export]
    use crate::events::EventFile;
    #[pymodule_export]
    use crate::feed::DataFeed;
    #[pymodule_export]
    use crate::host::host_room;
    #[pymodule_export]
    use crate::pack::pack;
    #[pymodule_export]
    use crate::reserve::HostRegion;
    #[pymodule_export]
    use crate::tensors::open_tree;
    #[pymodule_export]
    use crate::texts::{is_oom, limit_bytes, read_oom_json, shown_bytes};

    use super::{Bound, PyModule, PyModuleMethods, PyResult};

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}
