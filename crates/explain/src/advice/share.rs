//! The share of a card that a server takes for itself: below what others leave, above what its weights need.
//!
//! A figure is given only where it is the share of the whole card (vLLM, TGI), what is free and what there is in all are known, and
//! the weights, as far as their size is known, have room in it. It is rounded down to two digits, so that it fits.

use lowtide_core::Bytes;
use lowtide_oom::Source;

use super::case::Case;
use super::list::{ALL, List};
use super::server::Server;
use crate::cause::cache_need;
use crate::log::{Flag, Sign, WeightBits};
use crate::{Cause, Lever};

/// What is left beside others.
enum Room {
    /// A share of the whole card, in hundredths.
    Share(u64),
    /// Less than a server can be put into.
    TooLittle(Bytes),
    /// Some, of which no share is known.
    Unknown,
}

impl Case<'_> {
    /// The share that the server was given.
    pub(super) fn share(&self) -> Option<f64> {
        self.facts.flags.share(Flag::Share)
    }

    /// What a server can have beside others, and what there is in all.
    fn beside_others(&self) -> Option<(Bytes, Bytes)> {
        let capacity = self.oom.capacity.filter(|capacity| !capacity.is_zero())?;
        let others = self.judgement.others.or_else(|| Some(capacity.saturating_sub(self.oom.free?)))?;
        Some((capacity.saturating_sub(others), capacity))
    }

    /// What one card's part of the weights takes, by the name of the model and its type.
    fn weights_of_a_card(&self, server: Server) -> Option<Bytes> {
        let bits = match self.bits_of_weights(server) {
            WeightBits::All => 16,
            WeightBits::Few(bits) => bits,
            WeightBits::Open => return None,
        };
        let cards = self.shown(Flag::Cards).unwrap_or(1);
        Some(Bytes(self.facts.log.named_parameters?.saturating_mul(bits) / 8 / cards.max(1)))
    }

    /// Whether the weights of the model that is named do not fit: no batch and no share is small enough.
    pub(super) fn weights_exceed_the_card(&self, server: Server) -> bool {
        let is_open = self.bits_of_weights(server) == WeightBits::All && self.shows(Sign::Quantized);
        let weights = self.weights_of_a_card(server).filter(|_| !is_open && !self.facts.log.is_group);
        weights.zip(self.oom.capacity).is_some_and(|(weights, all)| weights.get() > all.get() / 20 * 19)
    }

    /// In how many bits the weights are already: by the name of the model, or by the way that the server was given.
    pub(super) fn bits_of_weights(&self, server: Server) -> WeightBits {
        let flags = self.facts.flags;
        // What vLLM does in 4 bits by that name is done in 8 here.
        let is_eight = server == Server::TextGenerationInference
            && flags.number(Flag::NamedBits).is_none()
            && flags.value(Flag::Quantization) == Some("bitsandbytes");
        if is_eight { WeightBits::Few(8) } else { flags.weight_bits() }
    }

    /// The room beside others, as a share of the card where the server's flag is one.
    fn room(&self, server: Server) -> Room {
        let Some((room, capacity)) = self.beside_others() else { return Room::Unknown };
        let is_crumb = room.get() < capacity.get() / 20;
        if is_crumb || self.weights_of_a_card(server).is_some_and(|weights| weights >= room) {
            return Room::TooLittle(room);
        }
        let is_of_the_whole = matches!(server, Server::Vllm | Server::TextGenerationInference);
        let percent = floored_percent(room, capacity);
        let is_less = self.share().is_none_or(|share| (percent as f64) < share * 100.0);
        if is_of_the_whole && is_less { Room::Share(percent) } else { Room::Unknown }
    }

    /// Whether less was free before the weights came than they take.
    pub(super) fn has_too_little_for_weights(&self) -> bool {
        let Some(free) = self.facts.log.cards.free_before_weights else { return false };
        let weights = Server::of(self).and_then(|server| self.weights_of_a_card(server));
        free < LEAST_ROOM || weights.is_some_and(|weights| weights >= free)
    }
}

/// What is free is printed to a hundredth of a GiB, so that it may be half of that less.
const PRINTED: Bytes = Bytes(6 << 20);
/// No server of a language model goes into less.
const LEAST_ROOM: Bytes = Bytes::from_gib(1);

/// The share of the whole that a part is, in hundredths, rounded down.
fn floored_percent(part: Bytes, whole: Bytes) -> u64 {
    let part = part.saturating_sub(PRINTED);
    (u128::from(part.get()) * 100 / u128::from(whole.saturating_add(PRINTED).get())) as u64
}

