//! What the log says around an error: what the program was doing, at which step, at what time.

use crate::traceback::{Frame, frames};
use crate::verdict::Activity;

/// What stands around an error.
#[derive(Debug, Clone, Default)]
pub(crate) struct Surroundings {
    pub(crate) frames: Vec<Frame>,
    /// What the program was doing, and the words of the log that say so.
    pub(crate) activity: Option<(Activity, String)>,
    pub(crate) step: Option<u64>,
    pub(crate) time: Option<String>,
}

/// How many lines before the traceback may say what the program was doing.
const LINES_BEFORE: usize = 40;

impl Surroundings {
    /// Reads the text that ends where the error's line begins.
    pub(crate) fn read(before: &str) -> Self {
        let frames = frames(before);
        let activity = activity(&frames, before);
        let mut is_in_evaluation = before.contains(RUNNING_EVALUATION);
        let (mut step, mut time) = (None, None);
        // Progress bars overwrite themselves within a line.
        for line in before.rsplit(['\n', '\r']) {
            // Bars of an evaluation count its batches.
            is_in_evaluation &= !line.contains(RUNNING_EVALUATION);
            step = step.or_else(|| step_in(line).filter(|_| !is_in_evaluation));
            time = time.or_else(|| time_in(line));
            if step.is_some() && time.is_some() {
                break;
            }
        }
        Self { frames, activity, step, time }
    }

    /// Takes the stack of a further message, which tells more of the same event.
    pub(crate) fn deepen(&mut self, between: &str) {
        let frames = frames(between);
        if let Some(activity) = by_frames(&frames, SIGNS) {
            self.activity = Some(activity);
        }
        if !frames.is_empty() {
            self.frames = frames;
        }
    }

    /// Whether the stack ends where memory of the machine is pinned.
    pub(crate) fn ends_in_pinning(&self) -> bool {
        let pins = |frame: &Frame| frame.code.contains("pin_memory=True") || frame.code.contains(".pin_memory(");
        // The thread of a data loader makes a context on the device first, which may be what failed.
        self.frames.last().is_some_and(|frame| pins(frame) && !frame.file.contains("_utils/pin_memory.py"))
    }
}

/// A stack that ends where a layer is made asks for its weights, whatever called for the layer.
fn building(frames: &[Frame]) -> Option<(Activity, String)> {
    let frame = frames.last().filter(|frame| frame.makes_a_layer())?;
    Some((Activity::Loading, format!("the stack ends where {} makes a layer", frame.file_name())))
}

/// Hugging Face's Trainer says so, and then draws a bar that names nothing.
const RUNNING_EVALUATION: &str = "***** Running Evaluation";

fn activity(frames: &[Frame], before: &str) -> Option<(Activity, String)> {
    let strong = building(frames).or_else(|| by_frames(frames, SIGNS));
    let told = || by_lines(before).filter(|(activity, _)| *activity != Activity::Training);
    let weak = || by_frames(frames, WEAK_SIGNS);
    strong.or_else(told).or_else(weak).or_else(|| by_lines(before))
}

/// Whether any frame has one of the words in its function or, where those are none of the libraries' own, in its code.
fn by_frames(frames: &[Frame], signs: &[Signs]) -> Option<(Activity, String)> {
    let (index, (activity, ..)) = signs.iter().find_map(|sign| Some((innermost(frames, sign)?, sign)))?;
    // Lightning calls the whole step from inside the optimizer's, as a closure.
    let (index, activity) = match activity {
        Activity::Optimizer => signs
            .iter()
            .filter(|(other, ..)| *other == Activity::Training)
            .filter_map(|sign| innermost(frames, sign))
            .find(|inner| *inner > index)
            .map_or((index, *activity), |inner| (inner, Activity::Training)),
        other => (index, *other),
    };
    let frame = &frames[index];
    Some((activity, format!("the stack goes through {} in {}", frame.function, frame.file_name())))
}

/// The innermost frame that has a sign.
fn innermost(frames: &[Frame], (activity, functions, files, codes): &Signs) -> Option<usize> {
    frames.iter().rposition(|frame| {
        let function = frame.function.rsplit('.').next().unwrap_or_default();
        let function = function.split('(').next().unwrap_or_default();
        functions.contains(&function)
            || (*activity == Activity::Evaluation && is_named_evaluation(function))
            || files.iter().any(|file| frame.file.replace('\\', "/").contains(file))
            // Of several statements in one line it is not known which one it was.
            || codes.iter().any(|code| frame.code.contains(code) && !frame.code.contains("; "))
    })
}

/// `_do_epoch_validate`, `run_validation_loop`, `validar_modelo`; not `train_and_evaluate`, which is both.
fn is_named_evaluation(function: &str) -> bool {
    let lower = function.to_ascii_lowercase();
    let has = |words: &[&str]| lower.split('_').any(|part| words.contains(&part));
    has(&[
        "validate",
        "validation",
        "validating",
        "evaluate",
        "evaluation",
        "eval",
        "validar",
        "evaluar",
        "valider",
        "evaluer",
        "validieren",
        "auswerten",
    ]) && !has(&["train", "training", "fit", "and"])
}

