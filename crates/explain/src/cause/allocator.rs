//! An allocator refused that knows its figures: what they say.

use lowtide_core::Bytes;
use lowtide_oom::{DeviceKind, Engine, Oom};

use super::figures::{Basis, CONTEXT, Figures, figures};
use super::judgement::{Judgement, Possibility};
use crate::log::Printout;
use crate::verdict::Cause;

/// An allocator that knows its figures refused.
pub(super) fn allocator(oom: &Oom, log: &Printout) -> Judgement {
    let figures = figures(oom, oom.requested.unwrap_or_default(), log);
    let decided =
        if oom.requested.is_some() { by_a_hair(&figures, decide(&figures)) } else { without_request(&figures) };
    let decided = if log.narrative.is_alone { alone(&figures, decided) } else { decided };
    let decided = if log.switches.expandable_segments { in_segments_that_grow(decided) } else { decided };
    let mut judgement = contributing(&figures).into_iter().fold(decided, Judgement::with);
    if let Some(pools) = private_pools(oom) {
        let text = format!(
            "{pools} of what is handed out lie in private pools (CUDA graphs), from which nothing else is served"
        );
        judgement.evidence.insert(judgement.evidence.len().min(1), text);
    }
    judgement.others = figures.others;
    judgement.is_left_over = figures.others.is_some() && figures.basis == Basis::LeftOver;
    judgement.rank_contexts = rank_contexts(&figures);
    if judgement.rank_contexts.is_some() && judgement.cause == Cause::Need {
        let text = format!(
            "contexts of the job's other ranks take {} of it; without them it would have fitted",
            figures.contexts
        );
        judgement.evidence.push(text);
    }
    judgement.outside = figures.outside.or(oom.outside_allocator);
    let room = oom.capacity.map(|capacity| {
        capacity.saturating_sub(figures.others.unwrap_or_default()).saturating_sub(figures.outside.unwrap_or_default())
    });
    judgement.available = match (room, oom.limit) {
        (Some(room), Some(limit)) => Some(room.min(limit)),
        (room, limit) => room.or(limit),
    };
    judgement.holders = figures.holders;
    judgement
}

/// What contexts of the job's other ranks hold, where that is as much as was missing.
fn rank_contexts(figures: &Figures<'_>) -> Option<Bytes> {
    let within = figures.oom.free?.saturating_add(figures.idle.unwrap_or_default());
    let lacking = figures.tried.saturating_sub(within);
    Some(figures.contexts).filter(|contexts| !lacking.is_zero() && *contexts >= lacking)
}

/// What graphs hold for themselves, where it is at least a quarter of what is handed out.
pub(crate) fn private_pools(oom: &Oom) -> Option<Bytes> {
    oom.private_pools.zip(oom.allocated).filter(|(pools, all)| pools.get() >= all.get() / 4).map(|(pools, _)| pools)
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
    if free.get() / 4 > tried.get() && free > Bytes::from_gib(1) && figures.oom.capacity.is_some() {
        return plenty(figures, stated);
    }
    if tried <= free && figures.is_part(free, 16) {
        return enough_free(figures, free, stated);
    }
    let others = figures.blamed();
    if tried <= within {
        // What is idle counts little beside what others hold.
        return match others.get() / 2 >= idle.get() && !others.is_zero() {
            true => by_others(figures, others, format!("{stated}: enough by a hair, in no piece large enough"))
                .with(Cause::Fragmentation),
            false if is_outside(figures, idle) => {
                let stated = format!("{stated}: enough by a hair, in no piece large enough");
                Judgement { certainty: 0.7, ..by_outside(figures, stated) }.with(Cause::Fragmentation)
            }
            false => in_pieces(figures, idle, stated),
        };
    }
    let lacking = format!("{stated}: {} too few", tried.saturating_sub(within));
    // A context has its place in every process; what goes beyond one is worth a word.
    let outside = Some(outside(figures)).filter(|outside| figures.is_part(*outside, 8)).unwrap_or_default();
    // A request for more than all that others hold is too much by itself, unless they hold much.
    // Of a card that is ours but for a desktop, the desktop is not the reason.
    let is_desktop = !figures.is_part(others, 16) && figures.is_ours();
    let is_reason = figures.is_part(others, 4) || others >= tried && !is_desktop && !is_little_left_over(figures);
    let others = if is_reason { others } else { Bytes::ZERO };
    if tried > within.saturating_add(others.max(outside)) {
        return need(figures, lacking);
    }
    if others >= outside {
        return by_others(figures, others, lacking);
    }
    by_outside(figures, lacking)
}

