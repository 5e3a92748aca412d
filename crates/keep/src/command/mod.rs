//! What is run: the command of each rung, and what its words and files say of the batch.

pub(crate) mod checkpoint;
pub(crate) mod contents;
pub(crate) mod discovery;
pub(crate) mod environment;
pub(crate) mod found;
pub(crate) mod gap;
pub(crate) mod ladder;
pub(crate) mod named_config;
pub(crate) mod no_accumulation;
pub(crate) mod recipe;
pub(crate) mod request;
pub(crate) mod resume;
pub(crate) mod script_copy;
pub(crate) mod shell;
pub(crate) mod source_batch;
pub(crate) mod start_folders;
pub(crate) mod strays;
pub(crate) mod template;
pub(crate) mod wholeness;
