//! Where trainers write their checkpoints, and how a start resumes from one.

use std::ffi::OsString;
use std::path::Path;

use lowtide_config::{Config, Setting, Syntax};

use super::lightning::lightning;
use crate::preset::makes_arguments;
use crate::resume_call::trainer_calls;
use crate::{Access, Preset, ResumeCall, TextAnswer, file, script, text};

/// What is known of the checkpoints of a command.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Checkpoints {
    /// Where they are written.
    pub places: Vec<CheckpointPlace>,
    /// The file that is written last, where they are folders: without it one was cut short.
    pub last_file: Option<&'static str>,
    /// What a start as it was typed does with those that are there.
    pub beginning: Beginning,
    /// How a start resumes from one, or why it cannot.
    pub resume: Result<ResumeWords, ResumeGap>,
    /// The call of the script that would take one, where a copy of the script is run anyway.
    pub call: Option<ResumeCall>,
    /// Files that a start writes, and refuses to write over.
    pub kept: Vec<String>,
}

/// A folder with the names of checkpoints in it, where `*` stands for anything.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct CheckpointPlace {
    /// The folder, as the command has it.
    pub folder: String,
    /// The names.
    pub names: &'static str,
    /// What of them is a folder that each start makes anew.
    pub start_folder: Option<&'static str>,
}

impl CheckpointPlace {
    pub(super) const fn new(folder: String, names: &'static str) -> Self {
        Self { folder, names, start_folder: None }
    }
}

/// What a start does with the checkpoints that are there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Beginning {
    /// It begins at step 0, whatever is there, and writes over them.
    Overwrites,
    /// Nothing shows that it resumes from one of them: it may begin at step 0 and write over them, and it may need them where
    /// they are.
    MayOverwrite,
    /// It begins at step 0 and writes beside them.
    Beside,
    /// It resumes from one of them.
    Resumes,
}

/// How a start resumes from a checkpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ResumeWords {
    /// What is put on the command line, with `{checkpoint}` for its path; nothing where the script finds it by itself.
    pub words: Option<&'static str>,
    /// What is other than it would have been without the stop.
    pub caveat: &'static str,
}

/// Why a start does not resume.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ResumeGap {
    /// Why.
    pub reason: String,
    /// What would make it resume.
    pub remedy: String,
}

const FLAG: &str = "resume_from_checkpoint";
const OVERWRITE: &str = "overwrite_output_dir";
const FLAG_WORDS: &str = "--resume_from_checkpoint={checkpoint}";
const NANOGPT: &str = "nanoGPT restores weights, optimizer and step, but not the random state: it draws its batches from \
                       the beginning of the same random sequence again";
const TRAINER: &str = "the Trainer restores weights, optimizer, schedule, random state and its place in the data";
const TRAINER_ANEW: &str = "the Trainer restores weights, optimizer, schedule and random state, but begins its data anew \
                            (ignore_data_skip)";
const TRAINER_WEIGHTS: &str =
    "the Trainer restores weights and step, but no optimizer state: save_only_model leaves it out";
const ACCELERATE: &str = "accelerate restores weights, optimizer, schedule and random state; where the data continues is \
                          the script's own affair";
/// Options of scripts that take a checkpoint to resume from, by the names that people give them.
const RESUME_OPTIONS: [&str; 9] = [
    "--resume",
    "--resume-from",
    "--resume_from",
    "--resume-path",
    "--resume_path",
    "--ckpt_path",
    "--ckpt-path",
    "--load-checkpoint",
    "--load_checkpoint",
];

/// What is known of the checkpoints of a command.
#[must_use]
pub fn checkpoints(preset: Option<Preset>, command: &[OsString], access: &Access<'_>) -> Checkpoints {
    let script = script(command, access);
    let sources = || preset.unwrap_or(Preset::HuggingFace).sources(command, access);
    match preset {
        Some(Preset::NanoGpt) => nanogpt(script.as_ref(), &sources()),
        Some(Preset::Lightning) => lightning(command, script.as_ref(), &sources()),
        Some(Preset::HuggingFace) => hugging_face(script.as_ref(), &sources(), access),
        None if script.as_ref().is_some_and(|script| has(script, &[FLAG]) || has_trainer(script)) => {
            hugging_face(script.as_ref(), &sources(), access)
        }
        None if script.as_ref().is_some_and(|script| has(script, &["lightning"]) && has(script, &[".fit("])) => {
            lightning(command, script.as_ref(), &sources())
        }
        None => unknown(script.as_ref()),
    }
}

