//! How a command takes a smaller micro-batch, where the user does not say it: by the flags of a known trainer, by the flags
//! that the script declares, or by numbers that stand in the script.
//!
//! How a command takes a smaller micro-batch is looked for in this order: a template of the user's, a known trainer's
//! flags, flags that the script or a module beside it declares (`trainers/declaration.rs`, `trainers/flag.rs`), numbers
//! that stand in the script or in modules that it imports (`trainers/hard_coded.rs`, `trainers/split_batch.rs`). A constant counts as accumulation only where the loss is
//! divided by it, or a library is given it; an option that the script itself sets again counts for nothing.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use lowtide_config::command::at_script;
use lowtide_config::{Config, Syntax};
use lowtide_trainers::{
    Access, Answer, Flag, HardCoded, Key, LoopGap, NumberInFile, Preset, Question, Slot, SourceBatch, TrainingLoop,
    UnknownFlag, Variable, answer, command_line, declarations, divides_by, file, flag, hard_coded, hard_coded_steps,
    imported_batch, imported_steps, imported_text, script, script_path, siblings, split_batch, takes_batch_from,
    training_loop, undivided, variable,
};

use crate::command::named_config::by_named_file;
use crate::command::recipe::{Recipe, Script};
use crate::command::script_copy::deaf_option;
use crate::{BatchPart, BatchSplit, CommandRequest, EffectiveBatch, KeepError, Template};

/// Why there is no retry with a smaller micro-batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RungGap {
    /// Something of the batch is known, and not all.
    Batch {
        /// Why, in words that begin with the name of what was looked for.
        detail: String,
    },
    /// There are flags for the batch, and it is not known which of them or what number counts.
    Flags {
        /// Why.
        detail: String,
        /// What a retry would change, for each that may be meant.
        templates: Vec<String>,
    },
    /// The script reads its batch from variables of the environment.
    Environment {
        /// What a retry would change.
        template: String,
        /// The batch and the accumulation that the variables or the script have now.
        numbers: [Option<u64>; 2],
    },
    /// A file of settings that the command line names has a batch.
    NamedFile {
        /// The file, as the command line has it.
        file: String,
        /// The file with the line of the batch.
        at: String,
        /// The key of the batch with its number, in words.
        set: String,
        /// What a retry would change; `KEY` where the file has nothing for accumulation.
        template: String,
    },
    /// The batch is given, and not how the command takes another.
    Template {
        /// The number that was given.
        part: BatchPart,
    },
    /// The batch is known, and nothing accumulates gradients: a smaller one would be another training.
    NoAccumulation(Box<NoAccumulation>),
}

/// A batch without accumulation, and what would give the script some.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NoAccumulation {
    /// The script, as the command line has it.
    pub script: Option<String>,
    /// The flag or the setting that the batch has, as it is written for another number.
    pub batch: String,
    /// Its line in the script, where it stands there.
    pub line: Option<usize>,
    /// The batch as it is.
    pub samples: u64,
    /// A smaller one that keeps the effective batch.
    pub smaller: BatchSplit,
    /// What it trains with, as far as it shows.
    pub library: Library,
    /// The loop with accumulation, in the script's own names; or why it is not written down.
    pub training_loop: Result<TrainingLoop, LoopGap>,
}

/// What a script trains with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Library {
    /// PyTorch, in a loop of its own.
    PyTorch,
    /// Hugging Face's Trainer.
    HuggingFace,
    /// Lightning's Trainer.
    Lightning,
    /// Keras, whose optimizers accumulate gradients where they are told.
    Keras,
    /// JAX, with optimizers of Optax.
    Jax,
    /// Nothing that shows: it may be inference.
    Unknown,
}

/// What is known of a command's batch.
#[derive(Debug, Default)]
pub(crate) struct Discovery {
    pub(crate) recipe: Recipe,
    pub(crate) preset: Option<Preset>,
    pub(crate) batch: Option<BatchSplit>,
    pub(crate) gap: Option<RungGap>,
    /// The flag for the batch of evaluation.
    pub(crate) evaluation: Option<Flag>,
}

