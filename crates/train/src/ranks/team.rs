//! This process among the ranks: its part of the work, and what all of them agree on.

use std::cell::Cell;
use std::time::{Duration, Instant};

use lowtide_settings::{Backend, RanksSettings};
use lowtide_torch::tch::Device;
use lowtide_torch::{Ranks, RanksError, TorchError};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::failure::{FailureMessage, OwnFailure, RankFailure};
use crate::error::{Result, TrainError};

/// This process among those that train together; mostly there is only one.
#[derive(Debug, Default)]
pub struct Team {
    ranks: Option<Ranks>,
    /// Whether nothing is done together any more.
    has_left: Cell<bool>,
    /// How long it waited for the others to agree, since this was last asked.
    waited: Cell<Duration>,
}

/// What came of work that every rank did its part of.
#[derive(Debug)]
pub(crate) enum Agreed<T> {
    /// All have done it; with this rank's own result.
    Done(T),
    /// Memory ran out on some, in the order of ranks: the work of all is void.
    Failed(Vec<RankFailure>),
}

/// How tensors go from one rank to another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Passage {
    /// From card to card, by NCCL, whose memory counts in from now on.
    Cards,
    /// Through the host, though there are cards; and why.
    Host(String),
}

/// Who can do something about an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Fault {
    /// The person who started the run: bad input.
    Input,
    /// Nobody without more memory.
    Memory,
    /// Somebody else.
    Other,
}

/// How work went on a rank, as a number that is exchanged.
const DONE: i64 = 0;
const OUT_OF_MEMORY: i64 = 1;
const ENDED: i64 = 2;

#[derive(Serialize, Deserialize)]
struct EndMessage {
    message: String,
    fault: Fault,
}

impl Team {
    /// Several ranks that have met.
    #[must_use]
    pub fn of(ranks: Ranks) -> Team {
        Team { ranks: Some(ranks).filter(|ranks| ranks.world() > 1), ..Team::default() }
    }

    /// The number of this rank, from 0.
    #[must_use]
    pub fn rank(&self) -> u32 {
        self.ranks.as_ref().map_or(0, Ranks::rank)
    }

    /// The number of ranks.
    #[must_use]
    pub fn world(&self) -> u32 {
        self.ranks.as_ref().map_or(1, Ranks::world)
    }

    /// Whether there is no other rank to do something with.
    #[must_use]
    pub fn is_alone(&self) -> bool {
        self.ranks().is_none()
    }

    /// Does nothing together any more: an error has ended that.
    pub(crate) fn leave(&self) {
        self.has_left.set(true);
    }

    /// Ends a run that all ranks have come to the end of.
    pub fn disband(self) {
        self.ranks.into_iter().for_each(Ranks::part);
    }

    /// Whether this rank is the one that writes and speaks for all.
    #[must_use]
    pub fn is_first(&self) -> bool {
        self.rank() == 0
    }

    pub(crate) fn ranks(&self) -> Option<&Ranks> {
        self.ranks.as_ref().filter(|_| !self.has_left.get())
    }

    /// Lets tensors go from card to card where the settings and the cards allow it. All ranks call this; what is told is how they go.
    pub fn connect_cards(&self, settings: &RanksSettings, device: Device) -> Result<Option<Passage>> {
        let Some(ranks) = self.ranks().filter(|_| settings.backend != Backend::Gloo) else { return Ok(None) };
        let card = match device {
            Device::Cuda(card) => Some(card),
            _ => None,
        };
        match (ranks.use_nccl(card, Duration::from_secs(settings.timeout))?, settings.backend) {
            (None, _) => Ok(Some(Passage::Cards)),
            (Some(reason), Backend::Nccl) => Err(RanksError::NoNccl(reason).into()),
            (Some(reason), _) => Ok(card.map(|_| Passage::Host(reason))),
        }
    }

    /// This rank's part of the samples `first .. first + count`: ranks take them one after the other, each as many as the
    /// others or one more.
    pub(crate) fn part(&self, first: u64, count: u64) -> (u64, u64) {
        let (rank, world) = (u64::from(self.rank()), u64::from(self.world()));
        let (each, more) = (count / world, count % world);
        (first + rank * each + rank.min(more), each + u64::from(rank < more))
    }