/// The same, less sure where what was there would nearly have been enough, or hardly was.
fn by_a_hair(figures: &Figures<'_>, decided: Judgement) -> Judgement {
    let Some(free) = figures.oom.free.filter(|_| matches!(decided.cause, Cause::Need | Cause::Fragmentation)) else {
        return decided;
    };
    let within = free.saturating_add(figures.idle.unwrap_or_default());
    let margin = within.get().abs_diff(figures.tried.get());
    // Of a large request little is missing, where it is less than an eighth of it, too.
    let is_little =
        figures.oom.capacity.is_some_and(|capacity| margin < capacity.get() / 50) && margin < figures.tried.get() / 8;
    match margin < HAIR || is_little {
        true => Judgement { certainty: decided.certainty.min(0.75), ..decided },
        false => decided,
    }
}

/// What figures that are rounded, and taken a moment later, may be wrong by.
const HAIR: u64 = 64 << 20;

/// Whether what the figures leave over, which nobody counted, is less than three tenths of the device: contexts, libraries and
/// a desktop come to that.
fn is_little_left_over(figures: &Figures<'_>) -> bool {
    let beyond = figures.beyond_allocator().unwrap_or_default();
    figures.basis == Basis::LeftOver
        && figures.oom.capacity.is_some_and(|capacity| beyond.get() < capacity.get() / 10 * 3)
}

/// What this process holds outside its allocator, beyond a usual context.
fn outside(figures: &Figures<'_>) -> Bytes {
    figures.outside.unwrap_or_default().saturating_sub(Bytes(CONTEXT))
}

/// Whether so much lies outside of the allocator that what is idle in it counts little.
fn is_outside(figures: &Figures<'_>, idle: Bytes) -> bool {
    let outside = outside(figures);
    figures.is_part(outside, 2) && outside.get() / 2 >= idle.get()
}

/// This process holds so much outside its allocator that it would have fitted without that.
fn by_outside(figures: &Figures<'_>, stated: String) -> Judgement {
    let outside = outside(figures);
    let held = format!(
        "this process holds, outside its allocator and beyond a usual context, {outside}; without that the request would \
         have fitted"
    );
    let certainty = if figures.is_part(outside, 4) { 0.85 } else { 0.6 };
    Judgement::new(Cause::OutsideAllocator, certainty, vec![stated, held])
}

/// Others hold so much that it would have fitted without them.
fn by_others(figures: &Figures<'_>, others: Bytes, stated: String) -> Judgement {
    let who = match (figures.basis, figures.is_same_job()) {
        (Basis::LeftOver, _) => "others, or this process outside its allocator, hold beyond a usual context",
        (Basis::Counted, true) => "ranks of what looks like the same job hold",
        (Basis::Counted, false) => "others hold",
    };
    let evidence = vec![stated, format!("{who} {others}; without that the request would have fitted")];
    let certainty = match figures.basis {
        _ if !figures.is_part(others, 8) => 0.55,
        Basis::Counted if figures.is_part(others, 4) => 0.9,
        Basis::Counted => 0.75,
        Basis::LeftOver if figures.is_part(others, 2) => 0.75,
        Basis::LeftOver => 0.65,
    };
    Judgement::new(Cause::OtherProcess, certainty, evidence)
}

/// Where the driver's table lists nobody else, what is left over is more likely this process's own.
fn alone(figures: &Figures<'_>, decided: Judgement) -> Judgement {
    if decided.cause != Cause::OtherProcess || figures.basis != Basis::LeftOver {
        return decided;
    }
    let told = "nobody else is in the driver's table, as the post says: then it is this process's own".to_owned();
    let evidence = decided.evidence.into_iter().chain([told]).collect();
    Judgement::new(Cause::OutsideAllocator, 0.6, evidence).with(Cause::OtherProcess)
}

