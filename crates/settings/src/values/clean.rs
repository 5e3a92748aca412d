//! When cached memory is given back although nothing failed.

use super::choice::{Choice, choice};

/// When the allocator's cached blocks are given back to the device. It costs time and never changes numbers.
///
/// Written `auto`, `clock` or `never`. After an out-of-memory error they are always given back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Clean {
    /// When it pays: more than 20 % of the line (or the device) is cached, and more than 80 % is taken.
    #[default]
    Auto,
    /// Every 10 steps in the step, every 20 in the loop, after each checkpoint, before each evaluation and every 5 of its
    /// batches.
    Clock,
    /// Only after an error.
    Never,
}

impl Clean {
    const CHOICE: Choice<Self> =
        Choice { words: &[("auto", Self::Auto), ("clock", Self::Clock), ("never", Self::Never)], booleans: None };
}

choice!(Clean);
