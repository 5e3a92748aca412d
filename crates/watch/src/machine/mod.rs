//! The machine and its processes, out of samples that others took.

mod free_memory;
mod history;
mod process_monitor;
mod status;
mod viewpoint;

pub use free_memory::FreeMemory;
pub use history::{History, MOMENTS, Moment};
pub use process_monitor::{ProcessMonitor, ProcessRow};
pub use status::{Gauge, Holder, MachineStatus};
pub use viewpoint::{CHILDREN, DEVICE_USED, HOST_USED, ON_CARDS, RESERVE, RESIDENT};

pub(crate) use viewpoint::{Viewpoint, card_used};
