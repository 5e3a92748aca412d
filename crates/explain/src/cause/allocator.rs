//! An allocator refused that knows its figures: what they say.

use lowtide_core::Bytes;
use lowtide_oom::{DeviceKind, Engine, Oom};

use super::figures::{CONTEXT, Figures, figures, is_large};
use super::judgement::Judgement;
use crate::verdict::Cause;

/// An allocator that knows its figures refused.
pub(super) fn allocator(oom: &Oom) -> Judgement {
    let Some(tried) = oom.requested else {
        let text = "the message gives no figures, and a step that needs too much is the usual cause";
        return Judgement::bare(oom, Cause::Need, 0.55, text);
    };
    let figures = figures(oom, tried);
    let mut judgement = contributing(&figures).into_iter().fold(decide(&figures), Judgement::with);
    judgement.others = figures.others;
    judgement.outside = figures.outside;
    judgement.holders = figures.holders;
    let room = figures.oom.capacity.map(|capacity| {
        capacity.saturating_sub(figures.others.unwrap_or_default()).saturating_sub(figures.outside.unwrap_or_default())
    });
    judgement.available = match (room, figures.oom.limit) {
        (Some(room), Some(limit)) => Some(room.min(limit)),
        (room, limit) => room.or(limit),
    };
    judgement
}

fn decide(figures: &Figures<'_>) -> Judgement {
    if let Some(judgement) = by_limit(figures) {
        return judgement;
    }
    let tried = figures.tried;
    let Some(free) = figures.oom.free else {
        return without_free(figures);
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
    let lacking = format!("{stated}: {} too few", tried.saturating_sub(within));
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
        let evidence = vec![lacking, format!("{who} {held}; without that the request would have fitted")];
        return Judgement::new(cause, if is_unsure { 0.7 } else { 0.9 }, evidence);
    }
    let mut evidence = vec![lacking];
    match (figures.oom.allocated, figures.oom.capacity) {
        (Some(allocated), Some(capacity)) if allocated > capacity => evidence.push(format!(
            "{allocated} were handed out already, more than the {capacity} of the device: the driver borrows the \
             machine's memory"
        )),
        (Some(allocated), Some(capacity)) => evidence.push(format!(
            "{allocated} in use and {tried} more are {}, of {capacity} on the device",
            allocated.saturating_add(tried)
        )),
        _ => {}
    }
    if let (Some(others), Some(capacity)) =
        (figures.others.filter(|others| is_large(*others, figures)), figures.oom.capacity)
    {
        evidence.push(format!("others hold {others} of the {capacity}; even without that it would not have fitted"));
    }
    Judgement::new(Cause::Need, need_certainty(figures), evidence)
}

/// The request would have fitted, and yet it failed.
fn fitting(figures: &Figures<'_>, free: Bytes, idle: Bytes, stated: String) -> Judgement {
    let tried = figures.tried;
    // Versions 2.1 to 2.7 do not print the limit that `set_per_process_memory_fraction` sets.
    if free.get() / 4 > tried.get() && free > Bytes::from_gib(1) && figures.oom.capacity.is_some() {
        let why = "much more was free than was asked for, so a limit that the message does not print stands in the way";
        return Judgement::new(Cause::Limit, 0.7, vec![stated, why.to_owned()]);
    }
    let allocated = figures.oom.allocated.unwrap_or_default();
    // A few percent are always idle: rounding to 2 and 20 MiB leaves them.
    let is_slack = idle.get() < allocated.get() / 20 && tried <= Bytes::from_mib(64);
    // A device that others have filled: the little that is left says nothing about pieces.
    let others =
        figures.others.filter(|others| figures.oom.capacity.is_some_and(|capacity| others.get() > capacity.get() / 2));
    if let Some(others) = others.filter(|_| is_slack || idle < tried && tried <= Bytes::from_mib(64)) {
        let evidence = vec![
            format!("{stated}: enough by a hair, in no piece large enough"),
            format!("others hold {others}, most of the device: that is why so little is left"),
        ];
        return Judgement::new(Cause::OtherProcess, 0.6, evidence).with(Cause::Fragmentation);
    }
    let certainty = match (idle >= tried, is_slack) {
        (_, true) => 0.5,
        (true, false) => 0.9,
        (false, false) => 0.8,
    };
    let mut evidence = vec![format!("{stated}: enough, but in no piece large enough")];
    if !is_slack {
        return Judgement::new(Cause::Fragmentation, certainty, evidence);
    }
    evidence.push(format!(
        "but only {idle} of {} are idle, which is usual: the device is nearly full, and the next request may fail for \
         need",
        allocated.saturating_add(idle)
    ));
    Judgement::new(Cause::Fragmentation, certainty, evidence).with(Cause::Need)
}

