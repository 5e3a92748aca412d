//! Levers for evaluations: no graph, outputs that leave the device, fewer or smaller samples.

use lowtide_core::Bytes;

use super::case::Case;
use super::framework::Framework;
use super::list::{ALL, Gain, List, NOT_NUMBERS};
use crate::Activity;
use crate::culprit::WHOLE_FRAMES;
use crate::facts::Key;
use crate::log::Sign;
use crate::patch::single;
use crate::verdict::{Cause, Lever};

/// What a stack goes through where outputs of a whole evaluation are kept and worked on.
const KEPT_OUTPUTS: &[&str] = &[
    "nested_concat",
    "pad_and_concat",
    "compute_metrics",
    "evaluator",
    "evaluate_predictions",
    "predictions",
    "all_scores",
    "scores[",
    "torch.cat(",
    "torch.stack(",
    "metric",
    ".append(",
    " += out",
];
/// What a stack goes through where a picture is worked on as a whole.
const WHOLE_PICTURES: &[&str] =
    &["whole_inference", "slide_inference", "resize(", "interpolate", "seg_logit", "sem_seg", "masks", "upsample"];

impl Case<'_> {
    /// Whether pictures are made for validation beside the state of training, as diffusers' scripts do.
    pub(super) fn validates_pictures(&self) -> bool {
        self.shows(Sign::Diffusion) && self.trains() && self.passes(&["log_validation", "run_validation"])
    }

    /// Whether people tell that an evaluation failed, and the stack shows no step of training.
    pub(super) fn is_said_to_evaluate(&self) -> bool {
        let steps = ["train_step", "training_step", "train_one_epoch", "compute_loss"];
        let is_step = self.computes_gradients() || self.updates() || self.passes(&steps);
        let is_moving = matches!(self.activity, Some(Activity::Loading | Activity::Saving));
        self.narrative().evaluates && !is_step && !is_moving
    }

    /// Whether it fails at the same step each time, as people tell, and nothing shows that this is a step of training.
    pub(super) fn fails_at_what_comes_round(&self) -> bool {
        self.narrative().fails_at_one_step
            && !self.is_said_to_evaluate()
            && !self.computes_gradients()
            && !self.updates()
    }

    /// Whether the program keeps no graph in its evaluation, by what it says or by who runs it.
    pub(super) fn evaluates_without_graph(&self) -> bool {
        self.facts.is_nanogpt()
            || self.shows(Sign::WithoutGraph)
            || self.passes(&["no_grad", "inference_mode", "evaluation_loop", "mmcv/runner", "mmengine"])
    }
}

impl Case<'_> {
    /// Whether the stack shows outputs that are kept, beside which no single tensor is large.
    pub(super) fn keeps_outputs(&self) -> bool {
        self.passes(KEPT_OUTPUTS) && !self.is_one_large_request()
    }
}

