//! Why memory ran out, by arithmetic over the figures of the message.
//!
//! Of a device with `capacity`, this process holds `allocated + reserved_unallocated` in its allocator and something
//! outside of it, others hold the rest, and what is left is `free`. A request fails because
//!
//! 1. a limit below the capacity stands in its way;
//! 2. it would have fitted into `free + reserved_unallocated`, but not in one piece: fragmentation;
//! 3. it would have fitted had others not held what they hold, or had so much not gone past the allocator;
//! 4. or it is simply too much: need.
//!
//! Each is said with the figures it comes from. Where figures are missing the cause is the likeliest one and its
//! certainty low.

mod figures;

use lowtide_core::Bytes;
use lowtide_oom::{DeviceKind, Engine, Oom, Place, Source};

use self::figures::{Figures, figures, is_large};
use crate::event::Event;
use crate::traceback::Frame;
use crate::verdict::{Cause, Holder};

/// A cause with its reasons.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Judgement {
    pub(crate) cause: Cause,
    pub(crate) contributing: Vec<Cause>,
    pub(crate) certainty: f64,
    pub(crate) evidence: Vec<String>,
    /// What others hold on the device.
    pub(crate) others: Option<Bytes>,
    /// What this process holds outside its allocator.
    pub(crate) outside: Option<Bytes>,
    pub(crate) holders: Vec<Holder>,
    /// What this process can have at most as things are.
    pub(crate) available: Option<Bytes>,
}

/// A CUDA context with the kernels of a usual training takes up to this much.
const CONTEXT: u64 = 1 << 30;

/// Judges an event.
pub(crate) fn judge(event: &Event) -> Judgement {
    let mut judgement = match (event.oom.place, event.oom.source) {
        (Place::Host, _) => host(event),
        (Place::Device, Source::Allocator) => allocator(&event.oom),
        (Place::Device, _) if has_no_allocator(event) => {
            let text =
                "the driver refused, and this engine asks it for every tensor: the step needs more than was free";
            bare(&event.oom, Cause::Need, 0.65, text)
        }
        (Place::Device, Source::Runtime) if is_first_use(event) => no_room_to_begin(&event.oom),
        (Place::Device, _) => outside(&event.oom),
    };
    judgement.certainty = round(judgement.certainty * event.oom.certainty.number() / 0.98);
    let cause = judgement.cause;
    judgement.contributing.retain(|other| *other != cause);
    judgement
}

fn round(certainty: f64) -> f64 {
    (certainty.clamp(0.0, 0.99) * 100.0).round() / 100.0
}

/// An allocator that knows its figures refused.
fn allocator(oom: &Oom) -> Judgement {
    let Some(tried) = oom.requested else {
        return bare(
            oom,
            Cause::Need,
            0.55,
            "the message gives no figures, and a step that needs too much is the usual cause",
        );
    };
    let figures = figures(oom, tried);
    let mut judgement = decide(&figures, oom);
    judgement.contributing.extend(contributing(&figures));
    judgement.others = figures.others;
    judgement.outside = figures.outside;
    judgement.holders = figures.holders;
    let room = figures.capacity.map(|capacity| {
        capacity.saturating_sub(figures.others.unwrap_or_default()).saturating_sub(figures.outside.unwrap_or_default())
    });
    judgement.available = match (room, figures.limit) {
        (Some(room), Some(limit)) => Some(room.min(limit)),
        (room, limit) => room.or(limit),
    };
    judgement
}

