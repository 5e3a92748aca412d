//! The ways of well-known trainers to say their batch, and how to tell them by the command line.

use std::ffi::{OsStr, OsString};
use std::path::Path;

use lowtide_config::{Config, Setting, Syntax, whole_number};

use crate::command::config_file::{read, syntax_of};
use crate::command::found::Found;
use crate::command::python::{assigned, defaulted};
use crate::command::template::{Template, all_of, current};

/// Trainers whose flags are known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Preset {
    /// nanoGPT and its kin: Python files for settings, overridden by `--key=value`.
    NanoGpt,
    /// Hugging Face's Trainer and the example scripts of accelerate.
    HuggingFace,
    /// Lightning's command line.
    Lightning,
}

/// What is to be had besides the command line.
pub struct Surroundings<'a> {
    /// A variable of the environment.
    pub variable: &'a dyn Fn(&str) -> Option<OsString>,
    /// The text of a file.
    pub read: &'a dyn Fn(&Path) -> Option<String>,
    /// How many cards there are.
    pub cards: &'a dyn Fn() -> u64,
}

impl Preset {
    /// The name that people type.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::NanoGpt => "nanogpt",
            Self::HuggingFace => "hf",
            Self::Lightning => "lightning",
        }
    }

    /// The keys of the micro-batch and of accumulation.
    const fn keys(self) -> [&'static str; 2] {
        match self {
            Self::NanoGpt => ["--batch_size", "--gradient_accumulation_steps"],
            Self::HuggingFace => ["--per_device_train_batch_size", "--gradient_accumulation_steps"],
            Self::Lightning => ["--data.batch_size", "--trainer.accumulate_grad_batches"],
        }
    }

    /// What a rung changes.
    pub(crate) fn template(self) -> Template {
        let [micro, accum] = self.keys();
        Template::read(&format!("{micro}={{micro}} {accum}={{accum}}")).expect("our own template")
    }

    /// Whether all processes of a group share accumulation out among them, so that it is a multiple of their number.
    pub(crate) const fn shares_accumulation(self) -> bool {
        matches!(self, Self::NanoGpt)
    }

    /// What the trainer takes where nobody says a number: micro-batch and accumulation.
    const fn defaults(self) -> [Option<u64>; 2] {
        match self {
            Self::NanoGpt => [None, None],
            Self::HuggingFace => [Some(8), Some(1)],
            Self::Lightning => [None, Some(1)],
        }
    }

    /// The trainer of a command line, where it shows.
    #[must_use]
    pub fn find(command: &[OsString], around: &Surroundings<'_>) -> Option<Self> {
        let has = |key: &str| current(command, key).is_some();
        if has("--per_device_train_batch_size") {
            return Some(Self::HuggingFace);
        }
        let dotted = command.iter().any(|word| word.to_str().is_some_and(|word| word.starts_with("--trainer.")));
        if has("--data.batch_size") || has("--trainer.accumulate_grad_batches") || dotted {
            return Some(Self::Lightning);
        }
        let script = (around.read)(script(command)?)?;
        let says = |words: &[&str]| words.iter().all(|word| script.contains(word));
        if says(&["configurator.py", "gradient_accumulation_steps"]) {
            return Some(Self::NanoGpt);
        }
        if says(&["LightningCLI("]) {
            return Some(Self::Lightning);
        }
        says(&["HfArgumentParser", "TrainingArguments"]).then_some(Self::HuggingFace)
    }

    /// The micro-batch and accumulation of a command line, as far as they are said anywhere.
    pub(crate) fn numbers(self, command: &[OsString], around: &Surroundings<'_>) -> [Found; 2] {
        let [micro, accum] = self.defaults();
        let [micro_key, accum_key] = self.keys();
        [(micro_key, micro), (accum_key, accum)].map(|(key, default)| {
            let found = self.said(command, key).or_else(|| self.in_files(command, key, around));
            found.or_else(|| default.map_or(Found::Nowhere, Found::Number))
        })
    }

    /// A number on the command line.
    pub(crate) fn said(self, command: &[OsString], key: &str) -> Found {
        let typed = current(command, key).or_else(|| current(command, &deeper(key)?));
        let Some(typed) = typed else { return Found::Nowhere };
        // nanoGPT takes words in their order, so that a file overrides what stands before it.
        if self == Self::NanoGpt
            && let Some(file) = settings_of(command).into_iter().find(|file| comes_after(command, file, key))
        {
            let file = file.display();
            return Found::Unknown(format!("{key} stands before {file}, which may set it again"));
        }
        let typed = typed.to_string_lossy();
        let no_number = || Found::Unknown(format!("{key} is `{typed}`, which is no number"));
        whole_number(&typed).map_or_else(no_number, Found::Number)
    }

    /// A number in the files that a command line names; those named later count.
    fn in_files(self, command: &[OsString], key: &str, around: &Surroundings<'_>) -> Found {
        let name = key.trim_start_matches('-');
        let script = || script(command).and_then(|path| Some((path, (around.read)(path)?)));
        match self {
            Self::NanoGpt => {
                let set = settings_of(command).into_iter().rev().map(|path| match (around.read)(path) {
                    Some(text) => assigned(&text, name, &path.to_string_lossy()),
                    None => Found::Unknown(format!("{name} may be set in {}, which cannot be read", path.display())),
                });
                let script = || match script() {
                    Some((path, text)) => assigned(before_configurator(&text), name, &path.to_string_lossy()),
                    None => Found::Nowhere,
                };
                set.fold(Found::Nowhere, |found, next| found.or_else(|| next)).or_else(script)
            }
            Self::HuggingFace => {
                if let Some(file) = arguments_from(command, around) {
                    return Found::Unknown(format!(
                        "{name} may be set in {file}, which the script reads its arguments from"
                    ));
                }
                let script =
                    || script().map_or(Found::Nowhere, |(path, text)| defaulted(&text, name, &path.to_string_lossy()));
                in_configs(command, name, around).or_else(script)
            }
            Self::Lightning => {
                // Trainer settings may have other defaults in the script; those of the data's class are not looked for.
                let option = name.strip_prefix("trainer.");
                let script = || match (option, script()) {
                    (Some(option), Some((path, text))) => defaulted(&text, option, &path.to_string_lossy()),
                    _ => Found::Nowhere,
                };
                let group = key.split('.').next().unwrap_or(key);
                if let Some(file) = current(command, group).map(Path::new).filter(|file| syntax_of(file).is_some()) {
                    return Found::Unknown(format!("{name} may be set in {}, the file of {group}", file.display()));
                }
                in_configs(command, name, around).or_else(script)
            }
        }
    }
}

