//! A batch without accumulation, and what would give the script some.

use lowtide_config::{Config, Syntax};
use lowtide_trainers::{LoopGap, training_loop};

use crate::BatchSplit;
use crate::command::found::Place;
use crate::command::gap::{Library, NoAccumulation, RungGap};

/// What a script trains with, as far as it shows.
pub(crate) fn library(script: &Config) -> Library {
    let has = |signs: &[&str]| script.syntax == Syntax::Python && signs.iter().any(|sign| script.text.contains(sign));
    match () {
        () if has(&["TrainingArguments(", "gradient_accumulation_steps="]) => Library::HuggingFace,
        () if has(&["backward("]) => Library::PyTorch,
        () if has(&["lightning"]) && has(&["Trainer("]) => Library::Lightning,
        () if has(&["keras", "tensorflow"]) && has(&[".fit("]) => Library::Keras,
        () if has(&["optax", "import jax"]) => Library::Jax,
        () if has(&[".fit(", "Trainer", ".train("]) => Library::PyTorch,
        () => Library::Unknown,
    }
}

/// Why a batch is not changed that nothing accumulates to.
pub(crate) fn no_accumulation(
    place: Option<&Place>,
    batch: String,
    line: Option<usize>,
    samples: u64,
) -> Option<RungGap> {
    let rungs = BatchSplit::new(samples, 1)?.rungs(1);
    let smaller = *rungs.get(2).or(rungs.last())?;
    let script = place.map(|(_, path)| path.to_string_lossy().into_owned());
    let training_loop = place.map_or(Err(LoopGap::Unknown), |(script, _)| training_loop(script, smaller.accum));
    let library = place.map_or(Library::Unknown, |(script, _)| library(script));
    let missing = NoAccumulation { script, batch, line, samples, smaller, library, training_loop };
    Some(RungGap::NoAccumulation(Box::new(missing)))
}
