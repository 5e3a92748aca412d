//! What a program was doing, by its stack and by the lines before it.

use std::fmt;

use serde::Serialize;

use crate::bar::bar;
use crate::{StackFrame, TRACEBACK_HEADER};

/// What a program was doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Activity {
    /// Building the model, reading a checkpoint, moving it to the device.
    Loading,
    /// Forward or backward of a training step.
    Training,
    /// Forward without gradients.
    Evaluation,
    /// Updating the parameters.
    Optimizer,
    /// Writing a checkpoint.
    Saving,
    /// Reading data, in a process of its own.
    DataWorker,
}

impl fmt::Display for Activity {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(match self {
            Self::Loading => "loading",
            Self::Training => "training",
            Self::Evaluation => "evaluation",
            Self::Optimizer => "the optimizer",
            Self::Saving => "saving",
            Self::DataWorker => "a data worker",
        })
    }
}

/// How many lines before the traceback may say what the program was doing.
const LINES_BEFORE: usize = 40;

/// What the program was doing where a text ends, and the words that say so.
#[must_use]
pub fn activity(frames: &[StackFrame], before: &str) -> Option<(Activity, String)> {
    let in_lines = || activity_of_lines(before, frames);
    building(frames)
        .or_else(|| activity_of_stack(frames))
        .or_else(|| in_lines().filter(|(activity, _)| *activity != Activity::Training))
        .or_else(|| signed(frames, WEAK_SIGNS))
        .or_else(in_lines)
}

/// What the program was doing by the strong signs of its stack.
#[must_use]
pub fn activity_of_stack(frames: &[StackFrame]) -> Option<(Activity, String)> {
    signed(frames, SIGNS)
}

/// A stack that ends where a layer is made or moved asks for its weights, whatever called for it.
fn building(frames: &[StackFrame]) -> Option<(Activity, String)> {
    let frame = frames.last()?;
    let done = match (makes_a_layer(frame), moves_a_module(frame)) {
        (true, _) => "makes a layer",
        (false, true) => "moves a module",
        (false, false) => return None,
    };
    Some((Activity::Loading, format!("the stack ends where {} {done}", frame.file_name())))
}

/// Whether a frame is PyTorch's own moving of a module to a device.
fn moves_a_module(frame: &StackFrame) -> bool {
    let moves = ["to", "cuda", "_apply", "convert"];
    frame.file.replace('\\', "/").ends_with("torch/nn/modules/module.py") && moves.contains(&&*frame.function)
}

