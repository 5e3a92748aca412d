//! A model that is used and not trained, by a script of its own: tests, demos, predictions.

use lowtide_log::StackFrame;

use super::case::Case;
use super::framework::Framework;
use super::list::{ALL, List, NOT_NUMBERS};
use crate::code_line::is_own;
use crate::log::Sign;
use crate::{Activity, Cause, Lever};

/// Words in the name of a script or a function that uses a model.
const USES: &[&str] = &[
    "test",
    "testing",
    "demo",
    "infer",
    "inference",
    "predict",
    "prediction",
    "predictions",
    "preds",
    "detect",
    "transcribe",
    "embed",
    "enhance",
    "separate",
    "synthesize",
    "upscale",
];
/// Words in the name of a script or a function that trains.
const TRAINS: &[&str] = &["train", "trainer", "training", "fit", "finetune", "epoch", "optimize"];
/// Words in the name of a function that evaluates beside a training.
const EVALUATES: &[&str] = &["evaluate", "evaluation", "eval", "validate", "validation", "val"];
/// What a stack goes through where weights are moved or read.
const WEIGHTS: &[&str] =
    &["_apply", "convert", "model.to(", "net.to(", ".cuda(", "torch.load(", "load_state_dict(", "from_pretrained("];

/// Whether one of the words is a part of a name, which dashes and underscores take apart.
fn names(name: &str, words: &[&str]) -> bool {
    name.to_ascii_lowercase().split(|c: char| !c.is_ascii_alphanumeric()).any(|part| words.contains(&part))
}

impl Case<'_> {
    /// Whether the innermost function of the program's own that says what it does evaluates.
    pub(super) fn evaluates_by_name(&self) -> bool {
        let trains = |frame: &StackFrame| names(&frame.function, &["train", "training", "fit"]);
        // `evaluate_actions` and its like are parts of a step.
        let evaluates = |frame: &StackFrame| {
            let words = &["validate", "validation", "val", "eval", "inference"];
            frame.function == "evaluate" || names(&frame.function, words)
        };
        let mut own = self.frames.iter().rev().filter(|frame| is_own(frame));
        let told = own.find(|frame| trains(frame) || evaluates(frame));
        told.is_some_and(|frame| !trains(frame)) && !self.computes_gradients()
    }

    /// Whether a script is named after a test of a whole set, not after a demo.
    fn tests_by_name(&self) -> bool {
        let own = self.frames.iter().filter(|frame| is_own(frame)).map(StackFrame::file_name);
        let stem = |name: &str| name.strip_suffix(".py").unwrap_or(name).to_owned();
        let mut scripts = self.facts.log.script.clone().into_iter().chain(own.map(stem));
        scripts.any(|script| names(&script, &["test", "testing", "eval"]) && !names(&script, &["demo"]))
    }

    pub(super) fn computes_gradients(&self) -> bool {
        self.passes(&[".backward(", "torch/autograd/", "optimizer.step("])
    }

    /// Whether the stack is that of a script which uses a model and trains none.
    pub(super) fn only_uses_a_model(&self) -> bool {
        let is_torch = self.framework() == Framework::Torch;
        let script = self.facts.log.script.as_ref().filter(|_| is_torch);
        let is_script = |words: &[&str]| script.is_some_and(|script| names(script, words));
        // A program that was installed is called from a folder of programs, and its package is its own.
        let package = self.frames.first().and_then(|frame| frame.file.rsplit_once("/bin/")).map(|(_, name)| name);
        let is_of_package = |frame: &StackFrame| {
            package.is_some_and(|name| !name.is_empty() && frame.file.contains(&format!("-packages/{name}/")))
        };
        let has = |words: &[&str]| {
            is_script(words)
                || self.frames.iter().filter(|frame| is_own(frame) || is_of_package(frame)).any(|frame| {
                    let stem = frame.file_name();
                    let called = frame.code.split('(').next().unwrap_or_default();
                    names(stem.strip_suffix(".py").unwrap_or(stem), words)
                        || names(&frame.function, words)
                        || frame.file.starts_with("<ipython") && names(called, words)
                })
        };
        let is_moving = self.passes(WEIGHTS) || matches!(self.activity, Some(Activity::Saving | Activity::Optimizer));
        let is_beside_training = self.trains() && has(EVALUATES);
        has(USES) && !has(TRAINS) && !self.computes_gradients() && !is_moving && !is_beside_training
    }
}

impl List<'_> {
    pub(super) fn forward(&mut self) {
        let case = self.case;
        if case.makes_scores() && case.is_large_request() {
            self.attention_kernel();
        }
        if case.shows(Sign::Upscaling) {
            self.add(
                Lever::Tiles,
                "Work in tiles: --tile 400 (tile=400), smaller where it still fails; the same picture, with a little overlap",
                ALL,
            );
        }
        // One tensor that is large beside the card is a matter of what goes in.
        if case.is_large_request() {
            self.inputs();
        }
        if case.keeps_something() {
            self.clear_session();
        }
        // What is kept of each output adds up, whatever goes in.
        if case.keeps_outputs() && self.advice.is_empty() {
            self.outputs_to_host();
        }
        let keeps_no_graph = case.evaluates_without_graph() || case.framework() != Framework::Torch;
        if !keeps_no_graph {
            self.no_graph_in_half();
        }
        if case.keeps_outputs() {
            let words = "; move what is kept of each output to the CPU (.cpu())";
            self.join(Lever::NoGraph, &[Lever::OutputsToHost], words);
        }
        self.inputs();
        self.preallocation();
        self.precision();
        self.outputs_to_host();
        self.offload();
        if case.has(Cause::Fragmentation) {
            self.expandable();
        }
    }

    /// Smaller inputs, in the words of what goes in.
    fn inputs(&mut self) {
        let case = self.case;
        let (lever, kin, text): (_, &[Lever], _) = if case.is_language_model() || case.shows(Sign::Language) {
            let text = "Shorter inputs (truncation, max_length), or long ones in pieces: memory grows with each token";
            (Lever::ShorterSequence, &[Lever::FewerRequests], text)
        } else if case.takes_sound() {
            let text = "Shorter inputs: cut recordings into pieces (of 30 seconds, say) and put the outputs together";
            (Lever::ShorterSequence, &[Lever::SmallerInput, Lever::FewerRequests], text)
        } else if matches!(case.framework(), Framework::Tensorflow | Framework::Jax) && !case.takes_pictures() {
            let text =
                "Smaller inputs: shorter sequences, a lower resolution, or pieces whose outputs are put together";
            (Lever::SmallerInput, &[Lever::ShorterSequence], text)
        } else {
            let text = "Smaller inputs: resize large pictures before they go in, or cut them into overlapping tiles and put the \
                        outputs together";
            (Lever::SmallerInput, &[], text)
        };
        self.add(lever, text, NOT_NUMBERS);
        self.join(lever, kin, "");
        let batch = if case.tests_by_name() { Lever::EvaluationBatch } else { Lever::MicroBatch };
        self.join(lever, &[batch], "; fewer of them at once (a smaller batch)");
        // What a test reads in parts needs no larger card.
        if batch != Lever::EvaluationBatch || case.is_small_card() {
            let words = "; if inputs cannot be smaller, a card with more memory";
            self.join(lever, &[Lever::MoreMemory], words);
        }
        // Nobody waits for the processor to go through a whole set.
        if case.framework() == Framework::Torch && batch != Lever::EvaluationBatch {
            self.join(lever, &[Lever::Offload], ", or the CPU, slowly");
        }
    }
}
