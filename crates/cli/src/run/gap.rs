//! Why a command is not retried with a smaller micro-batch, and what would make that possible.

use lowtide_config::command::quoted;
use lowtide_keep::{CommandLadder, InShell, Library, NoAccumulation, RungGap};
use lowtide_trainers::{LoopGap, TrainingLoop};

use crate::output::printable;
use crate::run::narration::flag;

/// What helps where nothing is trained.
const SHRINK: &str = "where the batch may get smaller (inference, evaluation): lowtide run --shrink-batch -- ...";

/// What helps where the batch is the smallest.
const SMALLEST: &str =
    "with a batch of 1, less memory takes activation checkpointing, shorter or smaller samples, or a smaller model";

/// What helps where nothing is known of the command.
const UNKNOWN: &str = "say what a retry changes, in the command's own words, and --batch N for the batch that it has now: \
                       --retry-with '--FLAG={micro} --FLAG={accum}', --retry-env 'NAME={micro} NAME={accum}', or --config \
                       FILE --retry-config 'KEY={micro} KEY={accum}'. FLAG, NAME and KEY stand for names that the command \
                       takes; they are not known here";

/// What helps where a shell has its script in one word.
const IN_A_SHELL: &str = "put lowtide inside, where flags are found: bash -c 'lowtide run -- python train.py'. Or say with \
                          --retry-env 'NAME={micro} NAME={accum}' --batch N which variables the script reads; NAME stands \
                          for them";

/// Why there is no retry, and what would make one.
pub(super) fn gap_words(gap: &RungGap) -> String {
    match gap {
        RungGap::Environment { detail, .. } => {
            let why = detail.as_deref().unwrap_or("the script reads its batch from the environment");
            format!("{}: {}", printable(why), said(gap).unwrap_or_default())
        }
        RungGap::Refused(refusal) => printable(&refusal.detail),
        RungGap::Batch { detail } => {
            let detail = printable(detail);
            format!("{detail}: --batch and --accum say it, --retry-with or --retry-config change it")
        }
        RungGap::Flags { detail, .. } => {
            format!("{}: {}", printable(detail), said(gap).unwrap_or_default())
        }
        RungGap::OtherTraining { detail, .. } => {
            format!("{}. Change that in the script first, or {}", printable(detail), said(gap).unwrap_or_default())
        }
        RungGap::NamedFile { at, set, .. } => {
            format!("{}: {}; {}", printable(at), printable(set), said(gap).unwrap_or_default())
        }
        RungGap::Template { part } => format!(
            "{} is given, and nothing says how the command takes another: --retry-with, --retry-env or --retry-config",
            flag(*part)
        ),
        RungGap::NoAccumulation(missing) => {
            let script = missing.script.as_deref().map_or("the command".to_owned(), printable);
            let batch = printable(&missing.batch.replace("{}", &missing.samples.to_string()));
            let line = missing.line.map_or(String::new(), |line| format!(" in line {line}"));
            if missing.samples == 1 {
                return format!("{script} has {batch}{line}, and a batch of 1 has no smaller one");
            }
            format!(
                "{script} has {batch}{line}, and nothing that accumulates gradients, so that a smaller batch would be \
                 another training; --shrink-batch allows it"
            )
        }
    }
}

/// What to type or to write, where names of the command's own are known.
fn said(gap: &RungGap) -> Option<String> {
    match gap {
        RungGap::Flags { templates, samples, .. } => {
            let said: Vec<String> = templates.iter().map(|template| format!("--retry-with '{template}'")).collect();
            let unknown =
                if templates.iter().any(|it| it.contains("--FLAG=")) { "; FLAG stands for its name" } else { "" };
            let samples = samples.map_or("N".to_owned(), |samples| samples.to_string());
            Some(printable(&format!("say it with --batch {samples} {}{unknown}", said.join(" or "))))
        }
        RungGap::OtherTraining { template, batch, .. } => {
            let samples = batch.map_or("N".to_owned(), |batch| batch.micro.to_string());
            let accum = batch.filter(|batch| batch.accum > 1);
            let accum = accum.map_or(String::new(), |batch| format!(" --accum {}", batch.accum));
            Some(printable(&format!("say it all the same with --batch {samples}{accum} --retry-with '{template}'")))
        }
        RungGap::Environment { template, numbers: [micro, accum], .. } => {
            let number = |number: &Option<u64>| number.map_or("N".to_owned(), |number| number.to_string());
            let accum = if *accum == Some(1) { String::new() } else { format!(" --accum {}", number(accum)) };
            Some(printable(&format!("say it with --retry-env '{template}' --batch {}{accum}", number(micro))))
        }
        RungGap::NamedFile { file, template, .. } => {
            let options = quoted(&["--config", file, "--retry-config", template]);
            let unknown = if template.contains(" KEY=") { "; KEY stands for its key for accumulation" } else { "" };
            Some(printable(&format!("say it with {options}{unknown}")))
        }
        RungGap::Refused(refusal) => Some(printable(&refusal.remedy)),
        RungGap::Batch { .. } | RungGap::Template { .. } | RungGap::NoAccumulation(_) => None,
    }
}

/// What would make a retry possible, said at the end of a command that had none.
pub(super) fn no_retry_hint(ladder: &CommandLadder) -> String {
    match &ladder.gap {
        Some(RungGap::NoAccumulation(missing)) => remedy(missing, ladder.group),
        Some(gap) if let Some(said) = said(gap) => said,
        _ if let Some(inner) = &ladder.in_shell => in_file(inner, ladder),
        _ if ladder.takes_words() => UNKNOWN.to_owned(),
        _ => IN_A_SHELL.to_owned(),
    }
}

/// What to write into the file of a shell's script, or to type before it.
fn in_file(inner: &InShell, ladder: &CommandLadder) -> String {
    let InShell { script, line, kept, variables } = inner;
    let mut text = format!("in {script}, let line {line} begin so, and flags are found: {kept}");
    if let Some([(micro, samples), (accum, steps)]) = variables {
        let template = format!("{micro}={{micro}} {accum}={{accum}}");
        let command = quoted(&ladder.command);
        text.push_str(&format!(
            "\nor leave it as it is: lowtide run --retry-env '{template}' --batch {samples} --accum {steps} -- {command}"
        ));
    }
    text.lines().map(printable).collect::<Vec<_>>().join("\n")
}

/// How a script would get by with a smaller micro-batch and the same training.
fn remedy(missing: &NoAccumulation, group: u64) -> String {
    let NoAccumulation { script, batch, line, smaller, library, training_loop, .. } = missing;
    if missing.samples == 1 {
        return SMALLEST.to_owned();
    }
    if *library == Library::Unknown {
        return SHRINK.to_owned();
    }
    let script = script.as_deref().map_or("the script".to_owned(), printable);
    let batch = printable(&batch.replace("{}", &smaller.micro.to_string()));
    let at = line.map_or(String::new(), |line| format!(" in line {line}"));
    let of_each = if group > 1 { " of each process" } else { "" };
    let (micro, accum, samples) = (smaller.micro, smaller.accum, smaller.effective());
    let same = match training_loop {
        // Its state would have another number of samples.
        Err(LoopGap::CarriesState) => "which is not the same training, since its state goes from batch to batch,",
        _ => "which is the same training",
    };
    let mut text = format!(
        "accumulate gradients over {accum} micro-batches of {micro}, {same} with {samples} samples for each step{of_each}: \
         {batch}{at}"
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