/// Whether any frame has one of the words in its function or, where those are none of the libraries' own, in its code.
fn signed(frames: &[StackFrame], signs: &[Signs]) -> Option<(Activity, String)> {
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
fn innermost(frames: &[StackFrame], (activity, functions, files, codes): &Signs) -> Option<usize> {
    frames.iter().rposition(|frame| {
        let function = frame.function.rsplit('.').next().unwrap_or_default();
        let function = function.split('(').next().unwrap_or_default();
        functions.split(' ').any(|name| name == function)
            || (*activity == Activity::Evaluation && is_named_evaluation(function))
            || (*activity == Activity::Saving && (is_named_saving(function) || calls_saving(&frame.code) || writes_a_file(frame)))
            || files.iter().any(|file| format!("/{}", frame.file.replace('\\', "/")).contains(file))
            // Of several statements in one line it is not known which one it was.
            || codes.iter().any(|code| calls(&frame.code, code, *activity) && !frame.code.contains("; "))
    })
}

/// Whether a line has some code; `train_and_evaluate(` is no call of `evaluate(`.
fn calls(line: &str, code: &str, activity: Activity) -> bool {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let is_other = |at: usize| {
        let name = line[..at].trim_end_matches(is_part).len();
        activity == Activity::Evaluation && has_part(&line[name..at], "train training fit")
    };
    line.match_indices(code).any(|(at, _)| !is_other(at))
}

/// Whether a name has one of the words as a part: `_do_epoch_validate`, `epochVal`.
fn has_part(function: &str, words: &str) -> bool {
    // Where a small letter is followed by a capital, a part begins.
    let begins =
        |(at, pair): (usize, &[u8])| (pair[0].is_ascii_lowercase() && pair[1].is_ascii_uppercase()).then_some(at + 1);
    let mut start = 0;
    let ends = function.as_bytes().windows(2).enumerate().filter_map(begins).chain([function.len()]);
    let mut parts = ends.flat_map(|end| {
        let part = &function[start..end];
        start = end;
        part.split('_')
    });
    parts.any(|part| words.split(' ').any(|word| part.eq_ignore_ascii_case(word)))
}

/// `safe_save_model_for_hf_trainer`, `saveCheckpoint`.
fn is_named_saving(function: &str) -> bool {
    has_part(function, "save saving") && has_part(function, "model checkpoint ckpt weights state pretrained")
}

/// Whether a line of code calls a function that is named so, as the last frame of a stack that was cut does.
fn calls_saving(code: &str) -> bool {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    code.match_indices('(')
        .any(|(at, _)| is_named_saving(code[..at].rsplit(|c: char| !is_part(c)).next().unwrap_or_default()))
}

/// `_do_epoch_validate`, `run_validation_loop`, `validar_modelo`, `epochVal`; not `train_and_evaluate`, which is both.
fn is_named_evaluation(function: &str) -> bool {
    let has = |words: &str| has_part(function, words);
    has("validate validation validating val evaluate evaluation eval validar evaluar valider evaluer validieren \
         auswerten")
        && !has("train training fit and")
}

/// Whether a module is called, which no checkpoint is written by: what was saved before is over.
fn calls_a_module(frames: &[StackFrame]) -> bool {
    frames.iter().any(|frame| matches!(&*frame.function, "_call_impl" | "_wrapped_call_impl" | "forward"))
}

/// Whether a frame is PyTorch's own writing of a file.
fn writes_a_file(frame: &StackFrame) -> bool {
    let is_save = matches!(&*frame.function, "save" | "_save" | "_legacy_save");
    is_save && frame.file.replace('\\', "/").ends_with("torch/serialization.py")
}

/// Whether a frame is the constructor of one of PyTorch's layers.
#[must_use]
pub fn makes_a_layer(frame: &StackFrame) -> bool {
    let file = frame.file.replace('\\', "/");
    let is_made = matches!(&*frame.function, "__init__" | "reset_parameters");
    file.contains("torch/nn/modules") && is_made || file.contains("torch/nn/init.py")
}

/// Whether a frame is PyTorch's recomputation of activations.
#[must_use]
pub fn recomputes(frame: &StackFrame) -> bool {
    frame.file.replace('\\', "/").ends_with("torch/utils/checkpoint.py")
}

/// Names of functions, set apart by blanks, parts of paths, and parts of code.
type Signs = (Activity, &'static str, &'static [&'static str], &'static [&'static str]);

/// In the order in which they are asked: an evaluation inside a training loop has frames of both.
const SIGNS: &[Signs] = &[
    (
        Activity::DataWorker,
        "_worker_loop _try_get_data _get_data _worker_manager_loop _process_next_batch",
        &["_utils/worker.py", "data/_utils/"],
        &[],
    ),
    (
        Activity::Evaluation,
        "estimate_loss evaluate evaluation_loop nested_concat torch_pad_and_concatenate validate validation validation_step validation_epoch eval_step \
         eval_model eval_epoch prediction_step prediction_loop predict predict_step test_step run_evaluation run_eval \
         run_validation val_step val_epoch val test test_epoch test_loop test_model test_one_epoch run_test _run_test single_gpu_test multi_gpu_test _evaluate \
         _validate generate",
        &["evaluation_loop.py", "/validate.py", "/evaluate.py", "/eval.py"],
        &["estimate_loss()", "validate(", "evaluate(", "val_step(", "_validation("],
    ),
    (
        Activity::Saving,
        "save_checkpoint _save_checkpoint save_pretrained save_state_dict _save_to_state_dict save_model _save_model \
         save_16bit_model _full_state_dict",
        &[],
        &["torch.save("],
    ),
    (
        Activity::Optimizer,
        "optimizer_step _optimizer_step clip_grad_norm_ _multi_tensor_adamw _multi_tensor_adam _init_group \
         _take_model_step",
        &["torch/optim/", "bitsandbytes/optim", "apex/optimizers", "deepspeed/ops/adam", "/optimizer.py"],
        &["optimizer.step(", "scaler.step(", "opt.step(", "optim.step("],
    ),
    (
        Activity::Training,
        "training_step train_step _training_step train_one_epoch train_epoch train_episode backward run_backward \
         compute_loss inner_training_loop _inner_training_loop",
        &["torch/autograd/", "torch/utils/checkpoint.py", "training_epoch_loop.py"],
        &[".backward(", "train_step(", "train_episode(", "training_step(", "train_one_epoch("],
    ),
    (
        Activity::Loading,
        "from_pretrained load_state_dict _load_from_state_dict load_checkpoint _load_pretrained_model load_model \
         build_model create_model resume restore _apply _initialize_model _move_model_to_device create_weights \
         load_weights",
        &["torch/serialization.py"],
        &[
            "from_pretrained(",
            "load_state_dict(",
            "torch.load(",
            "paddle.load(",
            "model.to(",
            "model.cuda(",
            "pipe.to(",
            "self._apply(",
            ".to(device)",
            "init_process_group(",
            "model = ",
        ],
    ),
];

/// What both training and evaluation go through; it counts where neither stack nor log say more.
const WEAK_SIGNS: &[Signs] = &[(Activity::Training, "forward train _call_impl", &["train"], &["loss = ", "loss, "])];

/// Whether a stack goes through a call of a whole pipeline of models, as diffusers and transformers have them.
fn calls_a_pipeline(frames: &[StackFrame]) -> bool {
    frames.iter().any(|frame| {
        let is_called = frame.function == "__call__" && frame.file.contains("pipeline");
        is_called || ["= pipe(", "= pipeline("].iter().any(|call| frame.code.contains(call))
    })
}

/// Words of a line that tell by themselves, looked for from the error backwards.
fn activity_of_lines(before: &str, frames: &[StackFrame]) -> Option<(Activity, String)> {
    let end = before.rfind(TRACEBACK_HEADER).unwrap_or(before.len());
    let lines = before[..end].rsplit(['\n', '\r']).filter(|line| !line.is_empty()).take(LINES_BEFORE);
    for (distance, line) in lines.enumerate() {
        // Of code that somebody shows, the last statement is the one that failed.
        if distance == 0 && ["from_pretrained(", "torch.load("].iter().any(|call| line.contains(call)) {
            return Some((Activity::Loading, "the statement before reads a model".to_owned()));
        }
        if distance == 0 && calls_saving(line) {
            return Some((Activity::Saving, "the statement before saves a model".to_owned()));
        }
        // A bar without a name may be of reading as well as of training.
        if bar(line.as_bytes()).is_some_and(|bar| bar.is_bare()) {
            continue;
        }
        // The name of a setting is no step of a training.
        let lower = line.to_lowercase().replace("eval_step", "");
        // A bar that runs is no result, whatever it shows.
        if let Some(name) = bar(line.as_bytes()).and_then(|bar| bar.evaluation()) {
            return Some((Activity::Evaluation, format!("a bar named `{name}` runs shortly before")));
        }
        let reports = RESULTS.iter().any(|word| lower.contains(word));
        if !reports && let Some(word) = EVALUATION_WORDS.split(' ').find(|word| lower.contains(word)) {
            return Some((Activity::Evaluation, format!("the log says `{word}` shortly before")));
        }
        if lower.trim_start().starts_with("saving ") && !reports && !calls_a_module(frames) {
            return Some((Activity::Saving, "the log says `saving` shortly before".to_owned()));
        }
        let mut signs = LINE_SIGNS.into_iter();
        let found =
            signs.find_map(|(activity, phrases)| Some((activity, phrases.split('|').find(|it| lower.contains(it))?)));
        // Where what was loaded is called, a bar at its end says what is over.
        let is_over = || calls_a_pipeline(frames) && bar(line.as_bytes()).is_some_and(|bar| bar.is_over());
        match found {
            Some((Activity::Loading, _)) if is_over() => {}
            Some((Activity::Saving, _)) if calls_a_module(frames) => {}
            Some((activity, phrase)) => {
                return Some((activity, format!("the log says `{}` shortly before", phrase.trim())));
            }
            None => {}
        }
    }
    None
}

/// The word for it in the languages of logs; it counts where no result stands with it.
const EVALUATION_WORDS: &str = "validation validación validando evaluación evaluando validação évaluation validierung валидаци 验证 驗證 评估 評估 検証 評価 \
    검증";

/// Words of a line that tells how an evaluation went, which is over then.
const RESULTS: &[&str] = &["loss", "finished", "done", "complete", "score", "acc", "samples", "size", "损失", "完成"];

/// Phrases that tell by themselves, set apart by bars.
const LINE_SIGNS: [(Activity, &str); 5] = [
    (Activity::DataWorker, "dataloader worker"),
    (
        Activity::Evaluation,
        "validating|evaluating|running evaluation|***** running prediction|[val]|validation dataloader|\
         start validation|starting validation|val:|eval:|eval step|test epoch",
    ),
    (Activity::Saving, "saving checkpoint|saving model checkpoint|summoning checkpoint|failed to clone() tensor"),
    (
        Activity::Loading,
        "loading checkpoint|loading safetensors|loading weights|loading model|loading pipeline|load_tensors|loading up to|offload to cuda",
    ),
    (Activity::Training, "iter |step |epoch |it/s|s/it|loss|start training|starting training|running training"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_found_behind_any_letter() {
        let is_called = |line: &str| calls(line, "evaluate(", Activity::Evaluation);
        assert!(is_called("evaluate(x)") && is_called("损失 → 值evaluate(x)") && !is_called("值train_and_evaluate(x)"));
    }

    #[test]
    fn what_is_called_was_loaded() {
        let head = "Loading pipeline components...: 100%|██████████| 7/7 [00:02<00:00,  2.91it/s]\nTraceback (most recent call last):\n";
        let phase = |frame: &str| {
            let text = format!("{head}  File \"flux.py\", line 12, in <module>\n    {frame}\n");
            activity(&crate::frames(&text), &text).map(|(activity, _)| activity)
        };
        assert_eq!(phase("image = pipe(prompt, height=1024).images[0]"), None);
        assert_eq!(phase("unet.fuse_lora(scale)"), Some(Activity::Loading));
    }

    #[test]
    fn what_was_saved_before_a_module_is_called_is_over() {
        let phase = |frame: &str| {
            let text =
                format!("step 200: loss 2.1\nsaving checkpoint to out\nTraceback (most recent call last):\n{frame}");
            activity(&crate::frames(&text), &text).map(|(activity, _)| activity)
        };
        let script = "  File \"train.py\", line 300, in <module>\n    logits, loss = model(x, y)\n";
        let called =
            format!("{script}  File \"model.py\", line 187, in forward\n    loss = cross_entropy(logits, y)\n");
        assert_eq!((phase(""), phase(&called)), (Some(Activity::Saving), Some(Activity::Training)));
    }

    #[test]
    fn functions_are_known_by_the_parts_of_their_names() {
        for name in ["epochVal", "_do_epoch_validate", "runValidation", "eval_model", "validar_modelo"] {
            assert!(is_named_evaluation(name), "{name}");
        }
        for name in ["train_and_evaluate", "trainVal", "evaluates", "interval", "valve_open"] {
            assert!(!is_named_evaluation(name), "{name}");
        }
        for name in ["safe_save_model_for_hf_trainer", "saveCheckpoint", "_save_ckpt"] {
            assert!(is_named_saving(name), "{name}");
        }
        for name in ["save_image", "load_checkpoint", "autosave_interval", "model_state"] {
            assert!(!is_named_saving(name), "{name}");
        }
    }
}
