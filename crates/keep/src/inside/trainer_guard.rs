//! The guard of the Python package, put into the training loops of libraries.
//!
//! `guard.py` is run once the command has imported a library with a Trainer, and hands over to the package, which that Python must
//! have: it refuses by name where it has not, before anything is trained.

use crate::inside::door::{Moment, Part};

const TEXT: &str = include_str!("guard.py");
/// The modules that have a Trainer; the last is refused with a hint, since the package does not know its loop.
const TRAINERS: [&str; 3] =
    ["transformers.trainer", "lightning.pytorch.trainer.trainer", "pytorch_lightning.trainer.trainer"];

/// Whether the guard is put into the loops of libraries.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum TrainerGuard {
    /// The command trains as it does.
    #[default]
    Off,
    /// Into Hugging Face's Trainer and Lightning's.
    On,
}

impl TrainerGuard {
    pub(crate) fn parts(self) -> Vec<Part> {
        let part = |module| Part { name: "guard", moment: Moment::After(module), text: TEXT, files: Vec::new() };
        match self {
            Self::Off => Vec::new(),
            Self::On => TRAINERS.map(part).into(),
        }
    }
}
