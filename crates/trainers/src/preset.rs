//! Well-known trainers: their keys and defaults, and what they are recognised by.

use lowtide_config::command::{Word, is_python, words};
use lowtide_config::{Config, Scope, Setting, Syntax};

use crate::answer::{answer, place};
use crate::declaration::declarations_of;
use crate::{Answer, Key, Question};

/// Trainers whose flags are known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Preset {
    /// nanoGPT and its kin: Python files for settings, overridden by `--key=value`.
    NanoGpt,
    /// Hugging Face's Trainer and the example scripts of accelerate.
    HuggingFace,
    /// Lightning's command line.
    Lightning,
}

impl Preset {
    /// Every one of them.
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

    /// The keys of the micro-batch and of accumulation, without the dashes that they have on the command line.
    #[must_use]
    pub const fn keys(self) -> [&'static str; 2] {
        match self {
            Self::NanoGpt => ["batch_size", "gradient_accumulation_steps"],
            Self::HuggingFace => ["per_device_train_batch_size", "gradient_accumulation_steps"],
            Self::Lightning => ["data.batch_size", "trainer.accumulate_grad_batches"],
        }
    }

    /// What the trainer takes where nobody says a number: micro-batch and accumulation.
    #[must_use]
    pub const fn defaults(self) -> [Option<u64>; 2] {
        match self {
            Self::NanoGpt => [None, None],
            Self::HuggingFace => [Some(8), Some(1)],
            Self::Lightning => [None, Some(1)],
        }
    }

    /// What its scripts have in them, all of it.
    const fn marks(self) -> &'static [&'static str] {
        match self {
            Self::NanoGpt => &["configurator.py", "gradient_accumulation_steps"],
            Self::HuggingFace => &["HfArgumentParser", "TrainingArguments"],
            Self::Lightning => &["LightningCLI("],
        }
    }

    /// Whether all processes of a group share accumulation out among them, so that it is a multiple of their number.
    #[must_use]
    pub const fn shares_accumulation(self) -> bool {
        matches!(self, Self::NanoGpt)
    }

    /// The trainer whose flags these configurations show, by the command lines and scripts among them.
    #[must_use]
    pub fn find(configs: &[Config]) -> Option<Self> {
        Self::typed(configs).filter(|preset| !preset.is_foreign_to(configs)).or_else(|| Self::marked(configs))
    }

    /// The trainer whose flags are typed, if they are its own.
    pub(crate) fn typed(configs: &[Config]) -> Option<Self> {
        let lines = || configs.iter().filter(|config| config.syntax == Syntax::Command);
        let typed = |is_it: &dyn Fn(&str) -> bool| {
            let named = |word: &Word| is_it(&word.text.split('=').next().unwrap_or_default().replace('-', "_"));
            lines().any(|config| words(&config.text).iter().any(named))
        };
        if typed(&|name| name == "__per_device_train_batch_size") {
            Some(Self::HuggingFace)
        } else if typed(&|name| name == "__data.batch_size" || name.starts_with("__trainer.")) {
            Some(Self::Lightning)
        } else {
            None
        }
    }

    /// The trainer whose marks a script has.
    pub(crate) fn marked(configs: &[Config]) -> Option<Self> {
        let scripts = || configs.iter().filter(|config| config.syntax == Syntax::Python);
        [Self::NanoGpt, Self::Lightning, Self::HuggingFace]
            .into_iter()
            .find(|preset| scripts().any(|script| preset.marks().iter().all(|mark| script.text.contains(mark))))
    }

    /// Whether scripts parse their command line themselves, and not by this trainer.
    pub(crate) fn is_foreign_to(self, configs: &[Config]) -> bool {
        let scripts = || configs.iter().filter(|config| config.syntax == Syntax::Python);
        let has = |marks: &[&str]| scripts().any(|script| marks.iter().any(|mark| script.text.contains(mark)));
        match self {
            // An option of its own for the batch, and none for accumulation.
            Self::HuggingFace if !has(&["HfArgumentParser", "TrlParser"]) => {
                let declared: Vec<String> = declarations_of(configs).into_iter().map(|(_, it)| it.name).collect();
                let [batch, steps] = self.keys().map(|key| declared.iter().any(|name| name == key));
                batch && !steps
            }
            Self::Lightning => has(&PARSERS) && !has(&["lightning", "LightningCLI"]),
            Self::HuggingFace | Self::NanoGpt => false,
        }
    }

    /// What configurations say of the micro-batch or of accumulation, by the trainer's own name for it; nothing is
    /// known of other keys.
    #[must_use]
    pub fn answer(self, configs: &[Config], key: Key) -> Answer<'_> {
        let name = match key {
            Key::Batch => self.keys()[0],
            Key::Accumulation => self.keys()[1],
            _ => return Answer::Absent,
        };
        let answer = answer(configs, Question::Name(name));
        let Answer::Number { config, setting, .. } = answer else { return answer };
        // nanoGPT takes words in their order, so that a file overrides what stands before it.
        if self == Self::NanoGpt && config.syntax == Syntax::Command {
            let words = words(&config.text);
            let is_later = |span: &std::ops::Range<usize>| span.start > setting.span.start;
            if let Some(file) = words.iter().find(|word| is_python(word.as_ref()) && is_later(&word.span)) {
                let (place, file) = (place(config, setting.span.start), &file.text);
                return Answer::Unknown(format!("{place}: --{name} stands before {file}, which may set it again"));
            }
        }
        answer
    }

    /// Why a flag would not change a number that stands there; `None` where it would.
    #[must_use]
    pub fn refusal(self, config: &Config, setting: &Setting) -> Option<String> {
        let is_default = match setting.scope {
            Scope::File => config.syntax != Syntax::Python || self == Self::NanoGpt,
            Scope::Class | Scope::Option => true,
            Scope::Entry => setting.path.first().is_some_and(|group| group == "trainer_defaults"),
            _ => false,
        };
        let line = || config.text.lines().nth(config.line_of(setting.span.start) - 1).unwrap_or_default().trim();
        (!is_default).then(|| {
            let (place, name) = (place(config, setting.span.start), setting.path.join("."));
            format!("{place}: {name} is set by `{}`, whatever the command line says", line())
        })
    }
}

