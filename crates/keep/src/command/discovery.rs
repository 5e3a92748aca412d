//! How a command takes a smaller micro-batch, where the user does not say it: by the flags of a known trainer, by the flags
//! that the script declares, or by numbers that stand in the script.
//!
//! How a command takes a smaller micro-batch is looked for in this order: a template of the user's, a known trainer's
//! flags, flags that the script or a module beside it declares (`trainers/declaration.rs`, `trainers/flag.rs`), numbers
//! that stand in the script or in modules that it imports (`trainers/hard_coded.rs`, `trainers/split_batch.rs`), variables that it
//! reads. A number counts as accumulation only where the loss is divided by it, or a library is given it
//! (`trainers/accumulation.rs`); an option that the script itself sets again counts for nothing.

use lowtide_config::Config;
use lowtide_trainers::{
    Access, Answer, Flag, Key, Preset, Question, UnknownFlag, answer, check_whole, command_line, declarations,
    divides_whole, flag, imported_text, script, script_path, siblings,
};

use crate::command::environment::by_environment;
use crate::command::found::{Found, Place};
use crate::command::gap::RungGap;
use crate::command::named_config::{by_named_file, named_files};
use crate::command::recipe::Recipe;
use crate::command::script_copy::deaf_option;
use crate::command::source_batch::{Search, by_batch_flag, by_files};
use crate::{BatchPart, BatchSplit, CommandRequest, KeepError, Template};

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
                let none = Self { preset: Some(preset), evaluation, ..Self::default() };
                match by_preset(preset, recipe, batch, request, access) {
                    Ok(Found { recipe, batch, .. }) => Ok(Self { recipe, batch, ..none }),
                    Err(gap) => Ok(Self { gap: Some(gap), ..none }),
                }
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
        let mut configs = own_configs(own.as_ref(), &modules);
        configs.extend(named_files(&request.command, access));
        configs.push(command_line(&request.command));
        let evaluation = flag(&configs, Key::EvalBatch).ok().flatten();
        let checked = |found: Found| found.checked(request, &configs, access);
        let by_variables = own.as_ref().and_then(|own| by_environment(own, &modules, request, access));
        let place = own.zip(script_path(&request.command, access));
        let found = search(&configs, place.as_ref(), &modules, request)?.and_then(|found| checked(found).map_err(Some));
        let missing = || {
            let part = request.micro.map(|_| BatchPart::Micro).or(request.accum.map(|_| BatchPart::Accum));
            part.map(|part| RungGap::Template { part })
        };
        let gap = match found {
            Ok(Found { recipe, batch: Some(batch), .. }) => match deaf(&recipe, request) {
                None => return Ok(Self { recipe, batch: Some(batch), evaluation, ..Self::default() }),
                gap => gap,
            },
            Ok(_) => missing(),
            Err(gap) => gap.or_else(missing),
        };
        let is_vague = matches!(gap, None | Some(RungGap::Batch { .. } | RungGap::Template { .. }));
        match by_variables.filter(|_| is_vague).map(|found| found.and_then(checked)) {
            Some(Ok(Found { recipe, batch, .. })) => Ok(Self { recipe, batch, evaluation, ..Self::default() }),
            Some(Err(gap)) => Ok(Self { gap: Some(gap), evaluation, ..Self::default() }),
            None => {
                let gap = gap.or_else(|| by_named_file(&request.command, access));
                Ok(Self { gap, evaluation, ..Self::default() })
            }
        }
    }
}

/// A script and the modules that it imports; options of a module's own are none of the script's.
fn own_configs(script: Option<&Config>, modules: &[Config]) -> Vec<Config> {
    let of_module = |module: &Config| Config { text: imported_text(module), ..module.clone() };
    modules.iter().map(of_module).chain(script.cloned()).collect()
}