fn decide(figures: &Figures, oom: &Oom) -> Judgement {
    if let Some(judgement) = by_limit(figures, oom) {
        return judgement;
    }
    let tried = figures.tried;
    let Some(free) = figures.free else {
        return without_free(figures, oom);
    };
    let idle = figures.idle.unwrap_or_default();
    let within = free.saturating_add(idle);
    let were = if free == Bytes(1) { "was" } else { "were" };
    let stated = match figures.idle {
        Some(idle) => {
            format!("asked for {tried}; {free} {were} free and {idle} reserved but not handed out, {within} together")
        }
        None => format!("asked for {tried}; {free} {were} free"),
    };
    if tried <= within {
        return fitting(figures, free, idle, stated);
    }
    // A driver keeps a little for itself on every card: that is nobody's to end.
    let others = figures.others.filter(|others| is_large(*others, figures)).unwrap_or_default();
    // A context has its place in every process; what goes beyond one is worth a word.
    let outside = figures.outside.unwrap_or_default().saturating_sub(Bytes(CONTEXT));
    let outside = if is_large(outside, figures) { outside } else { Bytes::ZERO };
    if tried <= within.saturating_add(others.max(outside)) {
        let (cause, held, who) = match others >= outside {
            true => (Cause::OtherProcess, others, "others hold"),
            false => (
                Cause::OutsideAllocator,
                outside,
                "this process holds, outside its allocator and beyond a usual context,",
            ),
        };
        let is_unsure = cause == Cause::OtherProcess && figures.others_may_be_own;
        let who = if is_unsure { "others, or this process outside its allocator, hold" } else { who };
        let mut judgement = verdict(cause, if is_unsure { 0.7 } else { 0.9 });
        judgement.evidence = vec![
            format!("{stated}: {} too few", tried.saturating_sub(within)),
            format!("{who} {held}; without that the request would have fitted"),
        ];
        return judgement;
    }
    let mut judgement = verdict(Cause::Need, need_certainty(figures));
    judgement.evidence.push(format!("{stated}: {} too few", tried.saturating_sub(within)));
    match (figures.allocated, figures.capacity) {
        (Some(allocated), Some(capacity)) if allocated > capacity => judgement.evidence.push(format!(
            "{allocated} were handed out already, more than the {capacity} of the device: the driver borrows the \
             machine's memory"
        )),
        (Some(allocated), Some(capacity)) => judgement.evidence.push(format!(
            "{allocated} in use and {tried} more are {}, of {capacity} on the device",
            allocated.saturating_add(tried)
        )),
        _ => {}
    }
    if let (Some(others), Some(capacity)) =
        (figures.others.filter(|others| is_large(*others, figures)), figures.capacity)
    {
        judgement
            .evidence
            .push(format!("others hold {others} of the {capacity}; even without that it would not have fitted"));
    }
    judgement
}

/// The request would have fitted, and yet it failed.
fn fitting(figures: &Figures, free: Bytes, idle: Bytes, stated: String) -> Judgement {
    let tried = figures.tried;
    // Versions 2.1 to 2.7 do not print the limit that `set_per_process_memory_fraction` sets.
    if free.get() / 4 > tried.get() && free > Bytes::from_gib(1) && figures.capacity.is_some() {
        let mut judgement = verdict(Cause::Limit, 0.7);
        judgement.evidence = vec![
            stated,
            "much more was free than was asked for, so a limit that the message does not print stands in the way"
                .to_owned(),
        ];
        return judgement;
    }
    let allocated = figures.allocated.unwrap_or_default();
    // A few percent are always idle: rounding to 2 and 20 MiB leaves them.
    let is_slack = idle.get() < allocated.get() / 20 && tried <= Bytes::from_mib(64);
    // A device that others have filled: the little that is left says nothing about pieces.
    let others =
        figures.others.filter(|others| figures.capacity.is_some_and(|capacity| others.get() > capacity.get() / 2));
    if let Some(others) = others.filter(|_| is_slack || idle < tried && tried <= Bytes::from_mib(64)) {
        let mut judgement = verdict(Cause::OtherProcess, 0.6);
        judgement.contributing.push(Cause::Fragmentation);
        judgement.evidence = vec![
            format!("{stated}: enough by a hair, in no piece large enough"),
            format!("others hold {others}, most of the device: that is why so little is left"),
        ];
        return judgement;
    }
    let certainty = match (idle >= tried, is_slack) {
        (_, true) => 0.5,
        (true, false) => 0.9,
        (false, false) => 0.8,
    };
    let mut judgement = verdict(Cause::Fragmentation, certainty);
    judgement.evidence = vec![format!("{stated}: enough, but in no piece large enough")];
    if is_slack {
        judgement.contributing.push(Cause::Need);
        judgement.evidence.push(format!(
            "but only {idle} of {} are idle, which is usual: the device is nearly full, and the next request may fail \
             for need",
            allocated.saturating_add(idle)
        ));
    }
    judgement
}

