//! The way in: a log and what is known besides, to verdicts.

use lowtide_core::Bytes;
use lowtide_oom::{LookAlike, Place, Source};
use serde::Serialize;

use crate::advice::{Case, advise};
use crate::cause::judge;
use crate::culprit::culprit;
use crate::event::Event;
use crate::facts::{Facts, LogFacts};
use crate::model::Model;
use crate::reader::Reader;
use crate::verdict::{Activity, Cause, Verdict};
use lowtide_config::Config;

/// What is known besides the log.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Context {
    /// Configurations and command lines of the run; a later one counts before an earlier one.
    pub configs: Vec<Config>,
}

/// A log, explained.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Explained {
    /// One for each event, the last event first; of very many, the last ones.
    pub verdicts: Vec<Verdict>,
    /// How many events were read in the log.
    pub events: u64,
    /// Whether the log has more: of thousands in a row only the last ones are read.
    pub has_more: bool,
    /// Something that looks like memory running out and is something else, where that is all there is.
    pub not_memory: Option<NotMemory>,
}

/// Something that is no out-of-memory error.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct NotMemory {
    /// Line of the log, from 1.
    pub line: u64,
    /// What it is instead.
    pub kind: LookAlike,
    /// The line, cut to a bounded length.
    pub text: String,
}

impl NotMemory {
    /// What it is instead, as a noun that fits "this is ...", and what to do.
    #[must_use]
    pub const fn words(&self) -> &'static str {
        match self.kind {
            LookAlike::CorruptedSize => {
                "a corrupted size: no device has that much memory, so a counter, a shape or a message from another \
                 process is \
                 broken (often after a communication timeout); mend that, no memory will help"
            }
            LookAlike::KernelResources => {
                "a kernel that wants more of the chip's own scratch memory than there is: smaller blocks or fewer \
                 stages"
            }
            LookAlike::ConfigurationRefused => {
                "a check before any allocation that refused the configuration: follow its own advice"
            }
            LookAlike::BufferLimit => {
                "one buffer above what the interface allows, however much memory is free: split it"
            }
            LookAlike::DiskFull => "a full disk, not memory",
            LookAlike::IllegalAccess => "a wild access on the device: a bug, not a lack of memory",
            LookAlike::FileLimit => "too many open files: raise `ulimit -n`, or share tensors by file_system",
            LookAlike::StackOverflow => "endless recursion or a stack too small",
            LookAlike::Quota => "a refusal by a service: quota, rate or message size",
            LookAlike::StaticThreadStorage => {
                "the loader's block for thread variables, which is full: import that library first"
            }
            LookAlike::InvalidArgument => "a device or a launch setting that does not exist",
            LookAlike::Ended => {
                "the end of a process that somebody ended: a time limit, a scheduler, a user; the log has no word of \
                 memory"
            }
            LookAlike::Mentioned => "talk of running out of memory, without an error that says it did",
        }
    }
}

/// Explains every out-of-memory event of a log, the last one first.
#[must_use]
pub fn explain(log: &[u8], context: &Context) -> Vec<Verdict> {
    let mut reader = Reader::new();
    reader.feed(log);
    reader.finish(context).verdicts
}