/// What a retry would change by flags, or by numbers in the script and its modules.
fn search(
    configs: &[Config],
    place: Option<&Place>,
    modules: &[Config],
    request: &CommandRequest,
) -> Result<Search, KeepError> {
    Ok(match [Key::Batch, Key::Accumulation].map(|key| flag(configs, key)) {
        [Ok(Some(micro)), Ok(Some(accum))] => {
            agrees(BatchPart::Micro, request.micro, &micro)?;
            agrees(BatchPart::Accum, request.accum, &accum)?;
            Ok(Found::by_flags(&micro, &accum))
        }
        [Ok(Some(micro)), Ok(None)] if let Some(whole) = whole_batch(configs, &micro) => {
            agrees(BatchPart::Micro, request.micro, &micro)?;
            let files: Vec<&Config> = configs.iter().collect();
            if let Err(detail) = check_whole(&files, &whole.name, &micro.name) {
                return Ok(Err(Some(RungGap::Batch { detail })));
            }
            let found = Found::by_flag(&micro);
            Ok(Found { recipe: Recipe { whole: Some(whole), ..found.recipe }, ..found })
        }
        [Ok(Some(micro)), Ok(None)] => {
            agrees(BatchPart::Micro, request.micro, &micro)?;
            by_batch_flag(&micro, place, modules, configs, request.effective)
        }
        [Ok(None), Ok(accum)] => match place {
            Some(place) => by_files(place, modules, accum.as_ref(), request.effective),
            None => Err(None),
        },
        unknown => Err(Some(unknown_flags(&unknown))),
    })
}

/// What a retry would change for a known trainer.
fn by_preset(
    preset: Preset,
    recipe: Recipe,
    batch: BatchSplit,
    request: &CommandRequest,
    access: &Access<'_>,
) -> Result<Found, RungGap> {
    let own = script(&request.command, access);
    let modules: Vec<Config> = own.iter().flat_map(|own| siblings(own, access)).collect();
    let mut configs = own_configs(None, &modules);
    configs.extend(preset.sources(&request.command, access));
    let names = Some(preset.keys().map(|key| key.rsplit('.').next().unwrap_or(key).to_owned()));
    let found = Found { recipe, batch: Some(batch), names };
    // Whose arguments come from Hugging Face's parser leaves the loop to the Trainer; and what was named is taken as it is.
    match request.preset.is_some() || own.as_ref().is_some_and(has_trainers_parser) {
        true => found.taken(request, &configs, access),
        false => found.checked(request, &configs, access),
    }
}

/// Whether a script has its arguments from Hugging Face's parser.
fn has_trainers_parser(script: &Config) -> bool {
    ["HfArgumentParser", "TrlParser"].iter().any(|parser| script.text.contains(parser))
}

/// Why a changed copy of a script would not be taken.
fn deaf(recipe: &Recipe, request: &CommandRequest) -> Option<RungGap> {
    let option = deaf_option(&request.command).filter(|_| !recipe.scripts.is_empty())?;
    let detail =
        format!("python {option} reads nothing at its start, so that it would not take a changed copy of its script");
    Some(RungGap::Batch { detail })
}

/// The flag of a trainer for the batch of evaluation, with the trainer's own default where nothing sets it.
fn evaluation_of(preset: Preset, request: &CommandRequest, access: &Access<'_>) -> Option<Flag> {
    let typed = flag(&[command_line(&request.command)], Key::EvalBatch).ok().flatten();
    let name = "per_device_eval_batch_size";
    let is_unset = || {
        let parser = script(&request.command, access).as_ref().is_some_and(has_trainers_parser);
        let sources = || preset.sources(&request.command, access);
        parser && preset == Preset::HuggingFace && answer(&sources(), Question::Name(name)) == Answer::Absent
    };
    typed.or_else(|| is_unset().then(|| Flag::new(format!("--{name}"), 8)))
}

