//! How much memory a run has, and what is done from the start because of it.

use std::fmt;
use std::num::NonZeroU32;

use lowtide_core::{Bytes, Line};
use lowtide_torch::DeviceFacts;

const GIB: u64 = 1 << 30;

/// A GPU by the memory that may be used of it. Each profile only does what keeps the numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Profile {
    /// Below 4 GiB: activations are recomputed, and an eighth of the loss is computed at once.
    Small,
    /// Below 12 GiB: half of the loss is computed at once.
    Middle,
    /// 12 GiB or more: nothing is done before memory asks for it.
    Large,
}

impl Profile {
    /// The profile of a device under a line; `None` on the CPU, where nothing is done ahead.
    #[must_use]
    pub fn of(facts: &DeviceFacts, line: Line) -> Option<Profile> {
        let total = line.limit().map_or(facts.total, |line| line.min(facts.total));
        facts.device.is_cuda().then(|| Profile::with(total))
    }

    fn with(total: Bytes) -> Profile {
        match total.get() {
            bytes if bytes < 4 * GIB => Profile::Small,
            bytes if bytes < 12 * GIB => Profile::Middle,
            _ => Profile::Large,
        }
    }

    /// Whether activations are recomputed from the start, where the settings leave that open.
    pub(crate) fn recomputes(self) -> bool {
        self == Profile::Small
    }

    /// Pieces in which the loss is computed from the start, where the workload can.
    pub(crate) fn loss_chunks(self) -> NonZeroU32 {
        let chunks = match self {
            Profile::Small => 8,
            Profile::Middle => 2,
            Profile::Large => 1,
        };
        NonZeroU32::new(chunks).expect("none of them is 0")
    }
}

impl fmt::Display for Profile {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Profile::Small => "below 4 GiB: recompute, and a loss in small pieces where it does not fit as a whole",
            Profile::Middle => "below 12 GiB: a loss in pieces where it does not fit as a whole",
            Profile::Large => "12 GiB or more: nothing is done before memory asks for it",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_by_their_memory() {
        let of = |gib: f64| Profile::with(Bytes((gib * GIB as f64) as u64));
        assert_eq!(
            [of(3.68), of(4.0), of(11.69), of(12.0)],
            [Profile::Small, Profile::Middle, Profile::Middle, Profile::Large]
        );
    }
}
