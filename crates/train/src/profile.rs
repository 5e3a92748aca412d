//! What kind of device a run has, and what is done from the start because of it.

use std::fmt;

use lowtide_core::Bytes;
use lowtide_torch::DeviceFacts;

const GIB: u64 = 1 << 30;

/// A GPU by its memory. Each profile only does what keeps the numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Profile {
    /// Below 4 GiB: activations are recomputed and the loss is computed in pieces from the start.
    Small,
    /// Below 12 GiB: the loss is computed in pieces from the start.
    Middle,
    /// 12 GiB or more: nothing is done before memory asks for it.
    Large,
}

impl Profile {
    /// The profile of a device; `None` on the CPU, where nothing is done ahead.
    #[must_use]
    pub fn of(facts: &DeviceFacts) -> Option<Profile> {
        facts.device.is_cuda().then(|| Profile::with(facts.total))
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

    /// Whether the loss is computed in pieces from the start, where the workload can.
    pub(crate) fn chunks_loss(self) -> bool {
        self != Profile::Large
    }
}

impl fmt::Display for Profile {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Profile::Small => "below 4 GiB: recompute and a loss in pieces from the start, unless set otherwise",
            Profile::Middle => "below 12 GiB: a loss in pieces from the start where the workload can",
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
