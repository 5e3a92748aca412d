//! Tensors of ranks from card to card, where each has one of its own.
//!
//! What ranks agree on goes through the host as before: a card whose memory ran out has nothing to do with it.

use std::time::Duration;

use tch::{Device, Kind, Tensor};

use crate::attempt::attempt;
use crate::error::TorchError;
use crate::gradient_buckets::MOST;
use crate::ranks::{Ranks, RanksError, first_line, number};
use crate::{cuda, ffi};

const DOING: &str = "connecting cards";
/// As long as the first connection may take: cards that do not find each other would be waited for in every step.
const LONGEST: Duration = Duration::from_mins(1);
const ID: usize = 128;
const CARD: usize = 16;

/// What a rank brings: its card, the id that the first one made, and memory to try it out with.
struct Card {
    card: [u8; CARD],
    id: [u8; ID],
    trial: Tensor,
}

impl Card {
    fn of(device: Option<usize>, makes_id: bool) -> Result<Card, TorchError> {
        let device = device.ok_or_else(|| TorchError::Engine("it computes on the CPU".to_owned()))?;
        let card = cuda::uuid(device)?;
        let mut id = [0; ID];
        if makes_id {
            // SAFETY: there is room for as many bytes as are written.
            unsafe { ffi::lt_ranks_nccl_id(id.as_mut_ptr()) }.check()?;
        }
        let trial = attempt(|| Tensor::zeros([MOST], (Kind::Float, Device::Cuda(device))))?;
        Ok(Card { card, id, trial })
    }
}

impl Ranks {
    /// Lets tensors on cards go from card to card by NCCL from now on, within `timeout` each. Called by all ranks; where it cannot be,
    /// everything goes through the host as before, and all hear why.
    pub fn use_nccl(&self, device: Option<usize>, timeout: Duration) -> Result<Option<String>, RanksError> {
        let own = Card::of(device, self.rank() == 0);
        let said: Vec<u8> = match &own {
            Ok(own) => [&own.card[..], &own.id[..]].concat(),
            Err(error) => first_line(error).into_bytes(),
        };
        let answers = self.told(own.is_ok(), &said)?;
        let (cards, own) = match (answers, own) {
            (Ok(cards), Ok(own)) => (cards, own),
            (Err(reason), _) => return Ok(Some(reason)),
            (Ok(_), Err(error)) => return Err(error.into()),
        };
        if let Some(reason) = shared(&cards) {
            return Ok(Some(reason));
        }
        let joined = self.connect_cards(&cards[0][CARD..], &own.trial, timeout);
        let said = joined.as_ref().map_or_else(first_line, |()| String::new());
        let refused = self.told(joined.is_ok(), said.as_bytes())?.err();
        if refused.is_some() {
            // SAFETY: the handle is open.
            unsafe { ffi::lt_ranks_nccl_leave(self.handle) };
        }
        drop(own);
        cuda::empty_cache()?;
        Ok(refused)
    }

    fn connect_cards(&self, id: &[u8], trial: &Tensor, timeout: Duration) -> Result<(), TorchError> {
        assert_eq!(id.len(), ID);
        let (rank, world) = (number(self.rank()), number(self.world()));
        let millis = |time: Duration| i64::try_from(time.as_millis()).unwrap_or(i64::MAX);
        let (first, later) = (millis(timeout.min(LONGEST)), millis(timeout));
        // SAFETY: all live through the call, and the id is as long as is read.
        unsafe { ffi::lt_ranks_nccl_join(self.handle, id.as_ptr(), rank, world, trial.as_ptr(), first, later) }.check()
    }

    /// What each rank says, where all are able; else what the first that is not says.
    fn told(&self, is_able: bool, said: &[u8]) -> Result<Result<Vec<Vec<u8>>, String>, RanksError> {
        let rows = self.gather(DOING, &[&[u8::from(is_able)], said].concat())?;
        let unable = (0..).zip(&rows).find(|(_, row)| row[0] == 0);
        Ok(match unable {
            Some((rank, row)) => Err(format!("rank {rank}: {}", String::from_utf8_lossy(&row[1..]))),
            None => Ok(rows.into_iter().map(|mut row| row.split_off(1)).collect()),
        })
    }
}

/// Two ranks that have the same card, which NCCL refuses.
fn shared(cards: &[Vec<u8>]) -> Option<String> {
    let of = |rank: usize| &cards[rank][..CARD];
    let pair = (0..cards.len()).find_map(|rank| Some(((0..rank).find(|before| of(*before) == of(rank))?, rank)));
    pair.map(|(first, second)| format!("ranks {first} and {second} share a card"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_on_one_card_are_named() {
        let row = |card: u8, id: u8| [[card; CARD].to_vec(), vec![id; ID]].concat();
        assert_eq!(shared(&[row(1, 9), row(2, 0), row(3, 0)]), None);
        assert_eq!(shared(&[row(1, 9), row(2, 0), row(2, 0)]).as_deref(), Some("ranks 1 and 2 share a card"));
    }
}
