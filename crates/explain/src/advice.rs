//! What to do, in the order of what it gains against what it costs.

use lowtide_core::Bytes;
use lowtide_oom::{Oom, Place, Source};

use crate::cause::Judgement;
use crate::config::Syntax;
use crate::culprit::{WHOLE_FRAMES, allocation};
use crate::facts::{FP32, Facts, Key};
use crate::model::Model;
use crate::patch::{Patch, micro_batch, replace};
use crate::traceback::Frame;
use crate::verdict::{Activity, Advice, Cause, Culprit, Lever};

/// All that is known of an event.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Case<'a> {
    pub(crate) oom: &'a Oom,
    pub(crate) judgement: &'a Judgement,
    pub(crate) activity: Option<Activity>,
    pub(crate) before_first_step: bool,
    pub(crate) facts: &'a Facts<'a>,
    pub(crate) model: Option<Model>,
    pub(crate) culprit: Option<&'a Culprit>,
    pub(crate) frames: &'a [Frame],
}

/// Advice, the patch for the first of it that has one, and what is to be said of the configuration.
pub(crate) fn advise(case: &Case<'_>) -> (Vec<Advice>, Option<Patch>, Vec<String>) {
    let mut list = List { case: *case, advice: Vec::new(), patch: None, notes: Vec::new(), stale: case.stale() };
    if let Some(why) = &list.stale {
        list.notes.push(why.clone());
    }
    match case.oom.place {
        Place::Host => list.host(),
        Place::Device => list.device(),
    }
    list.what_fits_first();
    (list.advice, list.patch, list.notes)
}

impl Case<'_> {
    fn has(&self, cause: Cause) -> bool {
        self.judgement.cause == cause || self.judgement.contributing.contains(&cause)
    }

    fn is_language_model(&self) -> bool {
        self.model.is_some() || self.culprit.is_some_and(|culprit| culprit.name.contains("logits"))
    }

    /// What may be used: nineteen twentieths of what this process can have.
    fn target(&self) -> Option<Bytes> {
        self.judgement.available.map(|available| Bytes(available.get() / 20 * 19))
    }

    /// The need at the moment of failure, where the figures give it.
    fn needed(&self) -> Option<Bytes> {
        Some(self.oom.allocated?.saturating_add(self.oom.requested?))
    }

    /// Why the configuration is not the one of this log, where it is not.
    fn stale(&self) -> Option<String> {
        let (config, setting) = self.facts.find(Key::Batch)?;
        let batch = self.facts.batch()?;
        if let Some(logged) = self.facts.log.number(Key::Batch).filter(|logged| *logged != batch) {
            return Some(format!(
                "{}: {} is {batch}, but the log is of a run with {logged}: no patch for a configuration of another run",
                config.name,
                setting.path.join(".")
            ));
        }
        let sequence = self.facts.sequence()?;
        let tokens = self.frames.iter().rev().find_map(|frame| {
            let (shape, _) = allocation(&frame.code)?;
            let is_logits = shape.len() >= 2 && shape.last().copied() == self.facts.vocabulary();
            is_logits
                .then(|| shape[..shape.len() - 1].iter().fold(1_u64, |product, size| product.saturating_mul(*size)))
        });
        let expected = batch.saturating_mul(sequence);
        tokens.filter(|tokens| *tokens != expected).map(|tokens| {
            format!(
                "{}: {batch} x {sequence} are {expected} tokens, but the log is of a run with {tokens} at once: no \
                 patch for a \
                 configuration of another run",
                config.name
            )
        })
    }

    /// The largest micro-batch that divides the batch and is expected to fit, with its peak.
    fn plan(&self) -> Option<(u64, u64, Option<Bytes>)> {
        let batch = self.facts.batch().filter(|batch| *batch > 1)?;
        let divisors = (1..batch).rev().filter(|micro| batch.is_multiple_of(*micro));
        let fixed =
            self.model.map(|model| model.fixed()).or_else(|| Some(self.facts.log.parameters?.saturating_mul(16)));
        let mut chosen = None;
        for micro in divisors {
            let by_model = self.model.map(|model| model.peak(micro));
            let by_log = self.needed().zip(fixed).map(|(needed, fixed)| {
                let moving = needed.get().saturating_sub(fixed);
                Bytes(fixed.saturating_add((u128::from(moving) * u128::from(micro) / u128::from(batch)) as u64))
            });
            let peak = match (by_model, by_log) {
                (Some(one), Some(other)) => Some(one.max(other)),
                (one, other) => one.or(other),
            };
            // Without the fixed part, all of what was in use is taken to go down with the batch.
            let expected = peak.or_else(|| {
                self.needed()
                    .map(|needed| Bytes((u128::from(needed.get()) * u128::from(micro) / u128::from(batch)) as u64))
            });
            chosen = Some((micro, peak));
            match (expected, self.target()) {
                (Some(expected), Some(target)) if expected > target => {}
                _ => break,
            }
        }
        let (micro, peak) = chosen?;
        Some((micro, self.facts.accumulation().saturating_mul(batch / micro), peak))
    }
}

