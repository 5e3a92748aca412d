//! The memory of a device: its line, what is held under it, and what is done when it runs out.

mod block_cache;
mod device_memory;
mod injection;
mod monitor;
mod profile;
mod recovery;

pub(crate) use block_cache::{Moment, is_due as release_is_due};
pub(crate) use device_memory::{DeviceMemory, GraphMemory};
pub(crate) use injection::Injector;
pub(crate) use monitor::Monitor;
pub use profile::Profile;
pub(crate) use recovery::{MemoryFigures, Recovery, out_of_memory};