impl Discovery {
    /// Looks at the command, its script and its files.
    ///
    /// # Errors
    ///
    /// The user said how, and that cannot be used.
    pub(crate) fn of(request: &CommandRequest, access: &Access<'_>) -> Result<Self, KeepError> {
        let mut recipe = Recipe::read(request, access)?;
        recipe.keeps_the_batch(request)?;
        if recipe.is_own {
            let batch = Some(batch(request, &recipe, request.preset, access)?);
            return Ok(Self { recipe, preset: request.preset, batch, ..Self::default() });
        }
        let Some(preset) = request.preset.or_else(|| Preset::of_command(&request.command, access)) else {
            return Self::of_script(request, access);
        };
        recipe.words = Some(Template::of(preset));
        match batch(request, &recipe, Some(preset), access) {
            Ok(batch) => {
                let evaluation = evaluation_of(preset, request, access);
                Ok(Self { recipe, preset: Some(preset), batch: Some(batch), evaluation, ..Self::default() })
            }
            // A trainer that was only found, not named.
            Err(KeepError::Batch { detail }) if request.preset.is_none() => {
                if is_fixed(request, preset, access) {
                    let found = Self::of_script(request, access)?;
                    if found.batch.is_some() {
                        return Ok(found);
                    }
                }
                let gap = Some(RungGap::Batch { detail });
                Ok(Self { preset: Some(preset), gap, ..Self::default() })
            }
            Err(error) => Err(error),
        }
    }

    /// What the script says of itself.
    fn of_script(request: &CommandRequest, access: &Access<'_>) -> Result<Self, KeepError> {
        let own = script(&request.command, access);
        let modules: Vec<Config> = own.iter().flat_map(|own| siblings(own, access)).collect();
        // Options of a module's own are none of the script's.
        let of_module = |module: &Config| Config { text: imported_text(module), ..module.clone() };
        let mut configs: Vec<Config> = modules.iter().map(of_module).collect();
        configs.extend(own.clone());
        configs.extend(named_files(&request.command, access));
        configs.push(command_line(&request.command));
        let evaluation = flag(&configs, Key::EvalBatch).ok().flatten();
        let by_variables = own.as_ref().and_then(|own| by_environment(own, &modules, request, access));
        let place = own.zip(script_path(&request.command, access));
        let found = match [Key::Batch, Key::Accumulation].map(|key| flag(&configs, key)) {
            [Ok(Some(micro)), Ok(Some(accum))] => {
                agrees(BatchPart::Micro, request.micro, &micro)?;
                agrees(BatchPart::Accum, request.accum, &accum)?;
                match undivided(&configs, &accum) {
                    Some(detail) => {
                        let templates = vec![format!("{} {}", micro.with("{micro}"), accum.with("{accum}"))];
                        Err(Some(RungGap::Flags { detail, templates }))
                    }
                    None => Ok(by_flags(&micro, Some(&accum), None)),
                }
            }
            [Ok(Some(micro)), Ok(None)] if let Some(whole) = whole_batch(&configs, &micro) => {
                agrees(BatchPart::Micro, request.micro, &micro)?;
                let (recipe, batch) = by_flags(&micro, None, None);
                Ok((Recipe { whole: Some(whole), ..recipe }, batch))
            }
            [Ok(Some(micro)), Ok(None)] => {
                agrees(BatchPart::Micro, request.micro, &micro)?;
                by_batch_flag(&micro, place.as_ref(), &modules, &configs, request.effective)
            }
            [Ok(None), Ok(accum)] => match &place {
                Some(place) => by_files(place, &modules, accum.as_ref(), request.effective),
                None => Err(None),
            },
            unknown => Err(Some(unknown_flags(&unknown))),
        };
        let missing = || {
            let part = request.micro.map(|_| BatchPart::Micro).or(request.accum.map(|_| BatchPart::Accum));
            part.map(|part| RungGap::Template { part })
        };
        let deaf = |recipe: &Recipe| {
            let option = deaf_option(&request.command).filter(|_| !recipe.scripts.is_empty())?;
            let detail = format!(
                "python {option} reads nothing at its start, so that it would not take a changed copy of its script"
            );
            Some(RungGap::Batch { detail })
        };
        let gap = match found {
            Ok((recipe, Some(batch))) => match deaf(&recipe) {
                None => return Ok(Self { recipe, batch: Some(batch), evaluation, ..Self::default() }),
                gap => gap,
            },
            Ok((_, None)) => missing(),
            Err(gap) => gap.or_else(missing),
        };
        let is_vague = matches!(gap, None | Some(RungGap::Batch { .. } | RungGap::Template { .. }));
        match by_variables.filter(|_| is_vague) {
            Some(Ok((recipe, batch))) => Ok(Self { recipe, batch, evaluation, ..Self::default() }),
            Some(Err(gap)) => Ok(Self { gap: Some(gap), evaluation, ..Self::default() }),
            None => {
                let gap = gap.or_else(|| by_named_file(&request.command, access));
                Ok(Self { gap, evaluation, ..Self::default() })
            }
        }
    }
}

