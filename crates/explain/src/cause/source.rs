//! Who refused decides which figures count: an allocator, the machine, or the driver past every allocator.

use lowtide_core::Bytes;
use lowtide_log::StackFrame;
use lowtide_oom::{Certainty, Engine, Oom, Place, Source};

use super::allocator::allocator;
use super::checkpoint::{CheckpointWork, checkpoint_work};
use super::figures::figures;
use super::host::host;
use super::judgement::Judgement;
use super::startup::startup;
use crate::log::{Event, Printout};
use crate::verdict::{Cause, Holder, Relation};

/// Judges an event of a log, of a server that was given a share of the card.
pub(crate) fn judge(event: &Event, log: &Printout, share: Option<f64>) -> Judgement {
    let mut judgement = match (event.oom.place, event.oom.source) {
        (Place::Host, _) => host(event, log),
        (Place::Device, Source::Allocator) if is_pool_limit(event) => pool_limit(event),
        (Place::Device, Source::Allocator) if is_block_limit(event) => block_limit(&event.oom),
        (Place::Device, Source::Allocator) => allocator(&event.oom, log),
        (Place::Device, Source::Scheduler) => slice_of_a_card(&event.oom),
        (Place::Device, Source::Startup) => startup(event, &log.cards, share),
        (Place::Device, Source::Heap) if is_told(&event.oom) => told(&event.oom),
        (Place::Device, _) => driver(event, log),
    };
    judgement.certainty = round(judgement.certainty * event.oom.certainty.number() / 0.98);
    judgement.checkpoint = checkpoint_work(event, log);
    // A state that is put together asks for one tensor after the other: what is idle would have served one of them.
    let is_put_together = matches!(judgement.checkpoint, Some(CheckpointWork::Gather | CheckpointWork::Copy));
    if is_put_together && judgement.cause == Cause::Fragmentation {
        judgement.certainty = judgement.certainty.min(0.5);
        judgement = judgement.with(Cause::Need);
    }
    if event.oom.place == Place::Device {
        judgement.free_cards = log.cards.free_cards(event.oom.device);
    }
    judgement
}

fn round(certainty: f64) -> f64 {
    (certainty.clamp(0.0, 0.99) * 100.0).round() / 100.0
}

/// Whether somebody tells in a sentence of a card that was full, and shows no error.
fn is_told(oom: &Oom) -> bool {
    oom.engine == Engine::Unknown && oom.certainty == Certainty::Slight && oom.requested.is_none()
}

fn told(oom: &Oom) -> Judgement {
    let text = "the post shows no error of it, and a step that needs too much is the usual cause";
    Judgement::bare(oom, Cause::Need, 0.55, text)
}

/// Whether the pool that refused is as large as it was allowed to be.
fn is_pool_limit(event: &Event) -> bool {
    ["Maximum pool size exceeded", "is smaller than requested bytes of"]
        .iter()
        .any(|words| event.message.contains(words))
}

/// Whether a single block was refused by its size: Intel's cards.
fn is_block_limit(event: &Event) -> bool {
    event.message.contains("block with size larger than 4GB")
}

/// A single block above what the platform allows, however much is free.
fn block_limit(oom: &Oom) -> Judgement {
    let asked = oom.requested.map_or("more".to_owned(), |tried| tried.to_string());
    let limit = oom.limit.unwrap_or(Bytes::from_gib(4));
    let text = format!("{asked} in one block, and the platform allows {limit} for a single one, however much is free");
    Judgement { available: oom.capacity, ..Judgement::bare(oom, Cause::Limit, 0.95, &text) }
}

/// What a cluster lets a container take of a card.
fn slice_of_a_card(oom: &Oom) -> Judgement {
    let slice = oom.limit.map_or("a part".to_owned(), |limit| limit.to_string());
    let text = format!("the container may take {slice} of the card, and what was asked for would have gone beyond");
    Judgement { available: oom.limit, ..Judgement::bare(oom, Cause::Limit, 0.95, &text) }
}

fn pool_limit(event: &Event) -> Judgement {
    let text = "the pool was at the size it may grow to, which the program sets when it makes the pool";
    Judgement::bare(&event.oom, Cause::Limit, 0.7, text).with(Cause::Need)
}

/// Judges what the driver itself refused.
fn driver(event: &Event, log: &Printout) -> Judgement {
    if let Some(judgement) = by_table(&event.oom, log) {
        return judgement;
    }
    if let Some(judgement) = full_at_start(&event.oom, log) {
        return judgement;
    }
    if let Some(judgement) = filled_by_plan(&event.oom, log) {
        return judgement;
    }
    if has_no_allocator(event) {
        let text = "the driver refused, and this engine asks it for every tensor: the step needs more than was free";
        return Judgement::bare(&event.oom, Cause::Need, 0.65, text);
    }
    if event.oom.source == Source::Runtime && is_first_use(event) {
        return no_room_to_begin(&event.oom);
    }
    outside(&event.oom)
}