/// A key as Lightning has it where the class is named in a file: one level deeper.
fn deeper(key: &str) -> Option<String> {
    key.rsplit_once('.').map(|(path, name)| format!("{path}.init_args.{name}"))
}

/// Files of settings that follow nanoGPT's script.
fn settings_of(command: &[OsString]) -> Vec<&Path> {
    let after = command.iter().skip_while(|word| !is_python(word)).skip(1);
    after.filter(|word| is_python(word)).map(Path::new).collect()
}

/// Whether a file stands after the last word that sets a key.
fn comes_after(command: &[OsString], file: &Path, key: &str) -> bool {
    let place = command.iter().rposition(|word| Path::new(word) == file).unwrap_or(0);
    current(&command[place..], key).is_none()
}

/// What is set before nanoGPT's script reads its files and flags: what comes after is computed from them.
fn before_configurator(text: &str) -> &str {
    let end = text.rfind("configurator.py").unwrap_or(text.len());
    &text[..text[..end].rfind('\n').map_or(0, |line| line + 1)]
}

/// A file that Hugging Face's parser takes arguments from, besides the command line.
fn arguments_from(command: &[OsString], around: &Surroundings<'_>) -> Option<String> {
    let place = command.iter().position(|word| is_python(word))?;
    let beside = Path::new(&command[place]).with_extension("args");
    if (around.read)(&beside).is_some() {
        return Some(beside.to_string_lossy().into_owned());
    }
    let own = command[place..].windows(2).find_map(|words| {
        let [before, word] = words else { return None };
        let (before, word) = (before.to_string_lossy(), word.to_string_lossy());
        let is_value = before.starts_with('-') && !before.contains('=');
        let is_file = matches!(syntax_of(Path::new(&*word)), Some(Syntax::Yaml | Syntax::Json));
        let positional = is_file && !is_value && !word.starts_with('-');
        (word.starts_with('@') || positional).then(|| word.into_owned())
    });
    own.or_else(|| Some(current(command, "--args_file")?.to_string_lossy().into_owned()))
}