/// Variables that a script reads its batch and its accumulation from. Where it divides by the accumulation, a retry changes them.
fn by_environment(
    script: &Config,
    modules: &[Config],
    request: &CommandRequest,
    access: &Access<'_>,
) -> Option<Result<(Recipe, Option<BatchSplit>), RungGap>> {
    let [micro, accum] = [Key::Batch, Key::Accumulation].map(|key| variable(script, key));
    let micro = micro?;
    let number = |variable: &Variable, given: Option<u64>| {
        let set = set_by_env(&request.command, &variable.name).or_else(|| (access.variable)(&variable.name));
        let number = match set {
            Some(set) => set.to_str().and_then(|set| set.trim().parse().ok()),
            None => variable.default,
        };
        number.or(given)
    };
    let samples = number(&micro, request.micro);
    let with = |template: &str, steps| {
        let recipe = Recipe { environment: Template::read_named(template).ok(), ..Recipe::default() };
        Some((recipe, Some(BatchSplit::new(samples?, steps?)?)))
    };
    let Some(accum) = accum else {
        let template = format!("{}={{micro}}", micro.name);
        let shrinks = with(&template, Some(1)).filter(|_| request.effective == EffectiveBatch::MayShrink);
        return shrinks.map(Ok);
    };
    let template = format!("{}={{micro}} {}={{accum}}", micro.name, accum.name);
    let steps = number(&accum, request.accum);
    let files: Vec<Config> = std::iter::once(script).chain(modules).cloned().collect();
    let found = with(&template, steps).filter(|_| divides_by(&files, &accum.name));
    Some(found.ok_or(RungGap::Environment { template, numbers: [samples, steps] }))
}

/// The flag of a trainer for the batch of evaluation, with the trainer's own default where nothing sets it.
fn evaluation_of(preset: Preset, request: &CommandRequest, access: &Access<'_>) -> Option<Flag> {
    let typed = flag(&[command_line(&request.command)], Key::EvalBatch).ok().flatten();
    let name = "per_device_eval_batch_size";
    let is_unset = || {
        let parser = script(&request.command, access)
            .is_some_and(|script| ["HfArgumentParser", "TrlParser"].iter().any(|parser| script.text.contains(parser)));
        let sources = || preset.sources(&request.command, access);
        parser && preset == Preset::HuggingFace && answer(&sources(), Question::Name(name)) == Answer::Absent
    };
    typed.or_else(|| is_unset().then(|| Flag { spelling: format!("--{name}"), number: 8 }))
}

/// What `env NAME=value` before a command sets a variable to.
fn set_by_env(command: &[OsString], name: &str) -> Option<OsString> {
    let mut words = at_script(command).0.iter().filter_map(|word| word.to_str()?.split_once('='));
    words.rfind(|(key, _)| *key == name).map(|(_, value)| value.into())
}

/// The flag for the batch of a whole step, beside one for what is computed at once: then the script itself accumulates
/// what is missing, as Megatron's, litgpt's and nanochat's do.
fn whole_batch(configs: &[Config], micro: &Flag) -> Option<Flag> {
    let is_part = ["micro", "device", "gpu", "rank"].iter().any(|word| micro.spelling.contains(word));
    let whole = flag(configs, Key::UpdateBatch).ok().flatten().filter(|_| is_part)?;
    // Samples, or tokens, of which a sample has many: in both a multiple.
    whole.number.is_multiple_of(micro.number.max(1)).then_some(whole)
}

/// A number that was given and one that the command has must be the same.
fn agrees(part: BatchPart, given: Option<u64>, flag: &Flag) -> Result<(), KeepError> {
    match given.filter(|given| *given != flag.number) {
        Some(given) => Err(KeepError::Contradiction { part, given, key: flag.spelling.clone(), number: flag.number }),
        None => Ok(()),
    }
}

