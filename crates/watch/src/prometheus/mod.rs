//! Runs and the machine as text that a Prometheus server reads.

mod exposition;
mod machine;
mod page;
mod runs;

pub(crate) use exposition::CONTENT_TYPE;
pub(crate) use page::exposition;