/// A number in the configurations of `--config`, of which the later ones count.
fn in_configs(command: &[OsString], key: &str, around: &Surroundings<'_>) -> Found {
    let all = [all_of(command, "--config"), all_of(command, "-c")].concat();
    let mut found = Found::Nowhere;
    for path in all.into_iter().map(Path::new) {
        found = match read(path, around) {
            Ok(config) => setting_of(&config, key, path).or_else(|| found),
            Err(problem) => Found::Unknown(format!("{key} may be set in {}, which {problem}", path.display())),
        };
    }
    found
}

fn setting_of(config: &Config, key: &str, path: &Path) -> Found {
    let path = path.display();
    let keys = [Some(key.to_owned()), deeper(key)].into_iter().flatten();
    // Where the file stands before the command `fit`, it has a level for each command.
    for key in keys.flat_map(|key| [format!("fit.{key}"), key]) {
        if let Some(setting) = config.at(&key) {
            return match whole_number(&setting.value) {
                Some(number) => Found::Number(number),
                None if setting.value == "null" => Found::Nowhere,
                None => Found::Unknown(format!("{key} is `{}` in {path}, which is no number", setting.value)),
            };
        }
        let below = |setting: &Setting| setting.path.join(".").starts_with(&format!("{key}."));
        if config.settings.iter().any(below) {
            return Found::Unknown(format!("{key} is several values in {path}"));
        }
    }
    // An alias, a value over several lines: there, and not read.
    let name = key.rsplit('.').next().unwrap_or(key);
    let lines = config.text.lines().map(|line| line.split('#').next().unwrap_or_default());
    let mentioned = lines.filter(|line| line.contains(name)).count();
    let read = config.settings.iter().filter(|setting| setting.path.iter().any(|part| part == name)).count();
    match mentioned > read {
        true => Found::Unknown(format!("{key} is set in {path} in a way that is not read")),
        false => Found::Nowhere,
    }
}

/// The script that a command line runs.
pub(crate) fn script(command: &[OsString]) -> Option<&Path> {
    command.iter().find(|word| is_python(word)).map(Path::new)
}

pub(crate) fn number(word: &OsStr) -> Option<u64> {
    whole_number(word.to_str()?)
}

