//! What people wrote: files and overrides, as values with their places.

pub(crate) mod excerpt;
pub(crate) mod file;
pub(crate) mod origin;
pub(crate) mod overrides;
pub(crate) mod scalar;
pub(crate) mod yaml_reader;
