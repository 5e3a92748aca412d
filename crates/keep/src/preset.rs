//! The ways of well-known trainers to say their batch, and how to tell them by the command line.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use lowtide_config::{Syntax, whole_number};

use crate::config_file::{number_at, read, syntax_of};
use crate::template::{Template, current};

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
    /// All of them.
    pub const ALL: [Self; 3] = [Self::NanoGpt, Self::HuggingFace, Self::Lightning];

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
        // Arguments that come from a file leave no place for others.
        let from_file = command.last().is_some_and(|word| syntax_of(Path::new(word)) == Some(Syntax::Json));
        (says(&["HfArgumentParser", "TrainingArguments"]) && !from_file).then_some(Self::HuggingFace)
    }

    /// The micro-batch and accumulation of a command line, as far as they are said anywhere.
    pub(crate) fn numbers(self, command: &[OsString], around: &Surroundings<'_>) -> [Option<u64>; 2] {
        let [micro, accum] = self.defaults();
        let [micro_key, accum_key] = self.keys();
        [(micro_key, micro), (accum_key, accum)].map(|(key, default)| match current(command, key) {
            Some(typed) => number(typed),
            None => self.in_files(command, key.trim_start_matches('-'), around).or(default),
        })
    }

    /// A number in the files that a command line names; those named later count.
    fn in_files(self, command: &[OsString], key: &str, around: &Surroundings<'_>) -> Option<u64> {
        let files: Vec<PathBuf> = match self {
            // The script itself has the defaults, files of settings follow it.
            Self::NanoGpt => {
                let words = command.iter().filter(|word| !word.as_encoded_bytes().starts_with(b"-"));
                words.filter(|word| is_python(word)).map(PathBuf::from).collect()
            }
            Self::HuggingFace | Self::Lightning => {
                ["--config", "-c"].iter().filter_map(|key| current(command, key)).map(PathBuf::from).collect()
            }
        };
        // Lightning writes the settings of a class that is named in the file one level deeper.
        let deeper = key.rsplit_once('.').map(|(path, name)| format!("{path}.init_args.{name}"));
        let number = |file: &PathBuf| {
            let config = read(file, around).ok()?;
            number_at(&config, key).or_else(|| number_at(&config, deeper.as_ref()?))
        };
        files.iter().rev().find_map(number)
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
    use crate::launcher::group;
    use crate::words::split;

    const TRAIN: &str = "gradient_accumulation_steps = 5 * 8 # to simulate\nbatch_size = 12\n\
                         exec(open('configurator.py').read())\n";

    fn file(path: &Path) -> Option<String> {
        match path.to_str()? {
            "train.py" => Some(TRAIN.to_owned()),
            "config/gpt2.py" => Some("batch_size = 64\n".to_owned()),
            "fit.yaml" => Some("data:\n  batch_size: 32\n".to_owned()),
            "class.yaml" => Some("data:\n  class_path: Images\n  init_args:\n    batch_size: 24\n".to_owned()),
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
        let [micro, accum] = preset.numbers(&command, &around).map(|it| it.map_or("?".to_owned(), |it| it.to_string()));
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
            ("python train.py --batch_size=-3", "nanogpt ? x 40 in 1"),
            ("srun -N2 --ntasks-per-node=4 python train.py", "nanogpt 12 x 40 in 8"),
            ("srun -n4 python train.py", "nanogpt 12 x 40 in 4"),
            ("srun python train.py", "nanogpt 12 x 40 in 6"),
            ("srun -N 2 torchrun --nnodes=2 --nproc_per_node=4 train.py", "nanogpt 12 x 40 in 8"),
            ("mpirun -np 2 python train.py", "nanogpt 12 x 40 in 2"),
            ("env A=1 poetry run python -u train.py", "nanogpt 12 x 40 in 1"),
            ("python run_clm.py --per_device_train_batch_size 16", "hf 16 x 1 in 1"),
            ("python run_clm.py --per_device_train_batch_size auto", "hf ? x 1 in 1"),
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
            ("python hf.py arguments.json", "none"),
            ("python other.py --batch_size=3", "none"),
            ("true", "none"),
        ];
        for (command, expected) in cases {
            assert_eq!(told(command), expected, "{command}");
        }
    }
}