type Signs = (Activity, &'static [&'static str], &'static [&'static str], &'static [&'static str]);

/// In the order in which they are asked: an evaluation inside a training loop has frames of both.
const SIGNS: &[Signs] = &[
    (Activity::DataWorker, &["_worker_loop", "_try_get_data", "_get_data"], &["_utils/worker.py", "data/_utils/"], &[]),
    (
        Activity::Evaluation,
        &[
            "estimate_loss",
            "evaluate",
            "evaluation_loop",
            "validate",
            "validation",
            "validation_step",
            "validation_epoch",
            "eval_step",
            "eval_model",
            "eval_epoch",
            "prediction_step",
            "prediction_loop",
            "predict",
            "predict_step",
            "test_step",
            "run_evaluation",
            "run_eval",
            "run_validation",
            "val_step",
            "val_epoch",
            "val",
            "test",
            "test_epoch",
            "test_loop",
            "test_model",
            "test_one_epoch",
            "run_test",
            "_evaluate",
            "_validate",
            "generate",
        ],
        &["evaluation_loop.py", "/validate.py", "/evaluate.py"],
        &["estimate_loss()", "validate(", "evaluate(", "val_step("],
    ),
    (
        Activity::Saving,
        &["save_checkpoint", "_save_checkpoint", "save_pretrained", "save_state_dict"],
        &["torch/serialization.py\", in save"],
        &["torch.save("],
    ),
    (
        Activity::Optimizer,
        &[
            "optimizer_step",
            "_optimizer_step",
            "clip_grad_norm_",
            "_multi_tensor_adamw",
            "_multi_tensor_adam",
            "_init_group",
            "_take_model_step",
        ],
        &["torch/optim/", "bitsandbytes/optim", "apex/optimizers", "deepspeed/ops/adam", "/optimizer.py"],
        &["optimizer.step(", "scaler.step(", "opt.step(", "optim.step("],
    ),
    (
        Activity::Training,
        &[
            "training_step",
            "train_step",
            "_training_step",
            "train_one_epoch",
            "train_epoch",
            "train_episode",
            "backward",
            "run_backward",
            "compute_loss",
            "inner_training_loop",
            "_inner_training_loop",
        ],
        &["torch/autograd/", "torch/utils/checkpoint.py", "training_epoch_loop.py"],
        &[".backward(", "train_step(", "train_episode(", "training_step(", "train_one_epoch("],
    ),
    (
        Activity::Loading,
        &[
            "from_pretrained",
            "load_state_dict",
            "_load_from_state_dict",
            "load_checkpoint",
            "_load_pretrained_model",
            "load_model",
            "build_model",
            "create_model",
            "resume",
        ],
        &["torch/serialization.py"],
        &[
            "from_pretrained(",
            "load_state_dict(",
            "torch.load(",
            "model.to(",
            "model.cuda(",
            ".to(device)",
            "init_process_group(",
            "model = ",
        ],
    ),
];

/// What both training and evaluation go through; it counts where neither stack nor log say more.
const WEAK_SIGNS: &[Signs] =
    &[(Activity::Training, &["forward", "train", "_call_impl"], &["train"], &["loss = ", "loss, "])];

/// Words of a line that tell by themselves, looked for from the error backwards.
fn by_lines(before: &str) -> Option<(Activity, String)> {
    let end = before.rfind("Traceback (most recent call last)").unwrap_or(before.len());
    for line in before[..end].rsplit(['\n', '\r']).filter(|line| !line.is_empty()).take(LINES_BEFORE) {
        let lower = line.to_lowercase();
        let reports = RESULTS.iter().any(|word| lower.contains(word));
        if !reports && let Some(word) = EVALUATION_WORDS.iter().find(|word| lower.contains(**word)) {
            return Some((Activity::Evaluation, format!("the log says `{word}` shortly before")));
        }
        for (activity, words) in LINE_SIGNS {
            if let Some(word) = words.iter().find(|word| lower.contains(**word)) {
                return Some((*activity, format!("the log says `{}` shortly before", word.trim())));
            }
        }
    }
    None
}

/// The word for it in the languages of logs; it counts where no result is told with it.
const EVALUATION_WORDS: &[&str] = &[
    "validation",
    "validación",
    "validando",
    "evaluación",
    "evaluando",
    "validação",
    "évaluation",
    "validierung",
    "валидаци",
    "验证",
    "驗證",
    "评估",
    "評估",
    "検証",
    "評価",
    "검증",
];

/// Words of a line that tells how an evaluation went, which is over then.
const RESULTS: &[&str] = &["loss", "finished", "done", "complete", "score", "acc", "samples", "size", "损失", "完成"];