/// A limit below the device, where the message names one.
fn by_limit(figures: &Figures, oom: &Oom) -> Option<Judgement> {
    let limit = figures.limit?;
    let tried = figures.tried;
    let allocated = figures.allocated.unwrap_or_default();
    let wanted = allocated.saturating_add(tried);
    if oom.device_kind == Some(DeviceKind::Mps) {
        let mut judgement = verdict(Cause::Need, 0.6);
        judgement.contributing.push(Cause::Limit);
        let used = oom.in_use.unwrap_or(allocated);
        judgement.evidence = vec![format!(
            "{used} in use and {tried} more are {}, and Metal allows a process {limit} by default",
            used.saturating_add(tried)
        )];
        return Some(judgement);
    }
    if figures.capacity.is_some_and(|capacity| limit >= capacity) {
        return None;
    }
    let room = figures.free.map(|free| free.saturating_add(figures.idle.unwrap_or_default()));
    if wanted <= limit && figures.idle.is_some_and(|idle| idle.get() > limit.get() / 4) {
        let mut judgement = verdict(Cause::Fragmentation, 0.7);
        judgement.contributing.push(Cause::Limit);
        judgement.evidence = vec![format!(
            "{allocated} handed out and {tried} more are below the limit of {limit}; {} are reserved and idle",
            figures.idle.unwrap_or_default()
        )];
        return Some(judgement);
    }
    if room.is_none_or(|room| tried <= room) {
        let mut judgement = verdict(Cause::Limit, if wanted > limit { 0.95 } else { 0.75 });
        judgement.evidence = vec![match (wanted > limit, figures.free) {
            (true, Some(free)) => format!(
                "{allocated} handed out and {tried} more are {wanted}, above the limit of {limit}; the device has \
                 {free} free"
            ),
            (true, None) => format!("{allocated} handed out and {tried} more are {wanted}, above the limit of {limit}"),
            (false, _) => format!("a limit of {limit} is set, and the device has more free than the {tried} asked for"),
        }];
        return Some(judgement);
    }
    None
}

/// Messages of allocators that do not say what is free.
fn without_free(figures: &Figures, oom: &Oom) -> Judgement {
    let tried = figures.tried;
    if let Some(capacity) = figures.capacity.filter(|capacity| tried > *capacity) {
        let mut judgement = verdict(Cause::Need, 0.95);
        judgement.evidence = vec![format!("asked for {tried}, and the device has {capacity} in all")];
        return judgement;
    }
    let benign = oom.engine == Engine::Tensorflow;
    let mut judgement = verdict(Cause::Need, if benign { 0.6 } else { 0.7 });
    judgement.evidence = vec![format!("asked for {tried}; the message does not say what was free")];
    if let Some(allocated) = figures.allocated {
        judgement.evidence.push(format!("{allocated} were handed out already"));
    }
    judgement
}

/// What made it worse, by its size.
fn contributing(figures: &Figures) -> Vec<Cause> {
    let mut causes = Vec::new();
    if figures.others.is_some_and(|others| is_large(others, figures)) {
        causes.push(Cause::OtherProcess);
    }
    if figures.idle.is_some_and(|idle| is_large(idle, figures)) {
        causes.push(Cause::Fragmentation);
    }
    let beyond = figures.outside.unwrap_or_default().saturating_sub(Bytes(CONTEXT));
    if is_large(beyond, figures) {
        causes.push(Cause::OutsideAllocator);
    }
    if figures.limit.zip(figures.capacity).is_some_and(|(limit, capacity)| limit.get() < capacity.get() / 10 * 9) {
        causes.push(Cause::Limit);
    }
    causes
}