/// What scripts have that parse their command line themselves.
const PARSERS: [&str; 9] = [
    "ArgumentParser(",
    "tyro.cli(",
    "hydra.main(",
    "from_cli(",
    "draccus.",
    "pyrallis.",
    "simple_parsing",
    "chz.entrypoint(",
    "sys.argv",
];
/// Classes of arguments of Hugging Face's trainers that are not called so.
const ARGUMENTS: [&str; 12] = [
    "SFTConfig",
    "DPOConfig",
    "GRPOConfig",
    "PPOConfig",
    "RLOOConfig",
    "KTOConfig",
    "ORPOConfig",
    "CPOConfig",
    "RewardConfig",
    "BCOConfig",
    "GKDConfig",
    "OnlineDPOConfig",
];

/// Whether a class has the arguments of one of Hugging Face's trainers.
pub(crate) fn is_arguments(class: &str) -> bool {
    class.ends_with("TrainingArguments") || ARGUMENTS.contains(&class)
}

/// Whether a line of a script has the arguments of one of Hugging Face's trainers.
pub(crate) fn makes_arguments(line: &str) -> bool {
    let is_made = |class: &&str| line.split(*class).skip(1).any(|rest| rest.starts_with('('));
    line.contains("TrainingArguments") || ARGUMENTS.iter().any(is_made)
}