const LINE_SIGNS: &[(Activity, &[&str])] = &[
    (Activity::DataWorker, &["dataloader worker"]),
    (
        Activity::Evaluation,
        &[
            "validating",
            "evaluating",
            "running evaluation",
            "***** running prediction",
            "[val]",
            "validation dataloader",
            "start validation",
            "starting validation",
            "val:",
            "eval:",
        ],
    ),
    (Activity::Saving, &["saving checkpoint", "saving model checkpoint"]),
    (Activity::Loading, &["loading checkpoint", "loading weights", "loading model", "loading checkpoint shards"]),
    (Activity::Training, &["iter ", "step ", "epoch ", "it/s", "s/it", "loss"]),
];

/// The step a line of a log names: `iter 120:`, `[Step 1000]`, `global_step=5`, `"step": 7`, `| 12/100 [`.
pub(crate) fn step_in(line: &str) -> Option<u64> {
    let lower = line.to_ascii_lowercase();
    // Slurm's steps are none of training.
    if lower.contains("file \"") || lower.contains("slurmstepd") {
        return None;
    }
    let bytes = lower.as_bytes();
    for word in ["global_step", "step", "iteration", "iter"] {
        for (at, _) in lower.match_indices(word) {
            let stands_alone =
                at == 0 || !(bytes[at - 1].is_ascii_alphanumeric() || bytes[at - 1] == b'_') || word == "global_step";
            let rest = &lower[at + word.len()..];
            let gap = rest.bytes().take_while(|byte| b" :=#\"'[".contains(byte)).count();
            if stands_alone
                && (1..=4).contains(&gap)
                && let Some(number) = number(&rest[gap..])
            {
                return Some(number);
            }
        }
    }
    let (before, _) = lower.split_once(" [").filter(|(_, rest)| rest.contains("it/s") || rest.contains("s/it"))?;
    if OTHER_BARS.iter().any(|word| before.contains(word)) {
        return None;
    }
    let counts = before.rsplit(' ').next()?;
    number(counts.split_once('/')?.0)
}

/// What else draws progress bars.
const OTHER_BARS: &[&str] = &[
    "sanity",
    "valid",
    "evaluat",
    "eval:",
    "test",
    "predict",
    "loading",
    "download",
    "map",
    "tokeniz",
    "generating",
    "filter",
    "extracting",
    "resolving",
    "fetching",
    "capturing",
];

fn number(text: &str) -> Option<u64> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    text[..digits].parse().ok()
}

/// A date with a time, or a time in brackets, as loggers write them.
pub(crate) fn time_in(line: &str) -> Option<String> {
    let bytes = line.as_bytes();
    let digit = |at: usize| bytes.get(at).is_some_and(u8::is_ascii_digit);
    let is_clock = |at: usize| {
        digit(at)
            && digit(at + 1)
            && bytes.get(at + 2) == Some(&b':')
            && digit(at + 3)
            && digit(at + 4)
            && bytes.get(at + 5) == Some(&b':')
            && digit(at + 6)
            && digit(at + 7)
    };
    let limit = bytes.len().min(200);
    let clock = (0..limit).find(|&at| is_clock(at) && (at == 0 || !digit(at - 1)))?;
    let is_date = |at: usize| {
        (at..at + 4).all(digit) && matches!(bytes.get(at + 4), Some(b'-' | b'/')) && digit(at + 5) && digit(at + 6)
    };
    let start = clock.checked_sub(11).filter(|&at| is_date(at)).unwrap_or(clock);
    let is_duration = line.contains("it/s") || line.contains("s/it");
    let text = line.get(start..clock + 8)?;
    (start < clock || !is_duration).then(|| text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_as_logs_write_them() {
        for (line, expected) in [
            ("iter 120: loss 3.1, time 5ms", Some(120)),
            ("[Step 1000] Memory", Some(1000)),
            ("step=5, loss=3", Some(5)),
            ("{'loss': 2.1, \"step\": 7}", Some(7)),
            (" 12%|█▏        | 12/100 [00:03<00:21,  4.1it/s]", Some(12)),
            ("global_step: 31", Some(31)),
            ("  File \"train.py\", line 3, in step", None),
            ("stepping 3", None),
            ("number of steps", None),
        ] {
            assert_eq!(step_in(line), expected, "{line}");
        }
    }

    #[test]
    fn times_as_logs_write_them() {
        for (line, expected) in [
            ("2025-10-24 18:33:07,123 INFO", Some("2025-10-24 18:33:07")),
            ("2025-10-24T18:33:07Z", Some("2025-10-24T18:33:07")),
            ("[18:33:07] hello", Some("18:33:07")),
            ("12/100 [00:00:03<00:00:21, 4.1it/s]", None),
            ("no time", None),
        ] {
            assert_eq!(time_in(line).as_deref(), expected, "{line}");
        }
    }
}