impl List<'_> {
    /// A share that fits beside others, where one does.
    pub(super) fn fit_beside_others(&mut self, server: Server) {
        let Some(share) = server.share().filter(|_| !self.case.loads_weights()) else { return };
        match self.case.room(server) {
            Room::Share(percent) => {
                let text = format!(
                    "Ask for no more than is free: {share} {}; what weights and cache need has to fit into that",
                    hundredths(percent)
                );
                self.add(Lever::LeaveRoom, text, ALL);
            }
            Room::TooLittle(room) => {
                self.join_others(&[], &format!("; no share of the card is enough beside them: they leave {room}"));
                self.other_card();
                return self.lighter_weights(server);
            }
            Room::Unknown => {
                let text = format!(
                    "Ask for no more than is free: a lower {share}; what weights and cache need has to fit into that"
                );
                self.add(Lever::LeaveRoom, text, ALL);
            }
        }
        self.other_card();
    }

    /// A smaller share, so that more is left beside the cache.
    pub(super) fn leave_room(&mut self, server: Server) {
        let Some(share) = server.share() else { return };
        let lower = match self.case.share().map(|given| (given * 100.0).round() as u64) {
            Some(given) if given > 20 => {
                let [low, high] = [given - 10, given - 5].map(hundredths);
                format!("{share} {low} to {high} instead of {}", hundredths(given))
            }
            Some(_) => return,
            None => format!("{share} lower by 0.05 to 0.1"),
        };
        self.add(
            Lever::LeaveRoom,
            format!("Leave more room beside the cache: {lower}; fewer requests fit at once"),
            ALL,
        );
    }

    /// A larger share, where weights and cache fit into one and nobody else holds the card.
    pub(super) fn raise_share(&mut self, server: Server) {
        let Some(share) = server.share().filter(|_| self.case.judgement.cause != Cause::OtherProcess) else { return };
        if self.case.has_too_little_for_weights() {
            return;
        }
        let given = self.case.share();
        let text = match exact_share(&self.case) {
            Some((percent, lacking)) if percent <= LARGEST_PERCENT => format!(
                "A larger share of the card, where nothing else is on it: {share} {}; the cache lacks {lacking}",
                hundredths(percent)
            ),
            Some((percent, lacking)) => format!(
                "A larger share of the card alone is not enough: the cache lacks {lacking}, for which {share} would have to be {}",
                hundredths(percent)
            ),
            None if given.is_some_and(|given| given >= FULL_SHARE) => return,
            None if given.is_some_and(|given| given * 100.0 >= LARGEST_PERCENT as f64) => {
                format!(
                    "A larger share of the card, where nothing else is on it: {share} up to {FULL_SHARE}, which leaves little beside"
                )
            }
            None => format!("A larger share of the card, where nothing else is on it: {share} up to 0.95"),
        };
        self.add(Lever::RaiseLimit, text, ALL);
    }
}

/// The largest share that leaves room for contexts and graphs, in hundredths.
const LARGEST_PERCENT: u64 = 95;

/// A share that has nothing left to give: a context takes the rest.
const FULL_SHARE: f64 = 0.98;

/// The share of the card, in hundredths, that the cache of one full request asks for, and what it lacks now.
fn exact_share(case: &Case<'_>) -> Option<(u64, Bytes)> {
    let cards = &case.facts.log.cards;
    if case.oom.source != Source::Startup {
        return None;
    }
    let (wanted, room) = cache_need(case.oom, case.message, cards)?;
    let (total, share) = (cards.total.filter(|total| !total.is_zero())?, case.share()?);
    let lacking = wanted.saturating_sub(room);
    let percent = (share * 100.0 + lacking.get() as f64 * 100.0 / total.get() as f64).ceil();
    (!lacking.is_zero()).then_some((percent as u64, lacking))
}

fn hundredths(percent: u64) -> String {
    format!("{}.{:02}", percent / 100, percent % 100)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_that_is_rounded_down_fits() {
        let gib = |hundredths: u64| Bytes((hundredths << 30) / 100);
        for (free, total) in [(2044, 2365), (944, 2365), (1182, 2365), (3144, 4738), (2150, 2389)] {
            let percent = floored_percent(gib(free), gib(total));
            let wanted = |percent: u64| gib(total).get() / 100 * percent;
            assert!(wanted(percent) <= gib(free).get() && wanted(percent + 2) > gib(free).get(), "{free} {percent}");
        }
    }
}
