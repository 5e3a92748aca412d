//! What a process that ran out of memory wrote down itself: what it was asked for and by whom, and who holds what.

mod memory_report;
mod snapshot;
mod tensor_group;

pub use memory_report::MemoryReport;
pub use snapshot::{MemorySnapshot, SnapshotError};
pub use tensor_group::TensorGroup;