pub(crate) fn is_python(word: &OsStr) -> bool {
    let path = Path::new(word);
    path.extension().is_some_and(|extension| extension == "py") && !word.as_encoded_bytes().starts_with(b"-")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::launcher::group;
    use crate::command::words::split;

    const TRAIN: &str = "gradient_accumulation_steps = 5 * 8 # to simulate\nbatch_size = 12\n\
                         exec(open('configurator.py').read())\n";

    fn file(path: &Path) -> Option<String> {
        match path.to_str()? {
            "train.py" => Some(TRAIN.to_owned()),
            "config/gpt2.py" => Some("batch_size = 64\n".to_owned()),
            "fit.yaml" => Some("data:\n  batch_size: 32\n".to_owned()),
            "class.yaml" => Some("data:\n  class_path: Images\n  init_args:\n    batch_size: 24\n".to_owned()),
            "config/shared.py" => {
                Some("world = 2\nbatch_size = 32\ngradient_accumulation_steps = 40 // world\n".to_owned())
            }
            "config/plain.py" => Some("batch_size = 32\ngradient_accumulation_steps = 5\n".to_owned()),
            "flow.yaml" => Some("data: {batch_size: 16}\ntrainer: {accumulate_grad_batches: 2}\n".to_owned()),
            "schedule.yaml" => {
                Some("data:\n  batch_size: 16\ntrainer:\n  accumulate_grad_batches: {0: 8, 4: 4}\n".to_owned())
            }
            "alias.yaml" => Some("n: &n 16\ndata:\n  batch_size: *n\n".to_owned()),
            "trl.yaml" => Some("per_device_train_batch_size: 3\n".to_owned()),
            "lit4.py" => Some("LightningCLI(Net, trainer_defaults={'accumulate_grad_batches': 4})\n".to_owned()),
            "own.py" => Some(
                "class A(TrainingArguments):\n    per_device_train_batch_size: int = field(default=16)\n    \
                 gradient_accumulation_steps: int = 4\nHfArgumentParser(A)\n"
                    .to_owned(),
            ),
            "lit.py" => Some("LightningCLI(Net, Data)\n".to_owned()),
            "hf.py" => Some("HfArgumentParser(TrainingArguments)\n".to_owned()),
            _ => None,
        }
    }

    fn told(command: &str) -> String {
        let command: Vec<OsString> = split(command).unwrap().into_iter().map(OsString::from).collect();
        let variable = |name: &str| (name == "SLURM_NTASKS").then(|| OsString::from("6"));
        let around = Surroundings { variable: &variable, read: &file, cards: &|| 8 };
        let Some(preset) = Preset::find(&command, &around) else { return "none".to_owned() };
        let numbers = preset.numbers(&command, &around);
        if let Some(Found::Unknown(why)) = numbers.iter().find(|it| matches!(it, Found::Unknown(_))) {
            return format!("{}: {why}", preset.name());
        }
        let [micro, accum] = numbers.map(|it| if let Found::Number(it) = it { it.to_string() } else { "?".to_owned() });
        format!("{} {micro} x {accum} in {}", preset.name(), group(&command, &around))
    }

    #[test]
    fn trainers_are_told_by_their_command_lines() {
        let cases = [
            ("python train.py", "nanogpt 12 x 40 in 1"),
            ("python train.py config/gpt2.py", "nanogpt 64 x 40 in 1"),
            ("python train.py config/gpt2.py --batch_size=4", "nanogpt 4 x 40 in 1"),
            ("torchrun --standalone --nproc_per_node=4 train.py", "nanogpt 12 x 40 in 4"),
            ("python -m torch.distributed.run --nproc-per-node gpu --nnodes 2 train.py", "nanogpt 12 x 40 in 16"),
            ("torchrun train.py --nproc_per_node=9", "nanogpt 12 x 40 in 1"),
            ("python train.py --batch_size=-3", "nanogpt: --batch_size is `-3`, which is no number"),
            (
                "python train.py config/shared.py",
                "nanogpt: gradient_accumulation_steps is `40 // world` in config/shared.py, which is no number",
            ),
            ("python train.py config/shared.py config/plain.py", "nanogpt 32 x 5 in 1"),
            ("python train.py config/shared.py --gradient_accumulation_steps=3", "nanogpt 32 x 3 in 1"),
            (
                "python train.py --batch_size=4 config/plain.py",
                "nanogpt: --batch_size stands before config/plain.py, which may set it again",
            ),
            (
                "python train.py config/none.py",
                "nanogpt: batch_size may be set in config/none.py, which cannot be read",
            ),
            ("srun -N2 --ntasks-per-node=4 python train.py", "nanogpt 12 x 40 in 8"),
            ("srun -n4 python train.py", "nanogpt 12 x 40 in 4"),
            ("srun python train.py", "nanogpt 12 x 40 in 6"),
            ("srun -N 2 torchrun --nnodes=2 --nproc_per_node=4 train.py", "nanogpt 12 x 40 in 8"),
            ("mpirun -np 2 python train.py", "nanogpt 12 x 40 in 2"),
            ("env A=1 poetry run python -u train.py", "nanogpt 12 x 40 in 1"),
            ("python run_clm.py --per_device_train_batch_size 16", "hf 16 x 1 in 1"),
            (
                "python run_clm.py --per_device_train_batch_size auto",
                "hf: --per_device_train_batch_size is `auto`, which is no number",
            ),
            ("accelerate launch --num_processes 4 x.py --per_device_train_batch_size=2", "hf 2 x 1 in 4"),
            ("accelerate launch --multi_gpu x.py --per_device_train_batch_size=2", "hf 2 x 1 in 8"),
            ("deepspeed --num_gpus=2 --num_nodes 2 x.py --per_device_train_batch_size=2", "hf 2 x 1 in 4"),
            ("deepspeed x.py --per_device_train_batch_size=2", "hf 2 x 1 in 8"),
            ("accelerate launch x.py --per-device-train-batch-size=2 --gradient_accumulation_steps 4", "hf 2 x 4 in 1"),
            ("python main.py fit --trainer.max_epochs=3 --data.batch_size=8", "lightning 8 x 1 in 1"),
            ("python main.py fit --trainer.devices 4 --data.batch_size=8", "lightning 8 x 1 in 4"),
            ("python main.py fit --trainer.max_epochs=3 --config fit.yaml", "lightning 32 x 1 in 1"),
            ("python main.py fit --trainer.max_epochs=3", "lightning ? x 1 in 1"),
            ("python lit.py fit --config fit.yaml", "lightning 32 x 1 in 1"),
            ("python lit.py fit --config class.yaml", "lightning 24 x 1 in 1"),
            ("python lit.py fit", "lightning ? x 1 in 1"),
            ("python hf.py --output_dir out", "hf 8 x 1 in 1"),
            ("python own.py --output_dir out", "hf 16 x 4 in 1"),
            ("python own.py --per_device_train_batch_size 2", "hf 2 x 4 in 1"),
            ("python own.py --deepspeed ds.json", "hf 16 x 4 in 1"),
            ("python hf.py --config trl.yaml", "hf 3 x 1 in 1"),
            (
                "python hf.py a.json",
                "hf: per_device_train_batch_size may be set in a.json, which the script reads its arguments from",
            ),
            (
                "python hf.py @a.txt",
                "hf: per_device_train_batch_size may be set in @a.txt, which the script reads its arguments from",
            ),
            (
                "python hf.py --args_file a.txt",
                "hf: per_device_train_batch_size may be set in a.txt, which the script reads its arguments from",
            ),
            ("python lit.py fit --config flow.yaml", "lightning 16 x 2 in 1"),
            ("python lit.py fit --config flow.yaml --config fit.yaml", "lightning 32 x 2 in 1"),
            (
                "python lit.py fit --config schedule.yaml",
                "lightning: trainer.accumulate_grad_batches is several values in schedule.yaml",
            ),
            (
                "python lit.py fit --config alias.yaml",
                "lightning: data.batch_size is set in alias.yaml in a way that is not read",
            ),
            ("python lit.py fit --config class.yaml --data.init_args.batch_size 6", "lightning 6 x 1 in 1"),
            (
                "python lit.py fit --config fit.yaml --trainer t.yaml",
                "lightning: trainer.accumulate_grad_batches may be set in t.yaml, the file of --trainer",
            ),
            ("python lit4.py fit --config fit.yaml", "lightning 32 x 4 in 1"),
            ("python other.py --batch_size=3", "none"),
            ("true", "none"),
        ];
        for (command, expected) in cases {
            assert_eq!(told(command), expected, "{command}");
        }
    }
}