/// What a table of the cards shows, where the message has no figures: others who fill the device.
fn by_table(oom: &Oom, log: &Printout) -> Option<Judgement> {
    let card = log.cards.card(oom.device)?;
    let holders = figures(oom, oom.requested.unwrap_or_default(), log).holders;
    let sum = |wanted: &dyn Fn(&Holder) -> bool| {
        let used = holders.iter().filter(|holder| wanted(holder)).filter_map(|holder| holder.used_bytes);
        used.fold(Bytes::ZERO, Bytes::saturating_add)
    };
    let theirs = sum(&|holder| holder.relation == Relation::Other);
    let (used, total) = (Bytes::from_mib(card.used_mib), Bytes::from_mib(card.total_mib));
    let held = sum(&|_| true);
    let (held, text) = match theirs.get() >= total.get() / 2 {
        true => (held, format!("the table in the log shows {held} of {total} in the hands of others")),
        false if log.cards.was_full(oom.device) => {
            (used, format!("the table in the log shows {used} of {total} in use before it failed"))
        }
        false => return None,
    };
    let judgement = Judgement { others: Some(held), holders, ..Judgement::bare(oom, Cause::OtherProcess, 0.75, &text) };
    Some(judgement.with(Cause::OutsideAllocator))
}

/// What the program found free when it began, where that is less than a quarter of the device.
fn full_at_start(oom: &Oom, log: &Printout) -> Option<Judgement> {
    let (free, total) = log.cards.free_at_start.zip(log.cards.total)?;
    let held = Some(total.saturating_sub(free)).filter(|_| free.get() < total.get() / 4)?;
    let text = format!("{free} of {total} were free when the program began: others held {held}");
    let judgement = Judgement::bare(oom, Cause::OtherProcess, 0.75, &text);
    Some(Judgement { others: Some(held), ..judgement }.with(Cause::OutsideAllocator))
}

/// A server that filled the device by its own reckoning, with a part of a model that is larger.
fn filled_by_plan(oom: &Oom, log: &Printout) -> Option<Judgement> {
    let plan = log.cards.plan.filter(|plan| plan.whole > plan.available)?;
    let (whole, part, available) = (plan.whole, plan.part, plan.available);
    let text =
        format!("ollama planned {part} on the device, where {available} were to be had: the whole model needs {whole}");
    let judgement = Judgement::bare(oom, Cause::Need, 0.75, &text).with(Cause::OutsideAllocator);
    Some(Judgement { available: Some(available), ..judgement })
}

/// Whether every tensor of the engine is the driver's: PyTorch before 1.0 says where in its sources that is.
fn has_no_allocator(event: &Event) -> bool {
    let is_counted = matches!(
        event.oom.engine,
        Engine::PyTorch | Engine::Cuda | Engine::Rocm | Engine::Tensorflow | Engine::Unknown
    );
    let is_driver = matches!(event.oom.source, Source::Runtime | Source::Heap | Source::Allocator);
    is_driver && (!is_counted || event.message.contains("THCStorage") || event.message.contains("THCTensor"))
}

/// Whether the stack ends where a tensor is put on the device, before any step.
fn is_first_use(event: &Event) -> bool {
    let words = ["device=", ".to(", ".cuda(", "_cuda_init", "_lazy_init", "torch.cuda."];
    let asks = |frame: &StackFrame| words.iter().any(|word| frame.code.contains(word));
    let around = &event.circumstances;
    // The driver's calls that make a context.
    let makes_context = || ["PrimaryCtxRetain", "cuCtxCreate"].iter().any(|call| event.message.contains(call));
    let is_first = || around.frames.last().is_some_and(asks) || makes_context();
    event.oom.requested.is_none() && around.step.is_none() && is_first()
}

/// The allocator gives figures when it is refused: where there are none, the process could not even begin to use the
/// device.
fn no_room_to_begin(oom: &Oom) -> Judgement {
    let text = "the driver refused where the device is used first, before the allocator asked for anything: others have \
                filled it, as far as the log tells";
    Judgement::bare(oom, Cause::OtherProcess, 0.6, text).with(Cause::OutsideAllocator)
}

/// The driver or a library refused, which no allocator counts.
fn outside(oom: &Oom) -> Judgement {
    let (certainty, text) = match oom.source {
        Source::Blas => (0.85, "cuBLAS asks the driver for its own memory, past the allocator, and was refused"),
        Source::Dnn => (0.85, "cuDNN asks the driver for its own memory, past the allocator, and was refused"),
        Source::Collectives => (0.75, "NCCL asks the driver for its own buffers, past the allocator, and was refused"),
        _ => (
            0.55,
            "the driver itself refused, not the allocator: a context, a library, or a device that is full already",
        ),
    };
    let mut judgement = Judgement::bare(oom, Cause::OutsideAllocator, certainty, text);
    if oom.source == Source::Runtime {
        judgement.contributing.push(Cause::OtherProcess);
    }
    if let (Some(tried), Some(free)) = (oom.requested, oom.free) {
        let were = if free == Bytes(1) { "was" } else { "were" };
        judgement.evidence.push(format!("asked for {tried}; {free} {were} free"));
    }
    judgement
}
