//! One event explained: cause, culprit, advice and patch as one verdict.

use lowtide_core::Bytes;
use lowtide_oom::{Engine, Place, Source};

use crate::advice::{Case, Counsel, advise};
use crate::cause::judge;
use crate::code_line::code_line;
use crate::culprit::{culprit, culprit_of_line, ends_at_logits};
use crate::facts::Facts;
use crate::holding::holdings;
use crate::log::{Event, Flag, Printout};
use crate::model::Model;
use crate::{Activity, Cause, CheckpointWork, Context, MemoryReport, Verdict};

/// Explains one event of a log.
pub(crate) fn verdict(event: &Event, log: &Printout, context: &Context) -> Verdict {
    let circumstances = &event.circumstances;
    let oom = &event.oom;
    let computes_on_host = oom.place == Place::Host && oom.source == Source::Allocator && oom.engine == Engine::PyTorch;
    let refused_logits = oom.requested.filter(|_| ends_at_logits(event));
    let flags = log.flags.with(context.configs.iter().map(|config| &*config.text));
    let frames = &circumstances.frames;
    let facts = Facts { configs: &context.configs, log, flags: &flags, frames, computes_on_host, refused_logits };
    let mut judgement = judge(event, log, flags.share(Flag::Share));
    let is_refused = oom.place == Place::Host && matches!(oom.source, Source::Allocator | Source::Heap);
    if let Some(limit) = log.address_limit.filter(|_| is_refused) {
        judgement = judgement.with(Cause::Limit);
        judgement.evidence.push(format!("the log shows `ulimit -v`: a process may have {limit} of addresses"));
    }
    let stated = circumstances.activity.as_ref().map(|(activity, _)| *activity);
    let by_work = judgement.checkpoint.and_then(CheckpointWork::phase);
    let activity = by_work.or_else(|| activity_of_source(event)).or(stated);
    let held = oom.allocated.or(oom.in_use).filter(|_| oom.place == Place::Device && !log.is_group);
    let read = Model::read(&facts).map(|model| model.shown_by(held, activity).shown_by_moment(oom.requested, activity));
    let refuted = read.and_then(|model| refuted_by_steps(&model, event, log, judgement.available));
    let model = read.filter(|_| refuted.is_none());
    let report = event.report.and_then(|index| context.reports.get(index));
    let by_line = || report.and_then(MemoryReport::code).and_then(|code| culprit_of_line(event, &code));
    let culprit = culprit(event, &facts, activity).or_else(by_line);
    let begins = matches!(activity, Some(Activity::Evaluation | Activity::Loading));
    let before_first_step = begins && circumstances.step.is_none() && !log.has_progress;
    let message = std::iter::once(&*event.message).chain(event.also.iter().map(|(_, text)| &**text));
    let message: String = message.collect::<Vec<_>>().join("\n");
    let by_figures = judgement.clone();
    let case = Case {
        oom,
        message: &message,
        judgement: &by_figures,
        activity,
        before_first_step,
        step: circumstances.step,
        facts: &facts,
        model,
        culprit: culprit.as_ref(),
        frames: &circumstances.frames,
    };
    judgement = match case.estimate_of_a_step() {
        Some(estimate) => judgement.against(estimate),
        None => judgement,
    };
    let case = Case { judgement: &judgement, ..case };
    let mut evidence = judgement.evidence.clone();
    if let Some(growth) = log.growth.sentence() {
        evidence.insert(evidence.len().min(1), growth);
    }
    if let Some((activity, why)) = circumstances.activity.as_ref().filter(|(stated, _)| activity == Some(*stated)) {
        evidence.push(format!("it happened in {activity}: {why}"));
    }
    evidence.extend(judgement.checkpoint.map(|work| work.to_string()));
    evidence.extend(steps_around(event, log, activity, case.kept()));
    evidence.extend(refuted);
    let Counsel { work, advice, patch, notes } = advise(&case);
    Verdict {
        place: oom.place,
        engine: oom.engine,
        source: oom.source,
        work,
        cause: judgement.cause,
        contributing: judgement.contributing.clone(),
        certainty: judgement.certainty,
        evidence,
        notes,
        line: event.line,
        message: event.message.clone(),
        phase: activity,
        before_first_step,
        step: circumstances.step,
        time: circumstances.time.clone(),
        ranks: None,
        heap: judgement.heap,
        ended_by: None,
        device_kind: oom.device_kind,
        device: oom.device,
        tried_bytes: oom.requested,
        capacity_bytes: oom.capacity.or(log.cards.total.filter(|_| oom.place == Place::Device)),
        free_bytes: oom.free,
        in_use_bytes: oom.in_use,
        allocated_bytes: oom.allocated,
        reserved_unallocated_bytes: oom.reserved_unallocated_or_derived(),
        limit_bytes: oom.limit.or(log.address_limit.filter(|_| is_refused)),
        held_by_others_bytes: judgement.others.filter(|bytes| *bytes > Bytes::ZERO),
        outside_allocator_bytes: judgement.outside,
        holders: judgement.holders.clone(),
        free_cards: judgement.free_cards.clone(),
        possibilities: judgement.possibilities.clone(),
        checkpoint: judgement.checkpoint,
        holdings: holdings(oom, &judgement),
        tensors: report.map(MemoryReport::tensors).unwrap_or_default(),
        code: code_line(&circumstances.frames),
        culprit,
        advice,
        patch,
        remarks: log.remarks.clone(),
        model: model.zip(facts.batch()).map(|(model, batch)| model.account(batch)),
    }
}