/// More than the device has.
fn need(figures: &Figures<'_>, lacking: String) -> Judgement {
    let tried = figures.tried;
    let mut evidence = vec![lacking];
    match (figures.oom.allocated, figures.oom.capacity) {
        (Some(allocated), Some(capacity)) if allocated > capacity => evidence.push(format!(
            "{allocated} were handed out already, more than the {capacity} of the device: the driver borrows the \
             machine's memory"
        )),
        (Some(allocated), Some(capacity)) => {
            let sum_with = |outside: Bytes| allocated.saturating_add(outside).saturating_add(tried);
            // What this process has outside of its allocator, what others have beside that, or else all that is left over.
            let own = figures.outside.unwrap_or_default();
            let counted = own.saturating_add(figures.others.unwrap_or_default());
            let beyond = [own, counted].into_iter().find(|beyond| sum_with(*beyond) > capacity);
            let beyond = beyond.or_else(|| figures.beyond_allocator()).unwrap_or_default();
            let sum = sum_with(beyond);
            let outside = match beyond.is_zero() {
                true => " in use".to_owned(),
                false => format!(" in tensors, {beyond} outside of the allocator"),
            };
            if sum > capacity {
                evidence.push(format!("{allocated}{outside} and {tried} more are {sum}; the device has {capacity}"));
            }
        }
        _ => {}
    }
    if let (Some(others), Some(capacity)) =
        (figures.others.filter(|others| figures.is_large(*others)), figures.oom.capacity)
    {
        let others_too = if figures.is_same_job() { "ranks of the same job hold" } else { "others hold" };
        evidence.push(format!("{others_too} {others} of the {capacity}"));
    }
    // Surer, the more of the other explanations the figures rule out.
    let within = figures.oom.free.unwrap_or_default().saturating_add(figures.idle.unwrap_or_default());
    let outside = figures.outside.unwrap_or_default().saturating_sub(Bytes(CONTEXT));
    // On a small card a context and a desktop are a large part of it.
    let beyond = figures.beyond_allocator().unwrap_or_default();
    let unnamed = beyond.saturating_sub(Bytes(CONTEXT));
    let certainty = match (figures.idle, figures.others) {
        _ if figures.is_part(beyond, 4) && within.saturating_add(beyond) >= tried => 0.65,
        (_, Some(others)) if figures.is_large(others) && within.saturating_add(others) >= tried => 0.6,
        _ if figures.is_large(outside) && within.saturating_add(outside) >= tried => 0.7,
        // A few bytes, of which a context and a desktop together hold many times as much.
        _ if figures.is_part(beyond, 6)
            && tried.get() <= beyond.get() / 8
            && within.saturating_add(beyond) >= tried =>
        {
            0.75
        }
        // Where a desktop is, a tenth of the card may be its own, which would have been enough.
        _ if figures.is_part(beyond, 10)
            && within.saturating_add(beyond.saturating_sub(Bytes(CONTEXT / 2))) >= tried =>
        {
            0.75
        }
        // Nobody says whose it is, and more than a context is missing.
        _ if figures.is_part(unnamed, 48) && within.saturating_add(unnamed) >= tried => 0.75,
        (Some(_), Some(_)) => 0.95,
        (Some(_), None) => 0.9,
        // What is idle may have been cut off.
        (None, _) => 0.75,
    };
    Judgement::new(Cause::Need, certainty, evidence)
}

/// Somebody who held the memory when it was asked for, and no longer when the figures were read.
fn passing() -> Possibility {
    Possibility::new(
        Cause::OtherProcess,
        "another process, or another rank of this job, had taken it for a moment and gave it back before the figures \
         were read",
        "nvidia-smi every second while it starts shows who comes and goes; alone on the device it does not fail",
    )
}

/// What is free would have been enough by itself, by little.
fn enough_free(figures: &Figures<'_>, free: Bytes, stated: String) -> Judgement {
    let evidence = vec![format!("{stated}: enough was free, so the text does not tell why")];
    let whole = Possibility::new(
        Cause::Need,
        "nearly all that was free was asked for in one piece, and the driver needs some of it itself",
        "a request a tenth smaller: if that fits, its size was the cause",
    );
    let is_nearly_all = figures.tried.get() >= free.get() / 5 * 4;
    let order = if is_nearly_all { vec![whole, passing()] } else { vec![passing(), whole] };
    Judgement::open(0.4, evidence, order)
}

/// Much more is free than was asked for, and yet it failed: the figures were taken after the refusal.
fn plenty(figures: &Figures<'_>, stated: String) -> Judgement {
    let limit = Possibility::new(
        Cause::Limit,
        "a limit that the message does not print (set_per_process_memory_fraction before PyTorch 2.8, a slice of the \
         card, a virtual GPU)",
        "torch.cuda.mem_get_info() and an empty tensor of the same size in a fresh process: if that fails too, it is a \
         limit",
    );
    let evidence = vec![format!("{stated}: much more was free than was asked for, so the text does not tell why")];
    // Messages with parentheses print such a limit where one is set.
    let prints_limit = figures.oom.reserved.is_some();
    match prints_limit {
        true => Judgement::open(0.35, evidence, vec![passing(), limit]),
        false => Judgement::open(0.4, evidence, vec![limit, passing()]),
    }
}

