//! Whether activations are computed again instead of kept.

use super::choice::{Choice, choice};

/// Whether the backward pass computes activations again instead of keeping them: less memory, more time, the same numbers.
///
/// Written `auto`, `on` (or `true`), `off` (or `false`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Recompute {
    /// Only when memory asks for it.
    #[default]
    Auto,
    /// Always.
    On,
    /// Never.
    Off,
}

impl Recompute {
    const CHOICE: Choice<Self> = Choice {
        words: &[("auto", Self::Auto), ("on", Self::On), ("off", Self::Off)],
        booleans: Some([Self::Off, Self::On]),
    };
}

choice!(Recompute);