/// Need is what remains: surer, the more of the other explanations the figures rule out.
fn need_certainty(figures: &Figures) -> f64 {
    match (figures.idle, figures.others) {
        (Some(_), Some(_)) => 0.95,
        (Some(_), None) | (None, Some(_)) => 0.9,
        (None, None) => 0.75,
    }
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

/// Whether the stack ends where a tensor is put on the device, before any step was told.
fn is_first_use(event: &Event) -> bool {
    let words = ["device=", ".to(", ".cuda(", "_cuda_init", "_lazy_init", "torch.cuda."];
    let asks = |frame: &Frame| words.iter().any(|word| frame.code.contains(word));
    let around = &event.surroundings;
    event.oom.requested.is_none() && around.step.is_none() && around.frames.last().is_some_and(asks)
}

/// The allocator gives figures when it is refused: where there are none, the process could not even begin to use the
/// device.
fn no_room_to_begin(oom: &Oom) -> Judgement {
    let text = "the driver refused where the device is used first, before the allocator asked for anything: others have \
                filled it, as far as the log tells";
    let mut judgement = bare(oom, Cause::OtherProcess, 0.6, text);
    judgement.contributing.push(Cause::OutsideAllocator);
    judgement
}

/// The driver or a library refused, which no allocator counts.
fn outside(oom: &Oom) -> Judgement {
    let (certainty, text) = match oom.source {
        Source::Blas => (0.85, "cuBLAS asks the driver for its own memory, past the allocator, and was refused"),
        Source::Dnn => (0.85, "cuDNN asks the driver for its own memory, past the allocator, and was refused"),
        Source::Collectives => (0.85, "NCCL asks the driver for its own buffers, past the allocator, and was refused"),
        _ => (
            0.55,
            "the driver itself refused, not the allocator: a context, a library, or a device that is full already",
        ),
    };
    let mut judgement = bare(oom, Cause::OutsideAllocator, certainty, text);
    if oom.source == Source::Runtime {
        judgement.contributing.push(Cause::OtherProcess);
    }
    if let (Some(tried), Some(free)) = (oom.requested, oom.free) {
        let were = if free == Bytes(1) { "was" } else { "were" };
        judgement.evidence.push(format!("asked for {tried}; {free} {were} free"));
    }
    judgement
}

/// Memory of the machine: who saw it, and what limit there was.
fn host(event: &Event) -> Judgement {
    let oom = &event.oom;
    let text = match oom.source {
        Source::Kernel => "the kernel ended a process because the whole machine had no memory left",
        Source::Cgroup => "the kernel ended a process because its control group (container or job) was at its limit",
        Source::Scheduler => "the scheduler ended the job for its memory",
        Source::DataWorker => "a data worker was killed, as the kernel does when memory runs out",
        Source::SharedMemory => "shared memory between processes (/dev/shm) is full",
        Source::ExitStatus => "a process was killed (signal 9); the kernel's killer is one of the reasons for that",
        Source::Allocator | Source::Heap => {
            "the system refused memory to the process: the machine had too little left, or a limit of the process \
             itself (ulimit -v, RLIMIT_AS) stood in the way"
        }
        Source::Runtime => "the stack ends where memory of the machine is pinned, and the driver refused it",
        _ => "memory of the machine ran out",
    };
    // Pinned memory is made through the device's driver, which may have failed for the device's own sake.
    let certainty = if oom.source == Source::Runtime { 0.75 } else { 0.98 };
    let mut judgement = bare(oom, Cause::HostMemory, certainty, text);
    if matches!(oom.source, Source::Cgroup | Source::Scheduler) || oom.limit.is_some() {
        judgement.contributing.push(Cause::Limit);
    }
    if let Some(tried) = oom.requested {
        judgement.evidence.push(format!("asked for {tried}"));
    }
    match (oom.in_use, oom.limit) {
        (Some(used), Some(limit)) => judgement.evidence.push(format!("{used} in use, {limit} allowed")),
        (Some(used), None) => judgement.evidence.push(format!("the process held {used}")),
        (None, Some(limit)) => judgement.evidence.push(format!("{limit} allowed")),
        (None, None) => {}
    }
    judgement.holders = oom
        .processes
        .iter()
        .map(|process| Holder { pid: process.pid, name: process.name.clone(), used_bytes: process.used })
        .collect();
    for (_, message) in event.also.iter().take(2) {
        let short: String = message.chars().take(100).collect();
        judgement.evidence.push(format!("the log also says: {short}"));
    }
    judgement
}

fn bare(oom: &Oom, cause: Cause, certainty: f64, text: &str) -> Judgement {
    let mut judgement = verdict(cause, certainty);
    judgement.evidence.push(text.to_owned());
    judgement.outside = oom.outside_allocator;
    judgement.available = oom.limit.or(oom.capacity);
    judgement
}

fn verdict(cause: Cause, certainty: f64) -> Judgement {
    Judgement {
        cause,
        contributing: Vec::new(),
        certainty,
        evidence: Vec::new(),
        others: None,
        outside: None,
        holders: Vec::new(),
        available: None,
    }
}