/// How far steps went before an event, where that is several of them.
fn steps_done(event: &Event, log: &Printout) -> Option<(u64, u64)> {
    let (first, step) = log.first_step.zip(event.circumstances.step)?;
    (step >= first.saturating_add(2)).then_some((first, step))
}

/// Why a model is not trained as its settings say: several steps had room, and what stays from step to step would have none.
fn refuted_by_steps(model: &Model, event: &Event, log: &Printout, available: Option<Bytes>) -> Option<String> {
    let fixed = Bytes(model.fixed());
    let available = available.filter(|available| event.oom.place == Place::Device && fixed > *available)?;
    let (first, step) = steps_done(event, log)?;
    Some(format!(
        "by the settings alone weights, gradients and moments take {fixed}, yet steps {first} to {step} went well in {available}: \
         they are sharded or offloaded, or only a part is trained, so no estimate of a step is shown"
    ))
}

/// What the steps before and after an event show, where something may be kept from one to the next.
fn steps_around(event: &Event, log: &Printout, activity: Option<Activity>, kept: &str) -> Vec<String> {
    let mut sentences = Vec::new();
    let is_step = matches!(activity, Some(Activity::Training | Activity::Optimizer));
    if let Some((first, step)) = steps_done(event, log).filter(|_| is_step) {
        sentences.push(format!(
            "steps {first} to {step} went well before, so steps differ: longer samples, or something that is kept \
             from step to step ({kept})"
        ));
    }
    if event.circumstances.frames.iter().any(|frame| frame.code.contains("retain_graph=True")) {
        sentences.push(
            "backward(retain_graph=True) keeps what a step computed as long as anything of it is held".to_owned(),
        );
    }
    if let Some(last) = log.last_step
        && event.circumstances.step.is_none_or(|step| last > step)
    {
        sentences.push(format!("the log goes on after it, to step {last}"));
    }
    sentences
}

/// What the program was doing, by who saw the end: a worker's end is no matter of the stack that waited for it.
fn activity_of_source(event: &Event) -> Option<Activity> {
    // NCCL shares memory between ranks.
    let is_of_workers = |source: Source| {
        source == Source::DataWorker || source == Source::SharedMemory && event.oom.engine != Engine::Cuda
    };
    let is_spawned = || event.circumstances.frames.iter().any(|frame| frame.function == "spawn_main");
    let is_worker = is_of_workers(event.oom.source)
        || event.also.iter().any(|(source, _)| is_of_workers(*source))
        || event.oom.engine == Engine::Windows && is_spawned();
    if is_worker {
        return Some(Activity::DataWorker);
    }
    // A server that is warmed up serves nobody yet.
    let starts = event.oom.source == Source::Startup || event.dummy_requests().is_some();
    starts.then_some(Activity::Loading)
}