/// A limit below the device, where the message names one.
fn by_limit(figures: &Figures<'_>) -> Option<Judgement> {
    let limit = figures.oom.limit?;
    let tried = figures.tried;
    let allocated = figures.oom.allocated.unwrap_or_default();
    let wanted = allocated.saturating_add(tried);
    if figures.oom.device_kind == Some(DeviceKind::Mps) {
        let used = figures.oom.in_use.unwrap_or(allocated);
        let all = used.saturating_add(tried);
        let text = format!("{used} in use and {tried} more are {all}, and Metal allows a process {limit} by default");
        return Some(Judgement::new(Cause::Need, 0.6, vec![text]).with(Cause::Limit));
    }
    if figures.oom.capacity.is_some_and(|capacity| limit >= capacity) {
        return None;
    }
    let room = figures.oom.free.map(|free| free.saturating_add(figures.idle.unwrap_or_default()));
    if wanted <= limit && figures.idle.is_some_and(|idle| idle.get() > limit.get() / 4) {
        let text = format!(
            "{allocated} handed out and {tried} more are below the limit of {limit}; {} are reserved and idle",
            figures.idle.unwrap_or_default()
        );
        return Some(Judgement::new(Cause::Fragmentation, 0.7, vec![text]).with(Cause::Limit));
    }
    if room.is_some_and(|room| tried > room) {
        return None;
    }
    if wanted <= limit {
        let text = format!("a limit of {limit} is set, and the device has more free than the {tried} asked for");
        return Some(Judgement::new(Cause::Limit, 0.75, vec![text]));
    }
    let free = figures.oom.free.map_or(String::new(), |free| format!("; the device has {free} free"));
    let text = format!("{allocated} handed out and {tried} more are {wanted}, above the limit of {limit}{free}");
    Some(Judgement::new(Cause::Limit, 0.95, vec![text]))
}

/// Messages of allocators that do not say what is free.
fn without_free(figures: &Figures<'_>) -> Judgement {
    let tried = figures.tried;
    if let Some(capacity) = figures.oom.capacity.filter(|capacity| tried > *capacity) {
        let text = format!("asked for {tried}, and the device has {capacity} in all");
        return Judgement::new(Cause::Need, 0.95, vec![text]);
    }
    let benign = figures.oom.engine == Engine::Tensorflow;
    let mut evidence = vec![format!("asked for {tried}; the message does not say what was free")];
    evidence.extend(figures.oom.allocated.map(|allocated| format!("{allocated} were handed out already")));
    Judgement::new(Cause::Need, if benign { 0.6 } else { 0.7 }, evidence)
}

/// What made it worse, by its size.
fn contributing(figures: &Figures<'_>) -> Vec<Cause> {
    let is_large = |bytes: Option<Bytes>| bytes.is_some_and(|bytes| is_large(bytes, figures));
    let beyond = figures.outside.map(|outside| outside.saturating_sub(Bytes(CONTEXT)));
    let is_limited = |(limit, capacity): (Bytes, Bytes)| limit.get() < capacity.get() / 10 * 9;
    let causes = [
        (Cause::OtherProcess, is_large(figures.others)),
        (Cause::Fragmentation, is_large(figures.idle)),
        (Cause::OutsideAllocator, is_large(beyond)),
        (Cause::Limit, figures.oom.limit.zip(figures.oom.capacity).is_some_and(is_limited)),
    ];
    causes.into_iter().filter_map(|(cause, is_there)| is_there.then_some(cause)).collect()
}

/// Need is what remains: surer, the more of the other explanations the figures rule out.
fn need_certainty(figures: &Figures<'_>) -> f64 {
    match (figures.idle, figures.others) {
        (Some(_), Some(_)) => 0.95,
        (Some(_), None) | (None, Some(_)) => 0.9,
        (None, None) => 0.75,
    }
}
