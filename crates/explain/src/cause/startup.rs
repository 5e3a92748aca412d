//! A server that reckoned before it began: what it says is exact.

use lowtide_core::Bytes;
use lowtide_oom::{Engine, Oom};

use super::judgement::Judgement;
use crate::log::{CardFacts, Event};
use crate::verdict::Cause;

/// The largest share that leaves room for contexts and graphs.
const LARGEST_SHARE: f64 = 0.95;
/// Shares below this were set by somebody: the servers' own are 0.9 and a little less.
const USUAL_SHARE: f64 = 0.85;

pub(super) fn startup(event: &Event, cards: &CardFacts, share: Option<f64>) -> Judgement {
    let oom = &event.oom;
    match oom.engine {
        Engine::Sglang => {
            let text = "the share of the card that the settings give to weights and cache (--mem-fraction-static) is below \
                        what the weights need";
            return Judgement::bare(oom, Cause::Limit, 0.7, text).with(Cause::Need);
        }
        Engine::Tgi => {
            let text =
                "the server tried the largest batch that its settings allow, and the card has too little left for it";
            return Judgement::bare(oom, Cause::Need, 0.75, text);
        }
        _ => {}
    }
    if let Some((capacity, free)) = oom.capacity.zip(oom.free) {
        return before_loading(oom, capacity, free);
    }
    let tokens = tokens(&event.message);
    let need = cache_need(oom, &event.message, cards);
    let (wanted, room) = need.map_or((None, cards.cache), |(wanted, room)| (Some(wanted), Some(room)));
    let mut evidence = Vec::new();
    if let Some((wanted, room)) = tokens {
        evidence.push(format!("the settings allow {wanted} tokens in one request, and the cache has room for {room}"));
    }
    if let Some((wanted, room)) = wanted.zip(room) {
        evidence.push(format!("one request of full length needs {wanted} of cache, and {room} are left for it"));
    }
    if evidence.is_empty() {
        evidence.push("the server's share of the card leaves nothing for the cache of keys and values".to_owned());
    }
    let lacking = wanted.zip(room).map(|(wanted, room)| wanted.saturating_sub(room));
    let more = cards
        .total
        .zip(share)
        .map(|(total, share)| Bytes((total.get() as f64 * (LARGEST_SHARE - share).max(0.0)) as u64));
    let (cause, certainty) = match (lacking, more, share) {
        (Some(lacking), Some(more), _) if lacking <= more => (Cause::Limit, 0.85),
        (Some(_), Some(_), _) => (Cause::Need, 0.85),
        (None, _, Some(share)) | (Some(_), None, Some(share)) if share < USUAL_SHARE => (Cause::Limit, 0.65),
        (Some(_), None, _) => (Cause::Need, 0.75),
        (None, _, Some(_)) => (Cause::Need, 0.7),
        (None, ..) => (Cause::Need, 0.6),
    };
    if let Some(share) = share {
        let more = more.map_or(String::new(), |more| format!("; {LARGEST_SHARE} would give {more} more"));
        evidence.push(format!("the server was given {share} of the card{more}"));
    }
    let other = if cause == Cause::Limit { Cause::Need } else { Cause::Limit };
    Judgement { available: room, ..Judgement::new(cause, certainty, evidence) }.with(other)
}

/// What the cache of one request of full length needs, and what is left for it.
pub(crate) fn cache_need(oom: &Oom, message: &str, cards: &CardFacts) -> Option<(Bytes, Bytes)> {
    match (oom.requested, oom.free, tokens(message), cards.cache) {
        (Some(wanted), Some(free), ..) => Some((wanted, free)),
        (_, _, Some((wanted, room)), Some(cache)) => {
            Some((Bytes((cache.get() as f64 * wanted as f64 / room.max(1) as f64) as u64), cache))
        }
        _ => None,
    }
}

/// `Free memory on device (31.44/47.38 GiB) on startup is less than desired`
fn before_loading(oom: &Oom, capacity: Bytes, free: Bytes) -> Judgement {
    let wanted = oom.requested.unwrap_or_default();
    let held = capacity.saturating_sub(free);
    let evidence = vec![
        format!("{free} of {capacity} were free before anything was loaded, and the settings ask for {wanted}"),
        format!("{held} are held already: by other processes, or by one of this server that was not ended"),
    ];
    // A hair too little may as well be the server's own contexts.
    let is_clear = wanted.saturating_sub(free).get() > capacity.get() / 100;
    let judgement = Judgement::new(Cause::OtherProcess, if is_clear { 0.9 } else { 0.5 }, evidence).with(Cause::Limit);
    Judgement { others: Some(held), available: Some(free), ..judgement }
}

/// `max seq len (29000) is larger than the maximum number of tokens that can be stored in KV cache (23648)`
fn tokens(message: &str) -> Option<(u64, u64)> {
    let after = |name: &str| {
        let (_, rest) = message.split_once(name)?;
        rest.split(')').next()?.trim().parse().ok()
    };
    Some((after("max seq len (")?, after("stored in KV cache (")?))
}
