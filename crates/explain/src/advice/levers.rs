//! The levers of a device, one function each, with the peak expected after it and its patch.

use lowtide_config::Syntax;
use lowtide_core::Bytes;
use lowtide_log::{StackFrame, recomputes};
use lowtide_oom::{DeviceKind, Place, Source};
use lowtide_trainers::Answer;

use super::case::Case;
use super::framework::Framework;
use super::list::{ALL, List, NOT_NUMBERS};
use crate::facts::{FP32, Facts, FixedUpdate, Key};
use crate::model::Model;
use crate::patch::{Patch, add_after, export, micro_batch, single, switch};
use crate::verdict::{Cause, Lever};

impl List<'_> {
    pub(super) fn micro_batch(&mut self) {
        let case = self.case;
        let facts = case.facts;
        let batch = facts.batch();
        let Some(((micro, peak), batch)) = case.micro_batch().zip(batch) else {
            match (facts.answer(Key::Batch), batch) {
                (Answer::Number { config, setting, .. }, Some(1)) => {
                    let name = setting.path.join(".");
                    self.no_patch(format!("{}: {name} is 1 already", config.name));
                }
                (Answer::Unknown(why), _) => self.no_patch(why),
                _ => {}
            }
            if batch != Some(1) {
                self.add(Lever::MicroBatch, TWICE_THE_STEPS);
            }
            return;
        };
        let name = facts.find(Key::Batch).and_then(|(_, setting)| setting.name()).unwrap_or("batch size");
        let samples = if micro == 1 { "1 sample".to_owned() } else { format!("{micro} samples") };
        let is_evaluation_only = facts.is_on(Key::EvalOnly) == Some(true);
        let fixed = facts.fixed_update();
        let gathers = !is_evaluation_only && fixed.is_none();
        let accumulation = match facts.accumulation() {
            Ok(steps) => steps.saturating_mul(batch / micro),
            Err(_) if !gathers => 1,
            Err(why) => {
                self.no_patch(why);
                self.add(Lever::MicroBatch, TWICE_THE_STEPS);
                return;
            }
        };
        let mut text = match (is_evaluation_only, fixed, facts.whole_batch()) {
            (true, ..) => format!("Evaluate {samples} at once instead of {batch} ({name} {micro})"),
            (false, Some(fixed), _) => {
                fixed_text(&format!("{samples} at once instead of {batch}"), name, micro, &fixed)
            }
            (false, None, Some((_, whole))) => format!(
                "Compute {samples} at once instead of {batch}, on one device: gradient_accumulation_steps \
                 {accumulation}, and train_batch_size stays {}",
                whole.value
            ),
            (false, None, None) => format!(
                "Compute {samples} at once instead of {batch} and gather {accumulation} such pieces for each update \
                 ({name} {micro}, accumulation {accumulation})"
            ),
        };
        let is_set = facts.answer(Key::Accumulation) != Answer::Absent
            || facts.log.number(Key::Accumulation).is_some()
            || facts.log.tokens_per_iteration.is_some();
        if !is_set && gathers && facts.answer(Key::Batch) != Answer::Absent {
            let usual = if facts.is_nanogpt() { " (nanoGPT's is 40)" } else { "" };
            self.notes.push(format!(
                "accumulation is set nowhere and was taken to be 1; if the script's own default is \
                 another{usual}, multiply the new one by it"
            ));
        }
        match micro_batch(facts, micro, accumulation) {
            Ok(patch) => {
                let is_command = patch.syntax == Syntax::Command;
                if !is_command && facts.is_nanogpt() && gathers {
                    text.push_str(&format!(
                        "; on the command line: --batch_size={micro} --gradient_accumulation_steps={accumulation}"
                    ));
                }
                self.offer(Some(patch));
            }
            Err(why) if facts.answer(Key::Batch) != Answer::Absent => self.no_patch(why),
            Err(_) => {}
        }
        self.push(Lever::MicroBatch, text, peak, ALL);
    }

    /// Says once why the batch has no patch.
    fn no_patch(&mut self, why: impl std::fmt::Display) {
        let note = format!("no patch for the batch: {why}");
        if !self.notes.contains(&note) {
            self.notes.push(note);
        }
    }

    pub(super) fn chunked_loss(&mut self) {
        let case = self.case;
        let peak = case.after(|model, batch| model.peak_with_chunked_loss(batch));
        let text = "Compute the loss in pieces, so that the logits are never held whole (a loop over slices under \
                    checkpoint, or a fused linear cross-entropy)";
        self.push(Lever::ChunkedLoss, text, peak, ALL);
    }

    pub(super) fn recompute(&mut self) {
        let case = self.case;
        // What a log prints may be of another run, or prose; a configuration is meant.
        let is_on = case.facts.find(Key::Recompute).is_some() && case.facts.is_on(Key::Recompute) == Some(true);
        if is_on || case.frames.iter().any(recomputes) {
            return;
        }
        let peak = case.after(|model, batch| Model { recomputes: true, ..model }.peak(batch));
        let patch = match case.facts.find(Key::Recompute) {
            Some((config, setting)) => switch(config, setting, true),
            // Hugging Face's Trainer has it for every model of theirs.
            None => {
                case.facts.find(Key::Batch).filter(|_| case.facts.is_hugging_face()).and_then(|(config, setting)| {
                    let value = if config.syntax == Syntax::Python { "True" } else { "true" };
                    Patch::new(config, vec![add_after(config, setting, "gradient_checkpointing", value)?])
                })
            }
        };
        self.offer(patch);
        let way = case.framework().recompute();
        let text = format!("Recompute activations in backward instead of keeping them{way}; about a third more time");
        self.push(Lever::Recompute, text, peak, ALL);
    }

    pub(super) fn expandable(&mut self) {
        let needed = self.case.needed();
        let (name, value) = match (self.case.framework(), self.case.oom.device_kind) {
            (Framework::Tensorflow | Framework::Jax, _) => ("TF_GPU_ALLOCATOR", "cuda_malloc_async"),
            (_, Some(DeviceKind::Hip)) => ("PYTORCH_HIP_ALLOC_CONF", "expandable_segments:True"),
            (_, Some(DeviceKind::Npu)) => ("PYTORCH_NPU_ALLOC_CONF", "expandable_segments:True"),
            _ => ("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True"),
        };
        self.offer(self.case.facts.configs.iter().rev().find_map(|config| export(config, name, value)));
        let text = format!("Let reserved memory grow instead of lying in pieces: export {name}={value}");
        self.push(Lever::ExpandableSegments, text, needed, ALL);
    }

    pub(super) fn other_process(&mut self) {
        let judgement = self.case.judgement;
        let who: Vec<String> = judgement
            .holders
            .iter()
            .filter(|holder| holder.used_bytes.is_some())
            .map(|holder| format!("process {} ({})", holder.pid, holder.used_bytes.unwrap_or_default()))
            .collect();
        let held = judgement.others.map_or("memory ".to_owned(), |others| format!("{others} "));
        let text = match who.is_empty() {
            _ if self.case.facts.log.is_group => format!(
                "Give every rank a card of its own (torch.cuda.set_device(local_rank), no more processes than cards): \
                 others hold {held}on the device, and this is a run of several processes; end {}, if it is none of \
                 them, is yours and is not needed",
                if who.is_empty() { "who holds it (nvidia-smi)".to_owned() } else { who.join(", ") }
            ),
            true => format!(
                "Find out who else holds {held}on the device (nvidia-smi) and end it, if it is yours and not needed"
            ),
            false => format!("End {}, if it is yours and not needed: others hold {held}on the device", who.join(", ")),
        };
        let is_enough = self.case.judgement.cause == Cause::OtherProcess;
        self.push(Lever::EndOtherProcess, text, self.case.needed().filter(|_| is_enough), ALL);
    }

    pub(super) fn limit(&mut self) {
        let limit = self.case.oom.limit.map_or(String::new(), |limit| format!(" (it is {limit})"));
        let text = match self.case.oom.place {
            Place::Device => {
                let own = match self.case.framework() {
                    Framework::Torch => "set_per_process_memory_fraction, or ",
                    _ => "",
                };
                format!("Raise the limit{limit}: {own}the engine's own memory fraction")
            }
            Place::Host => format!(
                "Ask for more memory{limit}: --mem for Slurm, resources.limits.memory for Kubernetes, --memory for \
                 Docker, ulimit -v"
            ),
        };
        self.push(Lever::RaiseLimit, text, self.case.needed(), ALL);
    }

    pub(super) fn outside(&mut self) {
        let leave = self.case.framework().leave_room();
        let text = match self.case.oom.source {
            Source::Collectives => {
                format!("Leave room for NCCL: {leave}, and make its buffers smaller (NCCL_BUFFSIZE, fewer channels)")
            }
            Source::Blas => format!(
                "Leave room for cuBLAS: {leave}; where memory is free, an index out of range shows itself this way \
                 too: run once with CUDA_LAUNCH_BLOCKING=1"
            ),
            Source::Dnn if self.case.framework() == Framework::Torch => {
                format!("Leave room for cuDNN: {leave}, and turn torch.backends.cudnn.benchmark off")
            }
            Source::Dnn => format!("Leave room for cuDNN: {leave}"),
            _ => format!(
                "See who is on the device before the program starts (nvidia-smi), and leave room for what the \
                 allocator does not count: {leave}"
            ),
        };
        self.add(Lever::LeaveRoom, text);
        if self.case.oom.source == Source::Runtime {
            self.other_process();
        }
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
            "Evaluate on crops {size}, or cut whole frames into overlapping tiles and put the outputs together: \
             the figures of the \
             whole frame in the memory of one tile"
        );
        if let (Some(crop), Some((config, setting))) = (crop, case.facts.find(Key::EvalCrop)) {
            self.offer(single(config, setting, crop));
        }
        self.push(Lever::EvaluationCrop, text, peak, ALL);
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
                self.add(Lever::EvaluationBatch, text);
            }
            Some(_) => {}
            None => {
                let gathers = self.case.frames.iter().any(|frame| frame.code.contains("nested_concat"));
                let text = match gathers {
                    true => {
                        "Do not gather the outputs of a whole evaluation on the device: eval_accumulation_steps=1, \
                         prediction_loss_only, \
                         or preprocess_logits_for_metrics; and a smaller per_device_eval_batch_size"
                    }
                    false => {
                        "Evaluate fewer samples at once, and turn outputs into plain numbers before the next batch"
                    }
                };
                self.add(Lever::EvaluationBatch, text);
            }
        }
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
        self.add(Lever::EvaluationLess, text);
    }

    pub(super) fn compile_off(&mut self) {
        let uses = self.case.facts.is_on(Key::Compile) == Some(true) || goes_through_compiled(self.case.frames);
        if uses {
            self.offer(self.case.facts.find(Key::Compile).and_then(|(config, setting)| switch(config, setting, false)));
            self.add(
                Lever::CompileOff,
                "Turn torch.compile off for a try, or leave max-autotune and reduce-overhead for its default mode: \
                 compiled graphs may \
                 hold more at once",
            );
        }
    }

    pub(super) fn precision(&mut self) {
        let facts = self.case.facts;
        let no_bf16 = facts.log.remarks.iter().any(|remark| remark.kind == "no_bf16");
        let is_set =
            facts.is_nanogpt() || [Key::Bf16, Key::Fp16, Key::Dtype].into_iter().any(|key| facts.find(key).is_some());
        if is_set && facts.dtype().is_some_and(|dtype| dtype != FP32) && !no_bf16 {
            return;
        }
        let kind = self.case.framework().precision(no_bf16);
        self.offer(precision_patch(facts, no_bf16));
        let text = format!("Compute in {kind}: about half the memory of activations");
        self.push(Lever::Precision, text, None, NOT_NUMBERS);
    }

    pub(super) fn spill(&mut self) {
        let case = self.case;
        let moments = case
            .model
            .map(|model| model.parameters)
            .or(case.facts.log.parameters)
            .map(|count| Bytes(count.saturating_mul(8)));
        let peak = moments.and_then(|moments| case.after(|model, batch| model.peak(batch).saturating_sub(moments)));
        let size = moments.map_or(String::new(), |moments| format!(" ({moments})"));
        let way = case.framework().spill();
        let text = format!("Keep the optimizer's moments{size} in the machine's memory{way}; slower");
        self.push(Lever::Spill, text, peak, ALL);
    }
}