/// The flag for the batch of a whole step, beside one for what is computed at once: then the script itself accumulates
/// what is missing, as Megatron's, litgpt's and nanochat's do.
fn whole_batch(configs: &[Config], micro: &Flag) -> Option<Flag> {
    let whole = flag(configs, Key::UpdateBatch).ok().flatten()?;
    let files: Vec<&Config> = configs.iter().collect();
    let is_declared = || configs.iter().flat_map(declarations).any(|it| [&micro.name, &whole.name].contains(&&it.name));
    // Where the script is not to be seen, these two names say it.
    let says_so = micro.spelling.contains("micro") && whole.spelling.contains("global");
    let accumulates = divides_whole(&files, &whole.name, &micro.name) || says_so && !is_declared();
    // Samples, or tokens, of which a sample has many: in both a multiple.
    (accumulates && whole.number.is_multiple_of(micro.number.max(1))).then_some(whole)
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
    let with = |spelling: String, place: BatchPart| Flag::new(spelling, 0).with(place.place());
    let accums: Vec<String> = names(accum);
    let both = |micro: String| {
        let micro = with(micro, BatchPart::Micro);
        accums.iter().map(move |accum| format!("{micro} {}", with(accum.clone(), BatchPart::Accum)))
    };
    let templates: Vec<String> = names(micro).into_iter().flat_map(both).collect();
    let samples = micro.as_ref().ok().and_then(Option::as_ref).map(|flag| flag.number);
    if templates.is_empty() { RungGap::Batch { detail } } else { RungGap::Flags { detail, templates, samples } }
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

#[cfg(test)]
mod tests {
    use std::ffi::OsString;
    use std::path::Path;

    use lowtide_config::command::split;

    use super::*;

    /// The batch that rungs begin with and what they change; or why there are none.
    fn told(command: &str, files: &[(&str, &str)]) -> String {
        let command = split(command).unwrap().into_iter().map(OsString::from).collect();
        let read = |path: &Path| {
            let file = files.iter().find(|(name, _)| Path::new(name) == path);
            file.map(|(_, text)| (*text).to_owned())
        };
        let access = Access { variable: &|_| None, read: &read, cards: &|| 1 };
        let request = CommandRequest { command, ..CommandRequest::default() };
        let Discovery { recipe, batch, gap, .. } = Discovery::of(&request, &access).unwrap();
        match (batch, gap) {
            (Some(batch), None) => format!("{batch} by {}", recipe.names().join(" ")),
            (
                None,
                Some(RungGap::Batch { detail } | RungGap::Flags { detail, .. } | RungGap::OtherTraining { detail, .. }),
            ) => detail,
            (None, Some(RungGap::Refused(refusal))) => format!("{}; {}", refusal.detail, refusal.remedy),
            (None, Some(RungGap::Environment { detail, .. })) => detail.unwrap_or_default(),
            (None, Some(RungGap::NoAccumulation(missing))) => format!("{} alone", missing.batch),
            other => format!("{other:?}"),
        }
    }

    const OPTIONS: &str = "p.add_argument('--batch-size', type=int, default=64)\n\
                           p.add_argument('--accum', type=int, default=1)\nargs = p.parse_args()\n";
    const LOOP: &str = "for i, x in enumerate(loader):\n    (f(x) / args.accum).backward()\n    \
                        if (i + 1) % args.accum == 0: opt.step()\n";

    #[track_caller]
    fn check(script: &str, expected: &str) {
        assert_eq!(told("python t.py", &[("t.py", script)]), expected, "{script}");
    }

    #[test]
    fn a_batch_that_the_script_cuts_itself() {
        let loader = "loader = DataLoader(d, batch_size=args.batch_size // args.accum)\n";
        check(&format!("{OPTIONS}{loader}{LOOP}"), "64 x 1 by --accum");
        let chunks = "for part in x.chunk(args.accum): (f(part) / args.accum).backward()\n";
        check(&format!("{OPTIONS}{chunks}"), "64 x 1 by --accum");
        let script = format!("{OPTIONS}{loader}{LOOP}");
        assert_eq!(told("python t.py --accum 4", &[("t.py", &script)]), "16 x 4 by --accum");
        let detail = "the script divides its batch of 64 by accumulation, and 3 is no divisor";
        assert_eq!(told("python t.py --accum 3", &[("t.py", &script)]), detail);
        check(&format!("{OPTIONS}{}{LOOP}", loader.replace(" // args.accum", "")), "64 x 1 by --batch-size --accum");
        let changed = "args.batch_size = args.batch_size // args.accum\n";
        check(&format!("{OPTIONS}{changed}{LOOP}"), "64 x 1 by --accum");
        let constants = "BATCH_SIZE = 64\nACCUM_STEPS = 2\nd = DataLoader(x, batch_size=BATCH_SIZE // ACCUM_STEPS)\n\
                         (f(x) / ACCUM_STEPS).backward()\n";
        check(constants, "32 x 2 by ACCUM_STEPS in line 2 of t.py");
        let variables = "b = int(os.environ.get('BATCH_SIZE', 64))\nn = int(os.environ.get('ACCUM_STEPS', 1))\n\
                         d = DataLoader(x, b // n)\n(f(x) / n).backward()\n";
        check(variables, "64 x 1 by ACCUM_STEPS");
    }

    #[test]
    fn fewer_updates_are_no_retry() {
        let steps = LOOP.replace("for i, x in enumerate(loader)", "for i in range(args.max_steps)");
        let detail = "t.py, line 4: the loop ends after a number of micro-batches (`range(args.max_steps)`), so that with \
                      more accumulation it would make fewer updates";
        check(&format!("{OPTIONS}{steps}"), detail);
        let constants = "BATCH_SIZE = 8\nACCUM = 2\nd = DataLoader(x, batch_size=BATCH_SIZE)\n";
        let looped = steps.replace("args.accum", "ACCUM").replace("args.max_steps", "1000");
        check(&format!("{constants}{looped}"), &detail.replace("args.max_steps", "1000"));
        let variables =
            "b = int(os.environ.get('BATCH_SIZE', 64))\nn = int(os.environ.get('ACCUM_STEPS', 1))\nd = Data(b)\n";
        let looped = steps.replace("args.accum", "n");
        check(&format!("{variables}{looped}"), detail);
    }

    #[test]
    fn a_whole_batch_that_only_scales_something_else() {
        let options = "p.add_argument('--per-gpu-batch-size', type=int, default=32)\n\
                       p.add_argument('--total-batch-size', type=int, default=256)\n";
        let scaled = format!("{options}lr = args.lr * args.total_batch_size / 256\nloss.backward()\nopt.step()\n");
        check(&scaled, "--per-gpu-batch-size={} alone");
        let divided = format!("{options}n = args.total_batch_size // (args.per_gpu_batch_size * world)\n");
        check(&divided, "32 x 1 by --per-gpu-batch-size");
        let plain = "p.add_argument('--batch-size', type=int, default=32)\np.add_argument('--global-batch-size', type=int, default=256)\n\
                     accum = args.global_batch_size // args.batch_size\n";
        let turn = "if (i + 1) % accum == 0: opt.step()\n";
        check(&format!("{plain}(f(x) / accum).backward()\n{turn}"), "32 x 1 by --batch-size");
        let detail = "t.py, line 4: the loss is not divided by accum, so that another would change the gradients";
        check(&format!("{plain}f(x).backward()\n{turn}"), detail);
        // Where nothing is to be seen, the names of Megatron's say it.
        let hidden = [("t.py", "from megatron import pretrain\n")];
        let named = |names: &str| told(&format!("python t.py {names}"), &hidden);
        assert_eq!(named("--micro-batch-size 4 --global-batch-size 64"), "4 x 1 by --micro-batch-size");
        let unknown = "no flag for gradient accumulation is known beside --per-gpu-batch-size=4";
        assert_eq!(named("--per-gpu-batch-size 4 --total-batch-size 64"), unknown);
    }

    #[test]
    fn options_that_take_some_numbers_alone() {
        let some = OPTIONS.replace("default=64", "default=64, choices=[16, 32, 64]");
        check(&format!("{some}{LOOP}"), "64 x 1 by --batch-size --accum");
        let several = OPTIONS.replace("default=64", "nargs='+'");
        let script = format!("{several}{LOOP}");
        let detail = "t.py, line 1: --batch-size takes several values, or some that are not read";
        assert_eq!(told("python t.py --batch-size 32 64", &[("t.py", &script)]), detail);
    }

    #[test]
    fn a_file_of_settings_that_is_not_read() {
        let script = format!("{OPTIONS}p.add_argument('--config')\n{LOOP}");
        let told = |words: &str| told(&format!("python t.py {words}"), &[("t.py", &script), ("a.json", "{not json")]);
        for file in ["base.toml", "settings.ini", "none.yaml"] {
            assert_eq!(told(&format!("--config {file}")), format!("--batch-size may be set in {file}"));
            assert_eq!(told(&format!("--config={file} --batch-size=8 --accum 2")), "8 x 2 by --batch-size --accum");
        }
        assert_eq!(told("--data a.json"), "64 x 1 by --batch-size --accum");
    }

    #[test]
    fn what_hugging_face_and_deepspeed_must_agree_on() {
        let script = "HfArgumentParser(TrainingArguments)\n";
        let told = |file: &str| {
            let command = "deepspeed t.py --per_device_train_batch_size 16 --deepspeed ds.json";
            told(command, &[("t.py", script), ("ds.json", file)])
        };
        let both = "16 x 1 by --per_device_train_batch_size --gradient_accumulation_steps";
        let fixed = "{\n  \"zero_optimization\": {\"stage\": 2},\n  \"train_micro_batch_size_per_gpu\": 16\n}\n";
        assert_eq!(told(&fixed.replace("16", "\"auto\"")), both);
        assert_eq!(
            told(fixed),
            "ds.json, line 3: train_micro_batch_size_per_gpu is 16 for DeepSpeed, whatever a retry changes; \
             \"train_micro_batch_size_per_gpu\": \"auto\" in ds.json lets a retry change it"
        );
        let steps = "{\"zero_optimization\": {}, \"gradient_accumulation_steps\": 1, \"train_batch_size\": 64}\n";
        assert!(told(steps).starts_with("ds.json, line 1: gradient_accumulation_steps is 1 for DeepSpeed"));
        assert_eq!(told(&steps.replace(": 1,", ": \"auto\",")), both);
    }

    #[test]
    fn what_lightning_refuses_or_counts_itself() {
        let script = |model: &str, trainer: &str| {
            format!("import lightning as L\n{model}d = DataLoader(x, batch_size=32)\nt = L.Trainer({trainer})\n")
        };
        check(&script("", "max_epochs=1"), "32 x 1 by batch_size in line 2 accumulate_grad_batches in line 3 of t.py");
        let manual =
            "class Net(L.LightningModule):\n    def __init__(self):\n        self.automatic_optimization = False\n";
        let found = told("python t.py", &[("t.py", &script(manual, "max_epochs=1"))]);
        let detail = "t.py, line 4: automatic_optimization is off, and Lightning refuses accumulate_grad_batches for a model \
                      that updates its weights itself";
        assert!(found.starts_with(detail), "{found}");
        let files = [("m.py", manual), ("t.py", "from m import Net\nLightningCLI(Net, Data)\n")];
        let found = told("python t.py fit --data.batch_size 8", &files);
        assert!(found.starts_with("m.py, line 3: automatic_optimization is off"), "{found}");
        let found = told("python t.py", &[("t.py", &script("", "max_epochs=1, limit_train_batches=100"))]);
        let detail = "t.py, line 3: limit_train_batches=100 counts micro-batches, so that a smaller one would make an epoch \
                      smaller";
        assert!(found.starts_with(detail), "{found}");
        check(
            &script("", "limit_train_batches=0.1"),
            "32 x 1 by batch_size in line 2 accumulate_grad_batches in line 3 of t.py",
        );
        let files = [("t.py", "LightningCLI(Net, Data)\n")];
        let found = told("python t.py fit --data.batch_size 8 --trainer.limit_train_batches=50", &files);
        assert!(found.starts_with("command line: limit_train_batches=50 counts micro-batches"), "{found}");
    }
}
