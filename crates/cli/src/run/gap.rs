//! Why a command is not retried with a smaller micro-batch, and what would make that possible.

use lowtide_keep::{Library, NoAccumulation, RungGap};
use lowtide_trainers::{LoopGap, TrainingLoop};

use crate::output::printable;
use crate::run::narration::flag;

/// What helps where nothing is trained.
const SHRINK: &str = "where the batch may get smaller (inference, evaluation): lowtide run --shrink-batch -- ...";

/// Why there is no retry, and what would make one.
pub(super) fn gap_words(gap: &RungGap) -> String {
    match gap {
        RungGap::Batch { detail } => {
            let detail = printable(detail);
            format!("{detail}: --batch and --accum say it, --retry-with or --retry-config change it")
        }
        RungGap::Flags { detail, templates } => {
            let said: Vec<String> = templates.iter().map(|template| format!("--retry-with '{template}'")).collect();
            printable(&format!("{detail}: say it with --batch N {}", said.join(" or ")))
        }
        RungGap::Template { part } => format!(
            "{} is given, and nothing says how the command takes another: --retry-with, --retry-env or --retry-config",
            flag(*part)
        ),
        RungGap::NoAccumulation(missing) => {
            let script = missing.script.as_deref().map_or("the command".to_owned(), printable);
            let batch = printable(&missing.batch.replace("{}", &missing.samples.to_string()));
            let line = missing.line.map_or(String::new(), |line| format!(" in line {line}"));
            format!(
                "{script} has {batch}{line}, and nothing that accumulates gradients, so that a smaller batch would be \
                 another training; --shrink-batch allows it"
            )
        }
    }
}

/// How a script would get by with a smaller micro-batch and the same training.
pub(super) fn remedy(missing: &NoAccumulation) -> String {
    let NoAccumulation { script, batch, line, smaller, library, training_loop, .. } = missing;
    if *library == Library::Unknown {
        return SHRINK.to_owned();
    }
    let script = script.as_deref().map_or("the script".to_owned(), printable);
    let batch = printable(&batch.replace("{}", &smaller.micro.to_string()));
    let at = line.map_or(String::new(), |line| format!(" in line {line}"));
    let (micro, accum, samples) = (smaller.micro, smaller.accum, smaller.effective());
    let mut text = format!(
        "accumulate gradients over {accum} micro-batches of {micro}, which is the same training with {samples} samples \
         for each step: {batch}{at}"
    );
    match (library, training_loop) {
        (Library::HuggingFace, _) => text.push_str(&format!(", and gradient_accumulation_steps={accum} beside it")),
        (Library::Lightning, _) => text.push_str(&format!(", and Trainer(accumulate_grad_batches={accum})")),
        (Library::Keras, _) => {
            text.push_str(&format!(", and gradient_accumulation_steps={accum} for the optimizer (Keras 3)"));
        }
        (Library::Jax, _) => {
            text.push_str(&format!(", and optax.MultiSteps(optimizer, every_k_schedule={accum}) around the optimizer"));
        }
        (_, Ok(TrainingLoop { lines: (first, last), text: lines })) => {
            text.push_str(&format!(", and this in the place of lines {first} to {last} of {script}:"));
            lines.lines().for_each(|line| text.push_str(&format!("\n    {}", printable(line))));
        }
        (_, Err(LoopGap::SeveralLosses(losses))) => text.push_str(&format!(
            ". The loop of {script} has {losses} losses with an optimizer each, which is not rewritten here: each optimizer \
             needs its own pass over the {accum} micro-batches before its step, in the order of the loop"
        )),
        (_, Err(_)) => text.push_str(&format!(
            ", (loss / {accum}).backward() for each micro-batch, and optimizer.step() and optimizer.zero_grad() after \
             every {accum}"
        )),
    }
    text.push_str(&format!("\n{SHRINK}"));
    text
}