/// Why flags are not used that are there, and how the user would name them.
fn unknown_flags([micro, accum]: &[Result<Option<Flag>, UnknownFlag>; 2]) -> RungGap {
    let names = |it: &Result<Option<Flag>, UnknownFlag>| match it {
        Ok(flag) => flag.iter().map(|flag| flag.spelling.clone()).collect(),
        Err(unknown) => unknown.flags.clone(),
    };
    let why = |it: &Result<Option<Flag>, UnknownFlag>| it.as_ref().err().map(|unknown| unknown.why.clone());
    let detail = why(micro).or_else(|| why(accum)).unwrap_or_default();
    let with = |spelling: String, place: BatchPart| Flag { spelling, number: 0 }.with(place.place());
    let accums: Vec<String> = names(accum);
    let both = |micro: String| {
        let micro = with(micro, BatchPart::Micro);
        accums.iter().map(move |accum| format!("{micro} {}", with(accum.clone(), BatchPart::Accum)))
    };
    let templates: Vec<String> = names(micro).into_iter().flat_map(both).collect();
    if templates.is_empty() { RungGap::Batch { detail } } else { RungGap::Flags { detail, templates } }
}

/// Whether the script itself sets what a trainer would take from the command line, and nothing else is in the way.
fn is_fixed(request: &CommandRequest, preset: Preset, access: &Access<'_>) -> bool {
    let sources = preset.sources(&request.command, access);
    let answers = [Key::Batch, Key::Accumulation].map(|key| preset.answer(&sources, key));
    let is_known = answers.iter().all(|answer| !matches!(answer, Answer::Unknown(_)));
    let is_refused = |answer: &Answer<'_>| match answer {
        Answer::Number { config, setting, .. } => preset.refusal(config, setting).is_some(),
        _ => false,
    };
    is_known && answers.iter().any(is_refused)
}

type Found = Result<(Recipe, Option<BatchSplit>), Option<RungGap>>;
/// A script as it was read, and where.
type Place = (Config, PathBuf);

/// Files of settings that a command line names.
pub(crate) fn named_files(command: &[OsString], access: &Access<'_>) -> Vec<Config> {
    let words = at_script(command).1.iter().filter_map(|word| word.to_str());
    let names = words.map(|word| word.rsplit('=').next().unwrap_or(word));
    let is_file = |name: &&str| matches!(Syntax::of_name(name), Some(Syntax::Yaml | Syntax::Json));
    names.filter(is_file).filter_map(|name| file(Path::new(name), access).ok()).collect()
}

fn by_flags(micro: &Flag, accum: Option<&Flag>, source: Option<(&Place, Slot, u64)>) -> (Recipe, Option<BatchSplit>) {
    let words = [Some(micro.with("{micro}")), accum.map(|accum| accum.with("{accum}"))];
    let words = words.into_iter().flatten().collect::<Vec<_>>().join(" ");
    let steps = accum.map(|accum| accum.number).or(source.as_ref().map(|(.., steps)| *steps)).unwrap_or(1);
    let script = source.map(|(place, slot, _)| Script::new(place, vec![(BatchPart::Accum, slot)]));
    let recipe =
        Recipe { words: Template::read(&words).ok(), scripts: script.into_iter().collect(), ..Recipe::default() };
    (recipe, BatchSplit::new(micro.number, steps))
}

/// A flag for the batch and none for accumulation, which may stand in the script or in a module of it.
fn by_batch_flag(
    micro: &Flag,
    place: Option<&Place>,
    modules: &[Config],
    configs: &[Config],
    effective: EffectiveBatch,
) -> Found {
    let steps = place.map_or(Ok(None), |(script, _)| hard_coded_steps(script));
    let imported = place.and_then(|(script, _)| imported_steps(script, modules));
    match (steps, place) {
        (Ok(Some((steps, slot))), Some(place)) => Ok(by_flags(micro, None, Some((place, slot, steps)))),
        (_, Some(place)) if let Some(NumberInFile { file, number, slot }) = imported => {
            Ok(by_flags(micro, None, Some((&place_of(file, place), slot, number))))
        }
        (Err(detail), _) => Err(Some(RungGap::Batch { detail })),
        _ if effective == EffectiveBatch::MayShrink => Ok(by_flags(micro, None, None)),
        // Where neither options nor a loop are to be seen, accumulation may be anywhere.
        _ if configs.iter().all(|it| library(it) == Library::Unknown && declarations(it).is_empty()) => {
            let detail = format!("no flag for gradient accumulation is known beside {}", micro.with(micro.number));
            let templates = vec![format!("{} --FLAG={{accum}}", micro.with("{micro}"))];
            Err(Some(RungGap::Flags { detail, templates }))
        }
        _ => Err(no_accumulation(place, micro.with("{}"), None, micro.number)),
    }
}