/// Whether one of these stands in a script, outside of its comments.
fn has(script: &Config, words: &[&str]) -> bool {
    lines(script).any(|line| words.iter().any(|word| line.contains(word)))
}

/// Whether a script has the arguments of Hugging Face's Trainer.
fn has_trainer(script: &Config) -> bool {
    lines(script).any(makes_arguments)
}

/// The lines of a script that are no comments.
fn lines(script: &Config) -> impl Iterator<Item = &str> {
    script.text.lines().filter(|line| !line.trim_start().starts_with('#'))
}

fn nanogpt(script: Option<&Config>, sources: &[Config]) -> Checkpoints {
    let folder = text(sources, "out_dir");
    let takes_it = script.is_some_and(|script| {
        has(script, &["init_from"]) && has(script, &["'resume'", "\"resume\""]) && has(script, &["ckpt.pt"])
    });
    let beginning = match text(sources, "init_from") {
        TextAnswer::Text(word) if word == "resume" => Beginning::Resumes,
        TextAnswer::Text(_) if takes_it => Beginning::Overwrites,
        _ => Beginning::MayOverwrite,
    };
    let remedy = || "--resume-with and --checkpoint-glob say how".to_owned();
    let (places, resume) = match folder {
        TextAnswer::Text(folder) => {
            let name = script.map_or("the script", |script| &script.name);
            let reason = || format!("{name} does not show that it takes init_from='resume' and writes ckpt.pt");
            let words = ResumeWords { words: Some("--init_from=resume"), caveat: NANOGPT };
            let place = CheckpointPlace::new(folder, "ckpt.pt");
            (vec![place], if takes_it { Ok(words) } else { Err(ResumeGap { reason: reason(), remedy: remedy() }) })
        }
        TextAnswer::Unknown(reason) => (Vec::new(), Err(ResumeGap { reason, remedy: remedy() })),
        TextAnswer::Absent => {
            (Vec::new(), Err(ResumeGap { reason: "out_dir is not set".to_owned(), remedy: remedy() }))
        }
    };
    Checkpoints { places, last_file: None, beginning, resume, call: None, kept: Vec::new() }
}