impl List<'_> {
    pub(super) fn evaluation(&mut self) {
        let case = self.case;
        if case.shows(Sign::Diffusion) && case.trains() && case.framework() == Framework::Torch {
            self.validation_pipeline();
        }
        let frames =
            case.culprit.is_some_and(|culprit| culprit.name == WHOLE_FRAMES) || case.facts.number(Key::Crop).is_some();
        if frames || case.passes(WHOLE_PICTURES) {
            self.crop();
        }
        if case.keeps_outputs() {
            self.outputs_to_host();
            // Both are a change of the same loop.
            if !case.evaluates_without_graph() && case.framework() == Framework::Torch {
                self.join(Lever::OutputsToHost, &[Lever::NoGraph], "; all of it under torch.no_grad()");
            }
        }
        if case.narrative().grows && case.trains() {
            self.let_go_between_evaluations();
        }
        // One tensor that is large beside the card is a matter of what goes in, not of what is kept.
        if !case.evaluates_without_graph() && !case.is_large_request() {
            self.no_graph();
        }
        if case.facts.find(Key::EvalBatch).is_some() || !case.facts.is_nanogpt() {
            self.evaluation_batch();
        }
        if case.facts.is_nanogpt() {
            self.micro_batch();
        }
        if case.is_language_model() {
            self.chunked_loss();
        }
        self.outputs_to_host();
        self.no_graph();
        if case.has(Cause::Fragmentation) {
            self.expandable();
            self.empty_cache();
        }
        self.contributors();
        self.evaluate_less();
        self.compile_off();
        self.precision();
    }

    /// A pipeline for pictures that is built beside the state of training.
    fn validation_pipeline(&mut self) {
        self.add(
            Lever::Precision,
            "Build the pipeline for validation in bf16 (torch_dtype=torch.bfloat16), from parts that are there already, and \
             delete it afterwards",
            NOT_NUMBERS,
        );
        let words = "; or make fewer and smaller pictures (--num_validation_images 1), or none while it trains (without \
                     --validation_prompt)";
        self.join(Lever::Precision, &[Lever::EvaluationLess, Lever::EvaluationBatch, Lever::SmallerInput], words);
        self.add(
            Lever::Offload,
            "Offload the parts that validation does not use at the moment to CPU memory: pipeline.enable_model_cpu_offload(); and decode \
             in tiles (pipeline.enable_vae_tiling())",
            ALL,
        );
    }

    /// What is done every so many steps.
    pub(super) fn what_comes_round(&mut self) {
        self.add(
            Lever::EvaluationBatch,
            "Skip once what runs at that step (evaluation, sampling, checkpoint): if training goes on, that is what does not fit",
            ALL,
        );
        let words = match self.case.framework() {
            Framework::Torch => "; then make it smaller: fewer samples at once, crops, under torch.no_grad()",
            _ => "; then make it smaller: fewer samples at once, crops",
        };
        self.join(Lever::EvaluationBatch, &[Lever::EvaluationLess, Lever::EvaluationCrop], words);
    }

    pub(super) fn no_graph(&mut self) {
        if self.case.framework() != Framework::Torch || self.case.evaluates_without_graph() {
            return;
        }
        self.add(
            Lever::NoGraph,
            "Run it under `with torch.no_grad():` (or torch.inference_mode()), so that no graph is kept where nothing is trained; \
             model.eval() alone does not do that",
            ALL,
        );
    }

    /// No graph and half precision: two words around the same loop.
    pub(super) fn no_graph_in_half(&mut self) {
        self.no_graph();
        let words = "; torch.autocast(\"cuda\") beside it halves activations and changes outputs a little";
        self.join(Lever::NoGraph, &[Lever::Precision], words);
    }

    pub(super) fn outputs_to_host(&mut self) {
        let case = self.case;
        if case.framework() != Framework::Torch || case.facts.is_nanogpt() {
            return;
        }
        let is_trainer = case.shows(Sign::HuggingFaceTrainer)
            || case.passes(&["nested_concat", "pad_and_concat", "transformers/trainer"]);
        let text = match is_trainer {
            true => {
                "Do not gather the outputs of a whole evaluation on the device: eval_accumulation_steps=1, \
                 preprocess_logits_for_metrics that keeps the argmax instead of the logits, or prediction_loss_only"
            }
            false => {
                "Move outputs and scores off the device batch by batch (.detach().cpu()), and compute the results from them on the CPU"
            }
        };
        self.add(Lever::OutputsToHost, text, ALL);
    }

    /// A volume is put together from all its windows.
    pub(super) fn window_outputs(&mut self) {
        if !self.case.shows(Sign::SlidingWindow) {
            return;
        }
        self.add(
            Lever::OutputsToHost,
            "Put the windows together on the CPU: device=torch.device(\"cpu\") of sliding_window_inference, which keeps one output as \
             large as the volume for each class",
            ALL,
        );
        self.join(Lever::OutputsToHost, &[Lever::EvaluationBatch], "; and fewer windows at once (sw_batch_size 1)");
    }

    /// What an evaluation leaves behind adds up over the epochs.
    fn let_go_between_evaluations(&mut self) {
        if self.case.framework() != Framework::Torch {
            return;
        }
        self.add(
            Lever::PlainNumbers,
            "Free what one evaluation leaves for the next: reset metrics (metric.reset()), empty lists of outputs, and keep losses as \
             numbers (.item())",
            ALL,
        );
    }

    /// What is kept of each output until the metric is computed.
    pub(super) fn fewer_outputs(&mut self) {
        let way = match self.case.shows(Sign::HuggingFaceTrainer) {
            true => " (preprocess_logits_for_metrics, batch_eval_metrics=True, or prediction_loss_only)",
            false => "",
        };
        let text = format!(
            "Keep less of each output of the evaluation: what the metric needs (the argmax, a sum) batch by batch{way}, instead of \
             all logits until the end"
        );
        self.add(Lever::PlainNumbers, text, ALL);
    }

    pub(super) fn crop(&mut self) {
        let case = self.case;
        let crop = case.facts.number(Key::Crop);
        let peak = crop.zip(case.culprit).and_then(|(crop, culprit)| {
            let [_, height, width] = *culprit.shape.as_slice() else { return None };
            let tried = u128::from(case.oom.requested?.get());
            let part = tried * u128::from(crop) * u128::from(crop) / u128::from(height.checked_mul(width)?.max(1));
            Some(case.oom.allocated?.saturating_add(Bytes(u64::try_from(part).ok()?)))
        });
        let size = crop.map_or("as training does".to_owned(), |crop| format!("of {crop} x {crop}, as training does"));
        let text = format!(
            "Evaluate on crops {size}, or in overlapping tiles whose outputs are put together (sliding-window inference): metrics of the \
             whole picture in the memory of one tile"
        );
        if let (Some(crop), Some((config, setting))) = (crop, case.facts.find(Key::EvalCrop)) {
            self.offer(single(config, setting, crop));
        }
        self.push(Lever::EvaluationCrop, text, Gain::peak(peak), ALL);
    }

    pub(super) fn evaluation_batch(&mut self) {
        let facts = self.case.facts;
        match facts.find(Key::EvalBatch).zip(facts.number(Key::EvalBatch)) {
            Some(((config, setting), batch)) if batch > 1 => {
                let smaller = smaller_evaluation_batch(&self.case, batch);
                let text = format!(
                    "Evaluate {smaller} samples at once instead of {batch} ({} {smaller})",
                    setting.path.join(".")
                );
                self.offer(single(config, setting, smaller));
                self.add(Lever::EvaluationBatch, text, ALL);
            }
            Some(_) => {}
            // Fewer than one sample there are not.
            None if facts.batch() == Some(1) && self.case.narrative().takes_one_sample => {
                self.add(
                    Lever::SmallerInput,
                    "Smaller samples: shorter texts (max_length, truncation), smaller pictures, fewer frames; one at once is the least",
                    NOT_NUMBERS,
                );
                self.join(Lever::SmallerInput, &[Lever::ShorterSequence], "");
                self.join(Lever::SmallerInput, &[Lever::SmallerModel], "; or a smaller variant of the model");
            }
            None => {
                let name = match self.case.shows(Sign::HuggingFaceTrainer) {
                    true => " (per_device_eval_batch_size)",
                    false => "",
                };
                let text = format!("Evaluate fewer samples at once{name}, or fewer candidates for each");
                self.add(Lever::EvaluationBatch, text, ALL);
                let (kin, words): (&[Lever], _) = match self.case.takes_words() {
                    true => (&[Lever::ShorterSequence], "; or shorter texts (max_length, truncation)"),
                    false => (
                        &[Lever::EvaluationCrop, Lever::SmallerInput],
                        "; or smaller pictures, fewer frames (crops, tiles)",
                    ),
                };
                self.join(Lever::EvaluationBatch, kin, words);
                if self.case.framework() == Framework::Torch && !self.case.shows(Sign::HuggingFaceTrainer) {
                    let words = "; and move outputs to the CPU before the next batch (.detach().cpu())";
                    self.join(Lever::EvaluationBatch, &[Lever::OutputsToHost], words);
                }
            }
        }
    }

    fn empty_cache(&mut self) {
        if self.case.framework() != Framework::Torch {
            return;
        }
        let text = format!(
            "Empty the cache before an evaluation and every few batches of it: gc.collect(), then {}.empty_cache(); delete its outputs \
             as soon as they are numbers",
            self.case.torch_device()
        );
        self.add(Lever::EmptyCache, text, ALL);
    }

    pub(super) fn evaluate_less(&mut self) {
        let facts = self.case.facts;
        let iters = facts.number(Key::EvalIters).or_else(|| facts.is_nanogpt().then_some(200));
        let interval = facts.number(Key::EvalInterval);
        let text = match (iters, interval, self.case.before_first_step) {
            (Some(iters), _, _) if facts.is_nanogpt() => format!(
                "Evaluate less: eval_iters {} instead of {iters}, and a larger eval_interval; this saves time, the \
                 peak stays",
                (iters / 4).max(1)
            ),
            (_, Some(interval), _) => {
                format!(
                    "Evaluate more rarely: every {} steps instead of {interval}; this saves time, the peak stays",
                    interval.saturating_mul(2)
                )
            }
            _ => "Evaluate fewer batches, or more rarely; this saves time, the peak stays".to_owned(),
        };
        let patch = match (facts.find(Key::EvalIters), facts.find(Key::EvalInterval).zip(interval)) {
            (Some((config, setting)), _) if facts.is_nanogpt() => {
                iters.and_then(|iters| single(config, setting, (iters / 4).max(1)))
            }
            (_, Some(((config, setting), interval))) => single(config, setting, interval.saturating_mul(2)),
            _ => None,
        };
        self.offer(patch);
        self.add(Lever::EvaluationLess, text, ALL);
    }
}

/// Half, or less where the figures ask for it.
fn smaller_evaluation_batch(case: &Case<'_>, batch: u64) -> u64 {
    let mut smaller = batch / 2;
    if let (Some(needed), Some(target)) = (case.needed(), case.target()) {
        while smaller > 1
            && u128::from(needed.get()) * u128::from(smaller) / u128::from(batch) > u128::from(target.get())
        {
            smaller /= 2;
        }
    }
    smaller.max(1)
}
