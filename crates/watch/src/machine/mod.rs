//! The machine and its processes, out of samples that others took.

mod history;
mod process_monitor;
mod status;

pub use history::{History, MOMENTS, Moment};
pub use process_monitor::{ProcessMonitor, ProcessRow};
pub use status::{CHILDREN, DEVICE_USED, Gauge, HOST_USED, Holder, MachineStatus, ON_CARDS, RESIDENT};

pub(crate) use status::{card_used, record};