/// Whether a piece of advice keeps what it should.
#[derive(Clone, Copy)]
struct Keeps {
    batch: bool,
    model: bool,
    numbers: bool,
}

const ALL: Keeps = Keeps { batch: true, model: true, numbers: true };
const NOT_NUMBERS: Keeps = Keeps { numbers: false, ..ALL };
const NOT_MODEL: Keeps = Keeps { batch: true, model: false, numbers: false };

struct List<'a> {
    case: Case<'a>,
    advice: Vec<Advice>,
    patch: Option<Patch>,
    notes: Vec<String>,
    stale: Option<String>,
}

impl List<'_> {
    fn push(&mut self, lever: Lever, text: impl Into<String>, peak: Option<Bytes>, keeps: Keeps) {
        if self.advice.iter().any(|advice| advice.lever == lever) {
            return;
        }
        self.advice.push(Advice {
            lever,
            text: text.into(),
            expected_peak_bytes: peak,
            same_effective_batch: keeps.batch,
            same_model: keeps.model,
            same_numbers: keeps.numbers,
        });
    }

    fn offer(&mut self, patch: Option<Patch>) {
        if self.patch.is_none() && self.stale.is_none() {
            self.patch = patch;
        }
    }

    /// Behind the levers that may be enough come those that alone are not, then those that only save time; what changes
    /// the model stays last.
    fn what_fits_first(&mut self) {
        let Some(target) = self.case.target() else { return };
        self.advice.sort_by_key(|advice| {
            let too_much = advice.expected_peak_bytes.is_some_and(|peak| peak > target);
            let saves_no_memory = matches!(advice.lever, Lever::EvaluationLess | Lever::CompileOff);
            match advice.same_model && advice.same_effective_batch {
                true if saves_no_memory => 2,
                true => u8::from(too_much),
                false => 3,
            }
        });
        for advice in
            self.advice.iter_mut().filter(|advice| advice.expected_peak_bytes.is_some_and(|peak| peak > target))
        {
            advice.text.push_str(" (not enough alone)");
        }
    }

    fn device(&mut self) {
        let case = self.case;
        match case.judgement.cause {
            Cause::Fragmentation => self.expandable(),
            Cause::OtherProcess => self.other_process(),
            Cause::Limit => self.limit(),
            Cause::OutsideAllocator => self.outside(),
            Cause::Need | Cause::HostMemory => {}
        }
        match case.activity {
            Some(Activity::Evaluation) => self.evaluation(),
            Some(Activity::Optimizer) => self.optimizer(),
            Some(Activity::Loading) => self.loading(),
            _ => self.training(),
        }
        self.last_resorts();
    }

    fn evaluation(&mut self) {
        let frames = self.case.culprit.is_some_and(|culprit| culprit.name == WHOLE_FRAMES)
            || self.case.facts.number(Key::Crop).is_some();
        if frames {
            self.crop();
        }
        if self.case.facts.find(Key::EvalBatch).is_some() || !self.case.facts.is_nanogpt() {
            self.evaluation_batch();
        }
        if self.case.facts.is_nanogpt() {
            self.micro_batch();
        }
        if self.case.is_language_model() {
            self.chunked_loss();
        }
        if self.case.has(Cause::Fragmentation) {
            self.expandable();
            self.push(
                Lever::EmptyCache,
                "Give cached memory back before an evaluation and every few batches of it: gc.collect(), then \
                 torch.cuda.empty_cache(); delete its outputs as soon as they are numbers",
                None,
                ALL,
            );
        }
        self.contributors();
        self.evaluate_less();
        self.compile_off();
        if !frames {
            self.micro_batch();
        }
        self.precision();
    }

    fn training(&mut self) {
        self.micro_batch();
        if self.case.is_language_model() {
            self.chunked_loss();
        }
        self.recompute();
        self.contributors();
        self.compile_off();
        self.precision();
        self.spill();
    }

    fn optimizer(&mut self) {
        self.contributors();
        self.spill();
        self.push(
            Lever::LeaveRoom,
            "Update without whole-model temporaries: fused=True (or foreach=False) for the optimizer",
            None,
            ALL,
        );
        self.micro_batch();
        self.recompute();
        self.precision();
    }

    fn loading(&mut self) {
        self.contributors();
        self.push(
            Lever::LoadInPieces,
            "Load weights to the host first (map_location='cpu', low_cpu_mem_usage), move them once, and delete the \
             checkpoint \
             before the optimizer is made",
            None,
            ALL,
        );
        self.precision();
        self.spill();
    }

    /// What contributed is worth mending where it is large.
    fn contributors(&mut self) {
        if self.case.has(Cause::Fragmentation) {
            self.expandable();
        }
        if self.case.has(Cause::OtherProcess) {
            self.other_process();
        }
        if self.case.has(Cause::Limit) {
            self.limit();
        }
    }

    fn micro_batch(&mut self) {
        let case = self.case;
        let facts = case.facts;
        let Some((micro, accumulation, peak)) = case.plan() else {
            if facts.batch() != Some(1) {
                let text = "Compute the batch in smaller pieces: halve the batch size and double the steps of \
                    gradient accumulation";
                self.push(Lever::MicroBatch, text, None, ALL);
            }
            return;
        };
        let batch = facts.batch().unwrap_or(micro);
        let name =
            facts.find(Key::Batch).and_then(|(_, setting)| setting.path.last()).map_or("batch size", |name| name);
        let samples = if micro == 1 { "1 sample".to_owned() } else { format!("{micro} samples") };
        let mut text = format!(
            "Compute {samples} at once instead of {batch} and gather {accumulation} such pieces for each update \
             ({name} {micro}, \
             accumulation {accumulation})"
        );
        match micro_batch(facts, micro, accumulation) {
            Ok(patch) => {
                let is_command = patch.syntax == Syntax::Command;
                if !is_command && facts.is_nanogpt() {
                    text.push_str(&format!(
                        "; on the command line: --batch_size={micro} --gradient_accumulation_steps={accumulation}"
                    ));
                }
                let assumed = facts.number(Key::Accumulation).is_none() && facts.log.tokens_per_iteration.is_none();
                if assumed {
                    self.notes.push(
                        "accumulation is set nowhere and was taken to be 1; if the script's own default is another \
                         (nanoGPT's is \
                         40), multiply the new one by it"
                            .to_owned(),
                    );
                }
                self.offer(Some(patch));
            }
            Err(why) if facts.find(Key::Batch).is_some() => self.notes.push(format!("no patch for the batch: {why}")),
            Err(_) => {}
        }
        self.push(Lever::MicroBatch, text, peak, ALL);
    }

    fn chunked_loss(&mut self) {
        let case = self.case;
        let peak = case.model.zip(case.facts.batch()).map(|(model, batch)| model.peak_with_chunked_loss(batch));
        self.push(
            Lever::ChunkedLoss,
            "Compute the loss in pieces, so that the logits are never held whole (a loop over slices under \
             checkpoint, or a \
             fused linear cross-entropy)",
            peak,
            ALL,
        );
    }

    fn recompute(&mut self) {
        let case = self.case;
        // What a log prints may be of another run, or prose; a configuration is meant.
        if case.facts.find(Key::Recompute).is_some() && case.facts.is_on(Key::Recompute) == Some(true) {
            return;
        }
        let peak = case.model.zip(case.facts.batch()).map(|(model, batch)| model.recomputing().peak(batch));
        let patch = case.facts.find(Key::Recompute).and_then(|(config, setting)| {
            let old = config.text[setting.span.clone()].to_owned();
            let new = if old.starts_with('F') { "True" } else { "true" };
            let edit = crate::patch::Edit {
                key: setting.path.join("."),
                span: setting.span.clone(),
                old,
                new: new.to_owned(),
                value: "true".to_owned(),
            };
            Patch::new(config, vec![edit])
        });
        self.offer(patch);
        self.push(
            Lever::Recompute,
            "Recompute activations in backward instead of keeping them (torch.utils.checkpoint around each block, \
             gradient_checkpointing); about a third more time",
            peak,
            ALL,
        );
    }

    fn expandable(&mut self) {
        let needed = self.case.needed();
        let name = match self.case.oom.device_kind {
            Some(lowtide_oom::DeviceKind::Hip) => "PYTORCH_HIP_ALLOC_CONF",
            Some(lowtide_oom::DeviceKind::Npu) => "PYTORCH_NPU_ALLOC_CONF",
            _ => "PYTORCH_CUDA_ALLOC_CONF",
        };
        self.push(
            Lever::ExpandableSegments,
            format!("Let reserved memory grow instead of lying in pieces: export {name}=expandable_segments:True"),
            needed,
            ALL,
        );
    }

    fn other_process(&mut self) {
        let judgement = self.case.judgement;
        let who: Vec<String> = judgement
            .holders
            .iter()
            .filter(|holder| holder.used_bytes.is_some())
            .map(|holder| format!("process {} ({})", holder.pid, holder.used_bytes.unwrap_or_default()))
            .collect();
        let held = judgement.others.map_or(String::new(), |others| format!("{others} "));
        let text = match who.is_empty() {
            true => format!(
                "Find out who else holds {held}on the device (nvidia-smi) and end it, if it is yours and not needed"
            ),
            false => format!("End {}, if it is yours and not needed: others hold {held}on the device", who.join(", ")),
        };
        let is_enough = self.case.judgement.cause == Cause::OtherProcess;
        self.push(Lever::EndOtherProcess, text, self.case.needed().filter(|_| is_enough), ALL);
    }

    fn limit(&mut self) {
        let limit = self.case.oom.limit.map_or(String::new(), |limit| format!(" (it is {limit})"));
        let text = match self.case.oom.place {
            Place::Device => {
                format!("Raise the limit{limit}: set_per_process_memory_fraction, or the engine's own memory fraction")
            }
            Place::Host => format!(
                "Ask for more memory{limit}: --mem for Slurm, resources.limits.memory for Kubernetes, --memory for \
                 Docker, ulimit -v"
            ),
        };
        self.push(Lever::RaiseLimit, text, self.case.needed(), ALL);
    }

    fn outside(&mut self) {
        let text = match self.case.oom.source {
            Source::Collectives => {
                "Leave room for NCCL: call set_per_process_memory_fraction(0.9) early, and make its buffers smaller \
                 (NCCL_BUFFSIZE, \
                 fewer channels)"
            }
            Source::Blas => {
                "Leave room for cuBLAS: call set_per_process_memory_fraction(0.9) early; where memory is free, an \
                 index out of \
                 range shows itself this way too: run once with CUDA_LAUNCH_BLOCKING=1"
            }
            Source::Dnn => {
                "Leave room for cuDNN: call set_per_process_memory_fraction(0.9) early, and turn \
                 torch.backends.cudnn.benchmark off"
            }
            _ => {
                "See who is on the device before the program starts (nvidia-smi), and leave room for what the \
                 allocator does not count: \
                  set_per_process_memory_fraction(0.9)"
            }
        };
        self.push(Lever::LeaveRoom, text, None, ALL);
        if self.case.oom.source == Source::Runtime {
            self.other_process();
        }
    }

    fn crop(&mut self) {
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
            let patch = Patch::new(config, vec![replace(config, setting, crop)]);
            self.offer(patch);
        }
        self.push(Lever::EvaluationCrop, text, peak, ALL);
    }

    fn evaluation_batch(&mut self) {
        let facts = self.case.facts;
        match facts.find(Key::EvalBatch).zip(facts.number(Key::EvalBatch)) {
            Some(((config, setting), batch)) if batch > 1 => {
                let smaller = smaller_evaluation_batch(&self.case, batch);
                let text = format!(
                    "Evaluate {smaller} samples at once instead of {batch} ({} {smaller})",
                    setting.path.join(".")
                );
                let patch = Patch::new(config, vec![replace(config, setting, smaller)]);
                self.offer(patch);
                self.push(Lever::EvaluationBatch, text, None, ALL);
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
                self.push(Lever::EvaluationBatch, text, None, ALL);
            }
        }
    }

    fn evaluate_less(&mut self) {
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
        self.push(Lever::EvaluationLess, text, None, ALL);
    }

    fn compile_off(&mut self) {
        let uses = self.case.facts.is_on(Key::Compile) == Some(true)
            || self.case.frames.iter().any(|frame| {
                frame.file.contains("_inductor")
                    || frame.file.contains("_dynamo")
                    || frame.file.contains("torchinductor")
            });
        if uses {
            self.push(
                Lever::CompileOff,
                "Turn torch.compile off for a try, or leave max-autotune and reduce-overhead for its default mode: \
                 compiled graphs may \
                 hold more at once",
                None,
                ALL,
            );
        }
    }

    fn precision(&mut self) {
        let facts = self.case.facts;
        let no_bf16 = facts.log.remarks.iter().any(|remark| remark.kind == "no_bf16");
        let is_set =
            facts.is_nanogpt() || [Key::Bf16, Key::Fp16, Key::Dtype].into_iter().any(|key| facts.find(key).is_some());
        if is_set && facts.dtype().is_some_and(|dtype| dtype != FP32) && !no_bf16 {
            return;
        }
        let kind = if no_bf16 {
            "fp16 with a GradScaler (the card has no bf16)"
        } else {
            "bf16 (fp16 with a GradScaler where the card has no bf16)"
        };
        self.push(
            Lever::Precision,
            format!("Compute in {kind} under torch.autocast: about half the memory of activations"),
            None,
            NOT_NUMBERS,
        );
    }

    fn spill(&mut self) {
        let case = self.case;
        let moments = case
            .model
            .map(|model| model.parameters)
            .or(case.facts.log.parameters)
            .map(|count| Bytes(count.saturating_mul(8)));
        let peak = case
            .model
            .zip(case.facts.batch())
            .zip(moments)
            .map(|((model, batch), moments)| model.peak(batch).saturating_sub(moments));
        let size = moments.map_or(String::new(), |moments| format!(" ({moments})"));
        self.push(
            Lever::Spill,
            format!(
                "Keep the optimizer's moments{size} in the machine's memory, or saved activations (save_on_cpu); slower"
            ),
            peak,
            ALL,
        );
    }

    fn last_resorts(&mut self) {
        let case = self.case;
        if let Some(sequence) = case.facts.sequence().filter(|_| case.is_language_model()) {
            let half = (sequence / 2).max(1);
            let peak = case.model.zip(case.facts.batch()).map(|(model, batch)| model.with_sequence(half).peak(batch));
            self.push(
                Lever::ShorterSequence,
                format!("Shorter sequences: {half} instead of {sequence}; the model sees less context"),
                peak,
                Keeps { batch: false, model: false, numbers: false },
            );
        }
        let text = match case.facts.number(Key::HiddenChannels) {
            Some(channels) => {
                format!("A smaller model, last of all: {} hidden channels instead of {channels}", (channels / 2).max(1))
            }
            None => "A smaller model, last of all".to_owned(),
        };
        self.push(Lever::SmallerModel, text, None, NOT_MODEL);
    }

    fn host(&mut self) {
        let case = self.case;
        match case.oom.source {
            Source::SharedMemory => {
                self.push(
                    Lever::SharedMemory,
                    "Make /dev/shm larger (docker run --shm-size=8g or --ipc=host; an emptyDir of medium Memory in \
                     Kubernetes), or share \
                     tensors by file_system",
                    None,
                    ALL,
                );
                self.workers();
            }
            Source::ExitStatus => {
                self.push(
                    Lever::CheckLog,
                    "Look whether the kernel ended it: dmesg -T | grep -i 'killed process', or sacct -j JOB \
                     --format=State,MaxRSS",
                    None,
                    ALL,
                );
                self.workers();
            }
            Source::Cgroup | Source::Scheduler => {
                self.limit();
                self.workers();
            }
            Source::Allocator | Source::Heap if case.activity != Some(Activity::DataWorker) => {
                let is_loading = case.activity == Some(Activity::Loading);
                self.push(
                    Lever::LoadInPieces,
                    "Read data and weights in pieces or memory-mapped instead of whole (mmap=True, np.memmap, \
                     streaming)",
                    None,
                    ALL,
                );
                if !is_loading {
                    self.micro_batch();
                }
                self.workers();
            }
            _ => self.workers(),
        }
        self.data_cache();
        self.push(
            Lever::MoreMemory,
            "Run where there is more memory, or add swap so that the end comes as slowness instead",
            None,
            ALL,
        );
    }

    fn data_cache(&mut self) {
        let facts = self.case.facts;
        let text = match facts.find(Key::Cache).zip(facts.number(Key::Cache)) {
            Some(((config, setting), size)) if size > 1 => {
                let smaller = size / 2;
                let patch = Patch::new(config, vec![replace(config, setting, smaller)]);
                self.offer(patch);
                format!("Keep less data in memory: {} {smaller} instead of {size}", setting.path.join("."))
            }
            _ => "Keep less data in memory: a smaller cache, fewer prefetched batches (prefetch_factor), no pinned \
                copies"
                .to_owned(),
        };
        self.push(Lever::SmallerDataCache, text, None, ALL);
    }

    fn workers(&mut self) {
        let facts = self.case.facts;
        match facts.find(Key::Workers).zip(facts.number(Key::Workers)) {
            Some(((config, setting), workers)) if workers > 0 => {
                let fewer = workers / 2;
                let text = format!(
                    "Fewer data workers: {} {fewer} instead of {workers}; each holds its own copy of what it reads",
                    setting.path.join(".")
                );
                let patch = Patch::new(config, vec![replace(config, setting, fewer)]);
                self.offer(patch);
                self.push(Lever::FewerWorkers, text, None, ALL);
            }
            Some(_) => {}
            None => self.push(
                Lever::FewerWorkers,
                "Fewer data workers (num_workers): each holds its own copy of what it reads",
                None,
                ALL,
            ),
        }
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