/// The request would have fitted into what is free and idle together.
fn in_pieces(figures: &Figures<'_>, idle: Bytes, stated: String) -> Judgement {
    let tried = figures.tried;
    let allocated = figures.oom.allocated.unwrap_or_default();
    // Rounding leaves a few percent idle, in the remainders of many blocks.
    let is_usual = idle.get() < allocated.get() / 20;
    let is_small = !figures.is_part(tried, 32) || tried <= Bytes::from_mib(64);
    // More than the device has: the driver borrows from the machine, and pieces are not what is missing.
    if figures.oom.capacity.is_some_and(|capacity| allocated > capacity) {
        let mut judgement = need(figures, stated);
        judgement.certainty = f64::min(judgement.certainty, 0.7);
        return judgement;
    }
    let evidence = vec![format!("{stated}: enough, but in no piece large enough")];
    // A request above all that is idle would not have fitted into one piece of it either.
    if is_usual && (is_small || tried > idle) {
        let pieces = Possibility::new(
            Cause::Fragmentation,
            "what is idle lies in pieces",
            "expandable_segments:True: if the run gets clearly further, fragmentation was the cause",
        );
        let full = Possibility::new(
            Cause::Need,
            "the device is full: what is idle are remainders, as every run has them, and the next request would fail",
            "less at once (half the micro-batch, shorter or smaller inputs): if the peak goes down with it, the need was the cause",
        );
        // So much more than was asked for would have had a piece for it.
        let would_have_served = idle.get() / 8 >= tried.get();
        let order = if would_have_served { vec![pieces, full] } else { vec![full, pieces] };
        let mut evidence = evidence;
        evidence.push(format!("only {idle} of {} are idle, which is usual", allocated.saturating_add(idle)));
        return Judgement::open(0.5, evidence, order);
    }
    let margin = figures.oom.free.unwrap_or_default().saturating_add(idle).saturating_sub(tried);
    let certainty = match tried.get() {
        asked if idle.get() / 2 >= asked => 0.9,
        asked if idle.get() / 3 * 2 >= asked && !is_usual => 0.85,
        asked if margin.get() >= asked / 10 => 0.75,
        _ => 0.55,
    };
    // On a device that is full by itself, pieces are half of the truth.
    let is_full = figures.oom.capacity.is_some_and(|capacity| {
        let unused = figures.oom.free.unwrap_or_default().saturating_add(idle);
        allocated.get() > capacity.get() / 20 * 17 || unused.get() < capacity.get() / 10
    });
    // And where as much lies outside of the allocator as is idle in it, that would have served too.
    let beyond = figures.beyond_allocator().unwrap_or_default();
    let is_beside = beyond >= idle && figures.is_part(beyond, 5);
    let certainty = match figures.oom.capacity {
        Some(_) if is_full || is_beside => f64::min(certainty, 0.7),
        // How full the device is, nobody says.
        None => f64::min(certainty, 0.75),
        Some(_) => certainty,
    };
    let judgement = Judgement::new(Cause::Fragmentation, certainty, evidence);
    // A request that leaves a quarter of the device, or less, is large by itself.
    let wanted = allocated.saturating_add(tried);
    let is_much = figures.oom.capacity.is_some_and(|capacity| wanted.get() > capacity.get() / 4 * 3);
    if is_usual || is_much { judgement.with(Cause::Need) } else { judgement }
}

/// Where segments may grow, pieces are idle that no setting of the allocator joins: the need counts as much.
fn in_segments_that_grow(decided: Judgement) -> Judgement {
    let mut judgement = decided;
    for possibility in judgement.possibilities.iter_mut().filter(|it| it.cause == Cause::Fragmentation) {
        "torch.cuda.memory_snapshot() shows in which streams and segments it lies".clone_into(&mut possibility.test);
    }
    if judgement.cause != Cause::Fragmentation {
        return judgement;
    }
    judgement.certainty = judgement.certainty.min(GROWING);
    judgement.evidence.push("expandable segments are set in the log, and it is idle all the same".to_owned());
    judgement.with(Cause::Need)
}

