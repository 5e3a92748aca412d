//! Whether host memory helps out when a device's is not enough.

use super::choice::{Choice, choice};

/// Whether what a GPU has no room for is kept in host memory: the inputs of recomputed segments, then the optimizer's
/// moments. Less memory on the device, more time, the same numbers.
///
/// Written `auto`, `on` (or `true`), `off` (or `false`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Spill {
    /// Only when memory asks for it.
    #[default]
    Auto,
    /// From the start.
    On,
    /// Never.
    Off,
}

impl Spill {
    const CHOICE: Choice<Self> = Choice {
        words: &[("auto", Self::Auto), ("on", Self::On), ("off", Self::Off)],
        booleans: Some([Self::Off, Self::On]),
    };
}

choice!(Spill);