/// Without the numbers, where they are not known.
const TWICE_THE_STEPS: &str = "Compute the batch in smaller pieces: half the batch, and twice whatever gradient \
    accumulation is now";

/// A smaller micro-batch where the update is set as a whole.
fn fixed_text(pieces: &str, name: &str, micro: u64, fixed: &FixedUpdate<'_>) -> String {
    let stays = match fixed.samples {
        Some(samples) if samples.is_multiple_of(micro) => {
            format!("{samples}: {} such pieces for each update, over all devices", samples / micro)
        }
        Some(samples) => samples.to_string(),
        None => "as it is".to_owned(),
    };
    format!("Compute {pieces} ({name} {micro}); {} stays {stays}", fixed.name)
}

/// Half precision in the words of whoever reads the setting; the type of a stored model is left alone.
fn precision_patch(facts: &Facts<'_>, no_bf16: bool) -> Option<Patch> {
    let flag = if no_bf16 { Key::Fp16 } else { Key::Bf16 };
    if let Some((config, setting)) = facts.find(flag) {
        return switch(config, setting, true);
    }
    let (config, setting) = facts.find(Key::Dtype)?;
    let name = setting.path.last().map(|name| name.to_ascii_lowercase())?;
    let value = match (&*name, no_bf16) {
        ("dtype", false) => "bfloat16",
        ("dtype", true) => "float16",
        ("precision", false) => "bf16-mixed",
        ("precision", true) => "16-mixed",
        ("mixed_precision", false) => "bf16",
        ("mixed_precision", true) => "fp16",
        _ => return None,
    };
    single(config, setting, value)
}

/// Whether a stack goes through compiled code. PyTorch's own functions that are kept out of it go through its compiler
/// too, by way of `_compile.py`.
fn goes_through_compiled(frames: &[StackFrame]) -> bool {
    let is_kept_out = |at: usize| at > 0 && frames[at - 1].file_name() == "_compile.py";
    frames.iter().enumerate().any(|(at, frame)| {
        let has = |part: &str| frame.file.contains(part);
        has("_inductor") || has("torchinductor") || (has("_dynamo") && !is_kept_out(at))
    })
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