    /// Hears how a part of the work went on every rank, with some numbers of each. What is no lack of memory ends the run of
    /// all; `numbers` of a failed try are of account too.
    pub(crate) fn agree<T>(
        &self,
        doing: &'static str,
        own: Result<T, OwnFailure>,
        numbers: &[i64],
    ) -> Result<(Agreed<T>, Vec<Vec<i64>>)> {
        let Some(ranks) = self.ranks() else { return alone(own).map(|agreed| (agreed, vec![numbers.to_vec()])) };
        let own = match own {
            // Nothing can be agreed on with those who are gone.
            Err(OwnFailure { error, .. }) if matches!(*error, TrainError::Ranks(_)) => return Err(*error),
            own => own,
        };
        let state = match &own {
            Ok(_) => DONE,
            Err(failure) if failure.is_oom() => OUT_OF_MEMORY,
            Err(_) => ENDED,
        };
        let row: Vec<i64> = [state].iter().chain(numbers).copied().collect();
        let arrived = Instant::now();
        let mut rows = ranks.gather_numbers(doing, &row)?;
        self.waited.set(self.waited.get() + arrived.elapsed());
        let states: Vec<i64> = rows.iter_mut().map(|row| row.remove(0)).collect();
        if states.contains(&ENDED) {
            return Err(self.ended(doing, own.err().map(|failure| *failure.error).filter(|_| state == ENDED)));
        }
        if !states.contains(&OUT_OF_MEMORY) {
            // None is not possible: this rank's own state was among them.
            return own.map(|done| (Agreed::Done(done), rows)).map_err(|failure| *failure.error);
        }
        let messages = self.gather(doing, own.as_ref().err().map(FailureMessage::of).as_ref())?;
        let failed = (0..).zip(messages).filter_map(|(rank, message)| Some((rank, message?)));
        let failures = failed.map(|(rank, message)| message.on_rank(rank)).collect();
        Ok((Agreed::Failed(failures), rows))
    }

    /// The same for work that is done once: an error of one rank, whatever it is, ends all.
    pub fn settle<T>(&self, doing: &'static str, own: Result<T>) -> Result<T> {
        let Some(ranks) = self.ranks() else { return own };
        let rows = ranks.gather_numbers(doing, &[if own.is_ok() { DONE } else { ENDED }])?;
        match own {
            Ok(done) if rows.iter().all(|row| row[0] == DONE) => Ok(done),
            own => Err(self.ended(doing, own.err())),
        }
    }

    /// How long this rank waited for the others to agree, since this was last asked.
    pub(crate) fn take_waited(&self) -> Duration {
        self.waited.take()
    }

    /// What ends the run, where it ends on some rank: its own error there, elsewhere that of the first such rank.
    fn ended(&self, doing: &'static str, own: Option<TrainError>) -> TrainError {
        let message = own.as_ref().map(|error| EndMessage { message: error.to_string(), fault: error.fault() });
        let all = match self.gather(doing, message.as_ref()) {
            Ok(all) => all,
            Err(error) => return own.unwrap_or(error),
        };
        let first = (0..).zip(all).find_map(|(rank, message)| Some((rank, message?)));
        match (own, first) {
            (Some(own), _) => own,
            (None, Some((rank, EndMessage { message, fault }))) => TrainError::OtherRank { rank, message, fault },
            (None, None) => TrainError::Engine(TorchError::Engine("a rank ended without a word".to_owned())),
        }
    }

    /// A value of each rank that has one, in the order of ranks.
    pub(crate) fn gather<T: Serialize + DeserializeOwned>(
        &self,
        doing: &'static str,
        mine: Option<&T>,
    ) -> Result<Vec<Option<T>>> {
        let text = mine.map_or_else(Vec::new, |mine| serde_json::to_vec(mine).expect("plain values"));
        let texts = match self.ranks() {
            None => vec![text],
            Some(ranks) => ranks.gather(doing, &text)?,
        };
        let read = |text: &Vec<u8>| match text.is_empty() {
            true => Ok(None),
            false => serde_json::from_slice(text).map(Some),
        };
        let unreadable = |error: serde_json::Error| {
            let message = format!("a rank runs another version: what it said cannot be read: {error}");
            RanksError::Own(TorchError::Engine(message)).into()
        };
        texts.iter().map(read).collect::<Result<_, _>>().map_err(unreadable)
    }

    /// A value of the first rank. It is read back from its text there too, so that all have the same bits.
    pub fn of_first<T: Serialize + DeserializeOwned>(&self, doing: &'static str, mine: Option<T>) -> Result<T> {
        if self.is_alone() {
            return Ok(mine.expect("the first rank has one"));
        }
        let all = self.gather(doing, mine.as_ref().filter(|_| self.is_first()))?;
        Ok(all.into_iter().next().flatten().expect("the first rank has one"))
    }
}

fn alone<T>(own: Result<T, OwnFailure>) -> Result<Agreed<T>> {
    let OwnFailure { phase, error, metric, peaks } = match own {
        Ok(done) => return Ok(Agreed::Done(done)),
        Err(failure) => failure,
    };
    match *error {
        TrainError::Engine(error) if error.is_oom() => {
            Ok(Agreed::Failed(vec![RankFailure { rank: 0, phase, error, metric, peaks }]))
        }
        error => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn alone_the_part_is_the_whole() {
        let team = Team::default();
        assert_eq!(team.part(7, 5), (7, 5));
        assert_eq!((team.rank(), team.world(), team.is_first(), team.is_alone()), (0, 1, true, true));
    }
}