pub(crate) fn verdict(event: &Event, log: &LogFacts, context: &Context) -> Verdict {
    let surroundings = &event.surroundings;
    let stack_is_nanogpt = surroundings.frames.iter().any(|frame| frame.function == "estimate_loss");
    let facts = Facts { configs: &context.configs, log, stack_is_nanogpt };
    let oom = &event.oom;
    let mut judgement = judge(event);
    let is_refused = oom.place == Place::Host && matches!(oom.source, Source::Allocator | Source::Heap);
    if let Some(limit) = log.address_limit.filter(|_| is_refused) {
        judgement.contributing.push(Cause::Limit);
        judgement.evidence.push(format!("the log shows `ulimit -v`: a process may have {limit} of addresses"));
    }
    let activity = surroundings.activity.as_ref().map(|(activity, _)| *activity).or_else(|| by_source(event));
    let model = Model::read(&facts);
    let culprit = culprit(event, &facts, activity);
    let mut evidence = judgement.evidence.clone();
    if let Some((activity, why)) = &surroundings.activity {
        evidence.push(format!("it happened in {activity}: {why}"));
    }
    evidence.extend(course(event, log, activity));
    let begins = matches!(activity, Some(Activity::Evaluation | Activity::Loading));
    let before_first_step = begins && surroundings.step.is_none() && !log.has_progress;
    let case = Case {
        oom,
        judgement: &judgement,
        activity,
        before_first_step,
        facts: &facts,
        model,
        culprit: culprit.as_ref(),
        frames: &surroundings.frames,
    };
    let (advice, patch, notes) = advise(&case);
    evidence.extend(notes);
    Verdict {
        place: oom.place,
        engine: oom.engine,
        source: oom.source,
        cause: judgement.cause,
        contributing: distinct(&judgement.contributing),
        certainty: judgement.certainty,
        evidence,
        line: event.line,
        message: event.message.clone(),
        phase: activity,
        before_first_step,
        step: surroundings.step,
        time: surroundings.time.clone(),
        device_kind: oom.device_kind,
        device: oom.device,
        tried_bytes: oom.requested,
        capacity_bytes: oom.capacity,
        free_bytes: oom.free,
        in_use_bytes: oom.in_use,
        allocated_bytes: oom.allocated,
        reserved_unallocated_bytes: oom.reserved_unallocated_or_derived(),
        limit_bytes: oom.limit.or(log.address_limit.filter(|_| is_refused)),
        held_by_others_bytes: judgement.others.filter(|bytes| *bytes > Bytes::ZERO),
        outside_allocator_bytes: judgement.outside,
        holders: judgement.holders.clone(),
        culprit,
        advice,
        patch,
        remarks: log.remarks.clone(),
        model: model.zip(facts.batch()).map(|(model, batch)| model.account(batch)),
    }
}

/// What the steps before and after an event tell.
fn course(event: &Event, log: &LogFacts, activity: Option<Activity>) -> Vec<String> {
    let mut told = Vec::new();
    let is_step = matches!(activity, Some(Activity::Training | Activity::Optimizer));
    if let (Some(first), Some(step)) = (log.first_step, event.surroundings.step)
        && is_step
        && step >= first.saturating_add(2)
    {
        told.push(format!(
            "steps {first} to {step} went well before, so steps differ: longer samples, or something that is kept \
             from step to step (a sum of losses with their graphs instead of loss.item(), outputs in a list)"
        ));
    }
    if event.surroundings.frames.iter().any(|frame| frame.code.contains("retain_graph=True")) {
        told.push(
            "backward(retain_graph=True) keeps what a step computed as long as anything of it is held".to_owned(),
        );
    }
    if let Some(last) = log.last_step
        && event.surroundings.step.is_none_or(|step| last > step)
    {
        told.push(format!("the log goes on after it, to step {last}"));
    }
    told
}

fn by_source(event: &Event) -> Option<Activity> {
    use lowtide_oom::Source;
    let sources = std::iter::once(event.oom.source).chain(event.also.iter().map(|(source, _)| *source));
    sources
        .into_iter()
        .any(|source| matches!(source, Source::DataWorker | Source::SharedMemory))
        .then_some(Activity::DataWorker)
}

fn distinct<T: Copy + PartialEq>(items: &[T]) -> Vec<T> {
    let mut kept = Vec::new();
    for item in items {
        if !kept.contains(item) {
            kept.push(*item);
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn look_alikes_fit_the_sentence() {
        for kind in [
            LookAlike::CorruptedSize,
            LookAlike::KernelResources,
            LookAlike::ConfigurationRefused,
            LookAlike::BufferLimit,
            LookAlike::DiskFull,
            LookAlike::IllegalAccess,
            LookAlike::FileLimit,
            LookAlike::StackOverflow,
            LookAlike::Quota,
            LookAlike::StaticThreadStorage,
            LookAlike::InvalidArgument,
            LookAlike::Ended,
            LookAlike::Mentioned,
        ] {
            let found = NotMemory { line: 1, kind, text: String::new() };
            // "what looks like one is ...": a noun, whose verb, if any, stands in a clause of its own.
            let noun = found.words().split([':', ',']).next().unwrap_or_default();
            let noun = noun.split(" that ").next().unwrap_or_default();
            let has_verb = [" is ", " wants ", " refused", " talks "].iter().any(|verb| noun.contains(verb));
            assert!(!has_verb, "{}", found.words());
        }
    }
}
