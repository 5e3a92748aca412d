//! The memory of the host.

use lowtide_sensors::HostSampler;
use pyo3::prelude::*;

/// Bytes of the host that this process could still have, and all that there are for it: those of its control group where
/// one limits it. None where the machine does not tell.
#[pyfunction]
pub(crate) fn host_room() -> Option<(u64, u64)> {
    let host = HostSampler::new("/".into()).read().ok()?;
    Some((host.total_bytes.saturating_sub(host.used_bytes), host.total_bytes))
}
