//! Memory that is still to be had, and where.

use lowtide_core::Bytes;
use serde::Serialize;

use super::viewpoint::Viewpoint;

/// Memory that is still to be had, and where.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FreeMemory {
    /// How much.
    pub bytes: Bytes,
    /// Where: `on GPU 0`, `on the host`, `under the host limit`.
    pub place: String,
}

impl FreeMemory {
    /// On the card that a process is on, as the driver tells.
    pub(crate) fn on_card(viewpoint: &Viewpoint<'_>) -> Option<FreeMemory> {
        let (index, memory) = viewpoint.card()?;
        Some(FreeMemory { bytes: Bytes(memory.free_bytes), place: format!("on GPU {index}") })
    }

    /// What the host has left for a process; less where it has a limit of its own.
    pub(crate) fn on_host(free: Option<Bytes>, limit: Option<Bytes>, resident: Option<Bytes>) -> Option<FreeMemory> {
        let under = limit.zip(resident).map(|(limit, resident)| limit.saturating_sub(resident));
        match (free, under) {
            (Some(free), Some(under)) if free < under => Some((free, "on the host")),
            (_, Some(under)) => Some((under, "under the host limit")),
            (free, None) => free.map(|free| (free, "on the host")),
        }
        .map(|(bytes, place)| FreeMemory { bytes, place: place.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tighter_of_host_and_limit_counts() {
        let free = |free: Option<u64>, limit: Option<u64>| {
            let found = FreeMemory::on_host(free.map(Bytes), limit.map(Bytes), Some(Bytes(30)));
            found.map(|free| (free.bytes.get(), free.place))
        };
        assert_eq!(free(Some(50), None), Some((50, "on the host".to_owned())));
        assert_eq!(free(Some(50), Some(100)), Some((50, "on the host".to_owned())));
        assert_eq!(free(Some(50), Some(70)), Some((40, "under the host limit".to_owned())));
        assert_eq!(free(None, Some(20)), Some((0, "under the host limit".to_owned())));
        assert_eq!(free(None, None), None);
    }
}
