//! From what people wrote to typed settings.

pub(crate) mod conversion;
pub(crate) mod loaded_settings;
pub(crate) mod suggestion;