/// How sure pieces are the matter at most where segments may grow.
const GROWING: f64 = 0.55;

/// A limit below the device, where the message names one.
fn by_limit(figures: &Figures<'_>) -> Option<Judgement> {
    let limit = figures.oom.limit?;
    let tried = figures.tried;
    let allocated = figures.oom.allocated.unwrap_or_default();
    let wanted = allocated.saturating_add(tried);
    if figures.oom.engine == Engine::Mlx && tried > limit {
        let text = format!("{tried} in one buffer, and Metal allows {limit} for a single one on this machine");
        return Some(Judgement::new(Cause::Limit, 0.85, vec![text]).with(Cause::Need));
    }
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
    if figures.oom.engine != Engine::PyTorch && figures.oom.capacity.is_none() && !is_set_by_hand(limit) {
        return Some(Judgement::new(Cause::Need, 0.65, vec![text]).with(Cause::Limit));
    }
    // The limit of a pool may be all that was free; one that PyTorch prints was set.
    let certainty = if figures.oom.engine == Engine::PyTorch { 0.95 } else { 0.8 };
    Some(Judgement::new(Cause::Limit, certainty, vec![text]))
}

/// Whether somebody chose a limit: it is round, or less than any device has. A pool that took what it found is neither.
fn is_set_by_hand(limit: Bytes) -> bool {
    limit.get().is_multiple_of(128 << 20) || limit < Bytes::from_gib(1)
}

/// Messages of allocators that do not say what is free.
fn without_free(figures: &Figures<'_>) -> Judgement {
    let tried = figures.tried;
    if let Some(capacity) = figures.oom.capacity.filter(|capacity| tried > *capacity) {
        let text = format!("asked for {tried}, and the device has {capacity} in all");
        return Judgement::new(Cause::Need, 0.95, vec![text]);
    }
    let mut evidence = vec![format!("asked for {tried}; the message does not say what was free")];
    evidence.extend(figures.oom.allocated.map(|allocated| format!("{allocated} were handed out already")));
    let held = figures.oom.reserved.or(figures.oom.allocated);
    if let Some((held, capacity)) = held.zip(figures.oom.capacity)
        && held.saturating_add(tried).get() < capacity.get() / 2
    {
        evidence
            .push(format!("that and {held} in use are less than half of the {capacity}: the text does not tell why"));
        let others = Possibility::new(
            Cause::OtherProcess,
            "others hold the rest of the device",
            "nvidia-smi (xpu-smi, rocm-smi) before the program starts",
        );
        let limit = Possibility::new(
            Cause::Limit,
            "a limit of the platform on a single block or on a process (WSL, a virtual GPU)",
            "two tensors of half the size each: if they fit, it is a limit on blocks",
        );
        return Judgement::open(0.35, evidence, vec![others, limit]);
    }
    let is_known = figures.oom.capacity.is_some();
    let certainty = if figures.oom.engine == Engine::Tensorflow && !is_known { 0.6 } else { 0.7 };
    Judgement::new(Cause::Need, certainty, evidence)
}

/// Messages that are cut before they say what was asked for.
fn without_request(figures: &Figures<'_>) -> Judgement {
    let oom = figures.oom;
    let held = oom.reserved.or(oom.allocated).or(oom.in_use);
    if let Some((limit, held)) = oom.limit.zip(held)
        && oom.capacity.is_none_or(|capacity| limit < capacity)
        && held.get() >= limit.get() / 10 * 9
    {
        let text = format!("{held} are held of the {limit} that a limit allows; what was asked for is cut off");
        return Judgement::new(Cause::Limit, 0.75, vec![text]);
    }
    let others = figures.blamed();
    let idle = figures.idle.unwrap_or_default();
    if figures.is_part(others, 4) && others.get() / 2 >= idle.get() {
        return by_others(figures, others, "what was asked for is cut off".to_owned());
    }
    let text = "the message gives no figures, and a step that needs too much is the usual cause";
    Judgement::bare(oom, Cause::Need, 0.55, text)
}

/// What made it worse, by its size.
fn contributing(figures: &Figures<'_>) -> Vec<Cause> {
    let least = figures.oom.capacity.map_or(0, |capacity| capacity.get() / 20).max(256 << 20);
    let is_large = |bytes: Option<Bytes>| bytes.is_some_and(|bytes| bytes.get() >= least);
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