/// Whether a class or its arguments accumulate gradients by themselves.
pub(crate) fn is_library(class: &str) -> bool {
    is_arguments(class) || ["Trainer", "Accelerator", "GradientAccumulationPlugin"].contains(&class)
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;
    use std::path::Path;

    use lowtide_config::command::split;

    use super::*;
    use crate::{Access, processes};

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
            "tyro.py" => Some("config = tyro.cli(Config)\n".to_owned()),
            "plain.py" => Some("p.add_argument('--per_device_train_batch_size', default=4)\n".to_owned()),
            "both.py" => Some(
                "p.add_argument('--per_device_train_batch_size', default=4)\n\
                 p.add_argument('--gradient_accumulation_steps', default=1)\n"
                    .to_owned(),
            ),
            "beside.py" => Some("import plain\nplain.parse()\n".to_owned()),
            _ => None,
        }
    }

    fn summary(command: &str) -> String {
        let command: Vec<OsString> = split(command).unwrap().into_iter().map(OsString::from).collect();
        let variable = |name: &str| (name == "SLURM_NTASKS").then(|| OsString::from("6"));
        let access = Access { variable: &variable, read: &file, cards: &|| 8 };
        let Some(preset) = Preset::of_command(&command, &access) else { return "none".to_owned() };
        let sources = preset.sources(&command, &access);
        let answers = [Key::Batch, Key::Accumulation].map(|key| preset.answer(&sources, key));
        if let Some(Answer::Unknown(why)) = answers.iter().find(|it| matches!(it, Answer::Unknown(_))) {
            return format!("{}: {why}", preset.name());
        }
        let [micro, accum] = preset.defaults();
        let [micro, accum] = [answers[0].number().or(micro), answers[1].number().or(accum)]
            .map(|it| it.map_or("?".to_owned(), |it| it.to_string()));
        format!("{} {micro} x {accum} in {}", preset.name(), processes(&command, &access))
    }

    #[test]
    fn trainers_are_recognised_by_their_command_lines() {
        let cases = [
            ("python train.py", "nanogpt 12 x 40 in 1"),
            ("python train.py config/gpt2.py", "nanogpt 64 x 40 in 1"),
            ("python train.py config/gpt2.py --batch_size=4", "nanogpt 4 x 40 in 1"),
            ("torchrun --standalone --nproc_per_node=4 train.py", "nanogpt 12 x 40 in 4"),
            ("python -m torch.distributed.run --nproc-per-node gpu --nnodes 2 train.py", "nanogpt 12 x 40 in 16"),
            ("torchrun train.py --nproc_per_node=9", "nanogpt 12 x 40 in 1"),
            ("python train.py --batch_size=-3", "nanogpt: command line: batch_size is `-3`, no plain whole number"),
            (
                "python train.py config/shared.py",
                "nanogpt: config/shared.py, line 3: gradient_accumulation_steps is `40 // world`, no plain whole number",
            ),
            ("python train.py config/shared.py config/plain.py", "nanogpt 32 x 5 in 1"),
            ("python train.py config/shared.py --gradient_accumulation_steps=3", "nanogpt 32 x 3 in 1"),
            (
                "python train.py --batch_size=4 config/plain.py",
                "nanogpt: command line: --batch_size stands before config/plain.py, which may set it again",
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
                "hf: command line: per_device_train_batch_size is `auto`, no plain whole number",
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
                "lightning: schedule.yaml, line 4: trainer.accumulate_grad_batches is a group of values, no plain number",
            ),
            (
                "python lit.py fit --config alias.yaml",
                "lightning: alias.yaml, line 3: data.batch_size stands for another value: `*n`",
            ),
            ("python lit.py fit --config class.yaml --data.init_args.batch_size 6", "lightning 6 x 1 in 1"),
            (
                "python lit.py fit --config fit.yaml --trainer t.yaml",
                "lightning: trainer.accumulate_grad_batches may be set in t.yaml, which is the file of --trainer",
            ),
            ("python lit4.py fit --config fit.yaml", "lightning 32 x 4 in 1"),
            ("python other.py --batch_size=3", "none"),
            // The script itself says whose flags they are.
            ("python tyro.py --trainer.max-steps 9 --data.batch-size 32", "none"),
            ("python plain.py --per_device_train_batch_size 2", "none"),
            ("python beside.py --per_device_train_batch_size 2", "none"),
            ("python both.py --per_device_train_batch_size 2", "hf 2 x 1 in 1"),
            ("true", "none"),
        ];
        for (command, expected) in cases {
            assert_eq!(summary(command), expected, "{command}");
        }
    }
}