fn hugging_face(script: Option<&Config>, sources: &[Config], access: &Access<'_>) -> Checkpoints {
    let is_trainer = script.is_none_or(has_trainer);
    let first = script.and_then(|script| first_argument(&script.text));
    let folder = match text(sources, "output_dir") {
        TextAnswer::Absent if let Some(folder) = first => Ok(folder.to_owned()),
        TextAnswer::Text(folder) => Ok(folder),
        TextAnswer::Unknown(reason) => Err(reason),
        // As new versions have it.
        TextAnswer::Absent if is_trainer => Ok("trainer_output".to_owned()),
        TextAnswer::Absent => Err("output_dir is not set".to_owned()),
    };
    let names: &[&'static str] = if is_trainer { &["checkpoint-*"] } else { &["step_*", "epoch_*", "checkpoint-*"] };
    let place = |folder: &String| names.iter().map(|names| CheckpointPlace::new(folder.clone(), names)).collect();
    let places: Vec<CheckpointPlace> = folder.as_ref().map(place).unwrap_or_default();
    let is_set = |name| matches!(text(sources, name), TextAnswer::Text(value) if value.eq_ignore_ascii_case("true"));
    // The examples look for the last one unless they are told to write over all of them.
    let looks = |script| has(script, &["get_last_checkpoint("]) && !(has(script, &[OVERWRITE]) && is_set(OVERWRITE));
    let by_itself = script.is_some_and(|script| {
        looks(script) || has(script, &["resume_from_checkpoint=True", "resume_from_checkpoint=bool("])
    });
    let beginning = if by_itself || is_told(sources, access) { Beginning::Resumes } else { Beginning::MayOverwrite };
    let caveat = match is_trainer {
        false => ACCELERATE,
        true if is_set("save_only_model") => TRAINER_WEIGHTS,
        true if is_set("ignore_data_skip") => TRAINER_ANEW,
        true => TRAINER,
    };
    let declared = [format!("\"--{FLAG}\""), format!("'--{FLAG}'")];
    let takes_it = script.is_some_and(|script| match is_trainer {
        // The option is always there; the script must hand it on.
        true => has(script, &[&format!(".{FLAG}")]),
        false => has(script, &declared.each_ref().map(|it| &**it)),
    });
    let resume = match (folder, script) {
        (Err(reason), _) => Err(ResumeGap { reason, remedy: "--resume-with and --checkpoint-glob say how".to_owned() }),
        (Ok(_), _) if takes_it => Ok(ResumeWords { words: Some(FLAG_WORDS), caveat }),
        (Ok(_), _) if by_itself => Ok(ResumeWords { words: None, caveat }),
        (Ok(_), Some(script)) if is_trainer && has(script, &["HfArgumentParser", "TrlParser"]) => Err(ResumeGap {
            reason: format!("{} does not hand --{FLAG} on to the training", script.name),
            remedy: format!(
                "{}.train({FLAG}=args.{FLAG}) in {} makes it resume",
                trainer_name(script, "train"),
                script.name
            ),
        }),
        (Ok(folder), Some(script)) if is_trainer => Err(ResumeGap {
            reason: takes_none(script, "train"),
            remedy: format!(
                "{}.train({FLAG}=bool(glob.glob('{folder}/checkpoint-*'))) in {} makes it resume by itself",
                trainer_name(script, "train"),
                script.name
            ),
        }),
        (Ok(_), Some(script)) => Err(ResumeGap {
            reason: format!("{} has no --{FLAG}", script.name),
            remedy: "--resume-with and --checkpoint-glob say how, if it can".to_owned(),
        }),
        (Ok(folder), None) => Err(ResumeGap {
            reason: format!("the script cannot be read here, so that nobody knows whether it takes --{FLAG}"),
            remedy: format!("--resume-with '{FLAG_WORDS}' --checkpoint-glob '{folder}/checkpoint-*' if it does"),
        }),
    };
    let call = script.filter(|_| is_trainer && resume.is_err());
    let call = call.and_then(|script| ResumeCall::find(&script.text, "train", FLAG, caveat));
    let by_accelerate = script.is_some_and(|script| has(script, &[".save_state("]));
    let last_file = match is_trainer {
        true => Some("trainer_state.json"),
        false => by_accelerate.then_some("random_states_0.pkl"),
    };
    Checkpoints { places, last_file, beginning, resume, call, kept: Vec::new() }
}

/// Whether a command line, or a file of arguments that it names, gives a checkpoint to resume from.
fn is_told(sources: &[Config], access: &Access<'_>) -> bool {
    let is_one = |value: &str| !["", "None", "null", "~"].contains(&value) && !value.eq_ignore_ascii_case("false");
    let names_one = |config: &Config| {
        let is_it = |setting: &&Setting| setting.path.last().is_some_and(|key| key == FLAG);
        config.settings.iter().filter(is_it).any(|setting| is_one(&setting.value))
    };
    // Of a file of arguments only its name is among the sources, for what it leaves out stands on the command line.
    let is_file = |config: &&Config| matches!(Syntax::of_name(&config.name), Some(Syntax::Yaml | Syntax::Json));
    let files = sources.iter().filter(is_file).filter_map(|config| file(Path::new(&config.name), access).ok());
    sources.iter().filter(|config| config.syntax != Syntax::Python).any(names_one)
        || files.into_iter().any(|file| names_one(&file))
}

/// What a script calls its trainer.
pub(super) fn trainer_name(script: &Config, method: &str) -> String {
    trainer_calls(&script.text, method).into_iter().next().map_or("trainer".to_owned(), |call| call.receiver)
}

/// Why a script that takes no checkpoint from its command line cannot be given one in a copy of it either.
pub(super) fn takes_none(script: &Config, method: &str) -> String {
    let name = &script.name;
    match trainer_calls(&script.text, method).as_slice() {
        [] => format!("no call of a trainer's {method} is seen in {name}"),
        [_] => format!("{name} takes no checkpoint from the command line"),
        [first, .., last] => {
            format!("{name} calls {method} of a trainer in line {} and in line {}", first.line, last.line)
        }
    }
}

/// The folder in `TrainingArguments("out", ...)`.
fn first_argument(script: &str) -> Option<&str> {
    let (_, rest) = script.split_once("TrainingArguments(")?;
    let rest = rest.trim_start();
    let quote = rest.chars().next().filter(|first| matches!(first, '"' | '\''))?;
    rest[1..].split(quote).next()
}

fn unknown(script: Option<&Config>) -> Checkpoints {
    let declares = |script: &Config| {
        RESUME_OPTIONS.into_iter().find(|option| has(script, &[&format!("\"{option}\""), &format!("'{option}'")]))
    };
    let option = script.and_then(declares);
    let example = option.unwrap_or("--resume");
    let reason = match (option, script) {
        (Some(option), Some(script)) => {
            format!("{} has {option}, but where its checkpoints are is not known", script.name)
        }
        _ => "where its checkpoints are is not known".to_owned(),
    };
    let remedy = format!("say it: --resume-with '{example} {{checkpoint}}' --checkpoint-glob 'out/*.pt'");
    let resume = Err(ResumeGap { reason, remedy });
    Checkpoints {
        places: Vec::new(),
        last_file: None,
        beginning: Beginning::MayOverwrite,
        resume,
        call: None,
        kept: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use lowtide_config::command::split;

    use super::*;

    const NANO: &str = "out_dir = 'out'\ninit_from = 'scratch'\nbatch_size = 12\ngradient_accumulation_steps = 5\n\
                        exec(open('configurator.py').read())\nif init_from == 'resume':\n    load(out_dir + '/ckpt.pt')\n";
    const TRAINED: &str = "(args,) = HfArgumentParser(TrainingArguments).parse_args_into_dataclasses()\n\
                           Trainer(args=args).train(resume_from_checkpoint=args.resume_from_checkpoint)\n";
    const UNTOLD: &str = "(args,) = HfArgumentParser(TrainingArguments).parse_args_into_dataclasses()\n\
                          # trainer.train(resume_from_checkpoint=args.resume_from_checkpoint)\nTrainer(args=args).train()\n";
    const ITSELF: &str = "(args,) = HfArgumentParser(TrainingArguments).parse_args_into_dataclasses()\n\
                          Trainer(args=args).train(resume_from_checkpoint=get_last_checkpoint(args.output_dir))\n";
    const LOOKS: &str = "(args,) = HfArgumentParser(TrainingArguments).parse_args_into_dataclasses()\n\
                         last = None if args.overwrite_output_dir else get_last_checkpoint(args.output_dir)\n\
                         Trainer(args=args).train(resume_from_checkpoint=args.resume_from_checkpoint or last)\n";
    const NO_TRAINER: &str = "parser.add_argument('--resume_from_checkpoint', type=str)\n\
                              parser.add_argument('--output_dir', type=str, default='made')\n";

    fn file(path: &Path) -> Option<String> {
        let text = match path.to_str()? {
            "train.py" => NANO,
            "bare.py" => "out_dir = 'out'\nbatch_size = 1\ngradient_accumulation_steps = 1\n# configurator.py\n",
            "config/shakespeare.py" => "out_dir = 'out-char'\n",
            "hf.py" => TRAINED,
            "untold.py" => UNTOLD,
            "itself.py" => ITSELF,
            "looks.py" => LOOKS,
            "resumes.yaml" => "output_dir: o\nresume_from_checkpoint: o/checkpoint-4\n",
            "anew.json" => "{\"output_dir\": \"o\", \"resume_from_checkpoint\": null}",
            "none.py" => NO_TRAINER,
            "lit.py" => "LightningCLI(Net, Data, trainer_defaults={'default_root_dir': 'root'})\n",
            "fit.yaml" => {
                "trainer:\n  callbacks:\n    - class_path: ModelCheckpoint\n      init_args:\n        dirpath: mine\n"
            }
            "hard.py" => {
                "args = TrainingArguments(\n    'made', per_device_train_batch_size=8)\nTrainer(args=args).train()\n"
            }
            "plain_lit.py" => "import lightning as L\nL.Trainer(max_epochs=3, default_root_dir='r').fit(model)\n",
            "own.py" => "parser.add_argument('--resume', default='')\n",
            _ => return None,
        };
        Some(text.to_owned())
    }

    fn told(command: &str) -> String {
        let command: Vec<OsString> = split(command).unwrap().into_iter().map(OsString::from).collect();
        let access = Access { variable: &|_| None, read: &file, cards: &|| 0 };
        let known = checkpoints(Preset::of_command(&command, &access), &command, &access);
        let places: Vec<String> =
            known.places.iter().map(|place| format!("{}/{}", place.folder, place.names)).collect();
        let resume = match &known.resume {
            Ok(words) => words.words.unwrap_or("by itself").to_owned(),
            Err(gap) => format!("no: {}; {}", gap.reason, gap.remedy),
        };
        format!("{:?} {} | {resume}", known.beginning, places.join(" "))
    }

    #[test]
    fn each_trainer_has_its_own_way() {
        let flag = "--resume_from_checkpoint={checkpoint}";
        for (command, expected) in [
            ("python train.py", "Overwrites out/ckpt.pt | --init_from=resume".to_owned()),
            ("python train.py config/shakespeare.py", "Overwrites out-char/ckpt.pt | --init_from=resume".to_owned()),
            ("python train.py --out_dir=o2 --init_from=resume", "Resumes o2/ckpt.pt | --init_from=resume".to_owned()),
            (
                "python bare.py",
                "MayOverwrite out/ckpt.pt | no: bare.py does not show that it takes init_from='resume' and writes \
                 ckpt.pt; --resume-with and --checkpoint-glob say how"
                    .to_owned(),
            ),
            ("python hf.py --output_dir o", format!("MayOverwrite o/checkpoint-* | {flag}")),
            ("python hf.py", format!("MayOverwrite trainer_output/checkpoint-* | {flag}")),
            (
                "python hf.py --output_dir o --resume_from_checkpoint o/checkpoint-4",
                format!("Resumes o/checkpoint-* | {flag}"),
            ),
            (
                "python untold.py --output_dir o",
                "MayOverwrite o/checkpoint-* | no: untold.py does not hand --resume_from_checkpoint on to the training; \
                 Trainer(...).train(resume_from_checkpoint=args.resume_from_checkpoint) in untold.py makes it resume"
                    .to_owned(),
            ),
            ("python itself.py --output_dir o", "Resumes o/checkpoint-* | by itself".to_owned()),
            ("python itself.py --output_dir o --overwrite_output_dir", "Resumes o/checkpoint-* | by itself".to_owned()),
            ("python looks.py --output_dir o", format!("Resumes o/checkpoint-* | {flag}")),
            ("python looks.py --output_dir o --overwrite_output_dir", format!("MayOverwrite o/checkpoint-* | {flag}")),
            (
                "python looks.py --output_dir o --overwrite_output_dir False",
                format!("Resumes o/checkpoint-* | {flag}"),
            ),
            ("python hf.py --output_dir o --resume_from_checkpoint None", format!("MayOverwrite o/checkpoint-* | {flag}")),
            (
                "python hf.py resumes.yaml",
                "Resumes  | no: output_dir may be set in resumes.yaml, which the script reads its arguments from; \
                 --resume-with and --checkpoint-glob say how"
                    .to_owned(),
            ),
            (
                "python hf.py anew.json",
                "MayOverwrite  | no: output_dir may be set in anew.json, which the script reads its arguments from; \
                 --resume-with and --checkpoint-glob say how"
                    .to_owned(),
            ),
            (
                "python none.py --per_device_train_batch_size 4",
                format!("MayOverwrite made/step_* made/epoch_* made/checkpoint-* | {flag}"),
            ),
            ("python none.py --bs 4", format!("MayOverwrite made/step_* made/epoch_* made/checkpoint-* | {flag}")),
            (
                "python -m unseen --per_device_train_batch_size 4 --output_dir o",
                "MayOverwrite o/checkpoint-* | no: the script cannot be read here, so that nobody knows whether it takes \
                 --resume_from_checkpoint; --resume-with '--resume_from_checkpoint={checkpoint}' --checkpoint-glob \
                 'o/checkpoint-*' if it does"
                    .to_owned(),
            ),
            (
                "python lit.py fit --config fit.yaml",
                "Beside mine/*.ckpt root/lightning_logs/version_*/checkpoints/*.ckpt root/checkpoints/*.ckpt | \
                 --ckpt_path={checkpoint}"
                    .to_owned(),
            ),
            (
                "python hard.py",
                "MayOverwrite made/checkpoint-* | no: hard.py takes no checkpoint from the command line; \
                 Trainer(...).train(resume_from_checkpoint=bool(glob.glob('made/checkpoint-*'))) in hard.py makes it resume by \
                 itself"
                    .to_owned(),
            ),
            (
                "python plain_lit.py",
                "Beside r/lightning_logs/version_*/checkpoints/*.ckpt r/checkpoints/*.ckpt | no: plain_lit.py takes no \
                 checkpoint from the command line; L.Trainer(...).fit(..., ckpt_path=...) in plain_lit.py makes it resume"
                    .to_owned(),
            ),
            (
                "python own.py",
                "MayOverwrite  | no: own.py has --resume, but where its checkpoints are is not known; say it: --resume-with \
                 '--resume {checkpoint}' --checkpoint-glob 'out/*.pt'"
                    .to_owned(),
            ),
            (
                "./train.sh",
                "MayOverwrite  | no: where its checkpoints are is not known; say it: --resume-with '--resume {checkpoint}' \
                 --checkpoint-glob 'out/*.pt'"
                    .to_owned(),
            ),
        ] {
            assert_eq!(told(command), expected, "{command}");
        }
    }
}