/// What a script trains with, as far as it shows.
fn library(script: &Config) -> Library {
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

/// A batch that stands in the script or in modules that it imports: both numbers in one file, or each in its own.
fn by_files(script: &Place, modules: &[Config], accum: Option<&Flag>, effective: EffectiveBatch) -> Found {
    let gap = match by_source(script, accum, effective) {
        Err(gap) => gap,
        found => return found,
    };
    // What the script says itself counts first: only where it names a module's number is that number its own.
    let is_its_own = |batch: &SourceBatch| match (&gap, batch) {
        (None, _) => true,
        (
            Some(RungGap::Batch { .. }),
            SourceBatch::Both(HardCoded { slots: [slot, _], .. }) | SourceBatch::Alone { slot, .. },
        ) => takes_batch_from(&script.0, slot.name()),
        _ => false,
    };
    let imported = imported_batch(&script.0, modules).filter(|(_, batch)| is_its_own(batch));
    if let Some((module, batch @ SourceBatch::Both(_))) = imported {
        return by_batch(&place_of(module, script), batch, accum, effective);
    }
    if let Some(numbers) = split_batch(&script.0, modules).filter(|_| accum.is_none()) {
        return Ok(by_numbers(script, numbers));
    }
    imported.map_or(Err(gap), |imported| by_module(script, imported, accum, effective))
}

/// Two numbers, each with its file.
fn by_numbers(script: &Place, numbers: [NumberInFile<'_>; 2]) -> (Recipe, Option<BatchSplit>) {
    let batch = BatchSplit::new(numbers[0].number, numbers[1].number);
    let mut scripts: Vec<Script> = Vec::new();
    for (part, NumberInFile { file, slot, .. }) in [BatchPart::Micro, BatchPart::Accum].into_iter().zip(numbers) {
        let place = place_of(file, script);
        match scripts.iter_mut().find(|script| script.path == place.1) {
            Some(same) => same.slots.push((part, slot)),
            None => scripts.push(Script::new(&place, vec![(part, slot)])),
        }
    }
    scripts.sort_by_key(|it| it.path != script.1);
    (Recipe { scripts, ..Recipe::default() }, batch)
}

/// The script as it was read, or a module, whose name is its path.
fn place_of(file: &Config, script: &Place) -> Place {
    let path = if *file == script.0 { script.1.clone() } else { PathBuf::from(&file.name) };
    (file.clone(), path)
}

/// A batch that stands in a module that the script imports; accumulation by a flag, or nowhere.
fn by_module(
    script: &Place,
    (module, batch): (&Config, SourceBatch),
    accum: Option<&Flag>,
    effective: EffectiveBatch,
) -> Found {
    let place = place_of(module, script);
    let SourceBatch::Alone { micro, slot } = &batch else { return by_batch(&place, batch, accum, effective) };
    if accum.is_some() || effective == EffectiveBatch::MayShrink {
        return by_batch(&place, batch, accum, effective);
    }
    let line = module.line_of(slot.setting.span.start);
    let at = format!("{}, line {line}", module.name);
    match hard_coded_steps(&script.0) {
        Ok(Some((steps, other))) => {
            let (file, name) = (&script.0.name, other.name());
            let beside = script.0.line_of(other.setting.span.start);
            let detail = format!(
                "{at}: {} is {micro}, and {name} ({steps}, {file}, line {beside}) is set elsewhere too",
                slot.name()
            );
            Err(Some(RungGap::Batch { detail }))
        }
        Err(detail) => Err(Some(RungGap::Batch { detail })),
        Ok(None) => Err(no_accumulation(Some(script), format!("{} = {{}} ({at})", slot.name()), None, *micro)),
    }
}

/// A batch that stands in the script; accumulation there too, or by a flag.
fn by_source(place: &Place, accum: Option<&Flag>, effective: EffectiveBatch) -> Found {
    by_batch(place, hard_coded(&place.0), accum, effective)
}

fn by_batch(place: &Place, batch: SourceBatch, accum: Option<&Flag>, effective: EffectiveBatch) -> Found {
    let with_script = |slots, words: Option<String>, micro, steps| {
        let words = words.and_then(|words| Template::read(&words).ok());
        let recipe = Recipe { words, scripts: vec![Script::new(place, slots)], ..Recipe::default() };
        Ok((recipe, BatchSplit::new(micro, steps)))
    };
    match (batch, accum) {
        (SourceBatch::Absent, _) => Err(None),
        (SourceBatch::Unknown(detail), _) => Err(Some(RungGap::Batch { detail })),
        (SourceBatch::Both(HardCoded { micro, accum, slots: [one, other] }), None) => {
            with_script(vec![(BatchPart::Micro, one), (BatchPart::Accum, other)], None, micro, accum)
        }
        (
            SourceBatch::Both(HardCoded { micro, slots: [slot, _], .. }) | SourceBatch::Alone { micro, slot },
            Some(accum),
        ) => with_script(vec![(BatchPart::Micro, slot)], Some(accum.with("{accum}")), micro, accum.number),
        (SourceBatch::Alone { micro, slot }, None) if effective == EffectiveBatch::MayShrink => {
            with_script(vec![(BatchPart::Micro, slot)], None, micro, 1)
        }
        (SourceBatch::Alone { micro, slot }, None) => {
            let sign = if slot.setting.scope == lowtide_config::Scope::Call { "=" } else { " = " };
            let line = place.0.line_of(slot.setting.span.start);
            Err(no_accumulation(Some(place), format!("{}{sign}{{}}", slot.name()), Some(line), micro))
        }
    }
}

fn no_accumulation(place: Option<&Place>, batch: String, line: Option<usize>, samples: u64) -> Option<RungGap> {
    let rungs = BatchSplit::new(samples, 1)?.rungs(1);
    let smaller = *rungs.get(2).or(rungs.last())?;
    let script = place.map(|(_, path)| path.to_string_lossy().into_owned());
    let training_loop = place.map_or(Err(LoopGap::Unknown), |(script, _)| training_loop(script, smaller.accum));
    let library = place.map_or(Library::Unknown, |(script, _)| library(script));
    let missing = NoAccumulation { script, batch, line, samples, smaller, library, training_loop };
    Some(RungGap::NoAccumulation(Box::new(missing)))
}

/// The batch of the command as it was given, by a template or a trainer's own flags.
fn batch(
    request: &CommandRequest,
    recipe: &Recipe,
    preset: Option<Preset>,
    access: &Access<'_>,
) -> Result<BatchSplit, KeepError> {
    let sources = preset.map_or(Vec::new(), |preset| preset.sources(&request.command, access));
    let sought = |part: BatchPart, given: Option<u64>, key: Key, index: usize| {
        match (given, recipe.number(part.place(), &request.command, access)) {
            (Some(given), Ok(Some((key, number)))) if given != number => {
                Err(KeepError::Contradiction { part, given, key, number })
            }
            (Some(given), _) => Ok(Some(given)),
            // A trainer knows what overrides its own flags, and nothing of a template of the user's own.
            (None, there) if recipe.is_own && !matches!(there, Ok(None)) => Ok(there?.map(|(_, number)| number)),
            (None, _) => {
                let Some(preset) = preset else { return Ok(None) };
                match preset.answer(&sources, key) {
                    Answer::Number { number, config, setting } => match preset.refusal(config, setting) {
                        Some(detail) if !recipe.is_own => Err(KeepError::Batch { detail }),
                        _ => Ok(Some(number)),
                    },
                    Answer::Unknown(detail) => Err(KeepError::Batch { detail }),
                    Answer::Absent => Ok(preset.defaults()[index]),
                }
            }
        }
    };
    let micro = sought(BatchPart::Micro, request.micro, Key::Batch, 0)?;
    let accum = sought(BatchPart::Accum, request.accum, Key::Accumulation, 1)?;
    let keys: Vec<&str> = recipe.templates().filter_map(|template| template.key_of("{micro}")).collect();
    let Some(micro) = micro else {
        return Err(KeepError::Batch { detail: format!("{} is not set", keys.join(" ")) });
    };
    let none = || KeepError::Batch { detail: format!("{micro} x {} is no batch", accum.unwrap_or(1)) };
    BatchSplit::new(micro, accum.unwrap_or(1)).ok_or_else(none)
}
