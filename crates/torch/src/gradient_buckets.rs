//! Gradients added up over ranks, and parameters exchanged: small ones together in one buffer, large ones where they are.
//!
//! The buffer is there from the start, so that both allocate nothing: they come after all ranks have agreed that none has
//! failed, and must not fail themselves.

use tch::{Device, Kind, Tensor};

use crate::attempt::attempt;
use crate::error::TorchError;
use crate::ranks::{Ranks, RanksError};

/// Numbers in the buffer: as many bytes as PyTorch's DDP sends at once.
pub(crate) const MOST: i64 = (25 << 20) / 4;

/// The buffer through which gradients are added up and parameters exchanged.
#[derive(Debug)]
pub struct GradientBuckets {
    flat: Tensor,
}

impl GradientBuckets {
    /// A buffer for the gradients of these parameters, on their device.
    pub fn new(parameters: &[Tensor]) -> Result<GradientBuckets, TorchError> {
        let device = parameters.first().map_or(Device::Cpu, Tensor::device);
        let flat = attempt(|| Tensor::zeros([GradientBuckets::numbers(parameters)], (Kind::Float, device)))?;
        Ok(GradientBuckets { flat })
    }

    /// Bytes that such a buffer takes.
    #[must_use]
    pub fn bytes(parameters: &[Tensor]) -> u64 {
        4 * GradientBuckets::numbers(parameters).unsigned_abs()
    }

    fn numbers(parameters: &[Tensor]) -> i64 {
        parameters.iter().map(length).sum::<i64>().min(MOST)
    }

    /// Adds up the gradients over all ranks, in place on each, with the same bits on all. They are contiguous
    /// ([`crate::gradients::make_contiguous`]), and all ranks have the same ones.
    pub fn sum(&self, ranks: &Ranks, gradients: &[Tensor]) -> Result<(), RanksError> {
        self.send(gradients, |tensor| ranks.sum("adding up gradients", tensor))
    }

    /// Copies contiguous tensors of one rank into those of all others, in place.
    pub fn spread_from(&self, rank: u32, ranks: &Ranks, tensors: &[Tensor]) -> Result<(), RanksError> {
        self.send(tensors, |tensor| ranks.spread_from(rank, "exchanging parameters", tensor))
    }

    /// Sends large tensors by themselves and small ones together.
    fn send(&self, tensors: &[Tensor], send: impl Fn(&Tensor) -> Result<(), RanksError>) -> Result<(), RanksError> {
        let mut rest = tensors;
        while let Some(tensor) = rest.first() {
            let count = self.that_fit(rest);
            if count == 0 {
                send(tensor)?;
            } else {
                self.send_together(&rest[..count], &send)?;
            }
            rest = &rest[count.max(1)..];
        }
        Ok(())
    }

    /// How many of the first ones go into the buffer together.
    fn that_fit(&self, tensors: &[Tensor]) -> usize {
        let mut left = length(&self.flat);
        let fits = |tensor: &&Tensor| {
            left -= length(tensor);
            left >= 0 && tensor.kind() == Kind::Float
        };
        tensors.iter().take_while(fits).count()
    }

    fn send_together(
        &self,
        tensors: &[Tensor],
        send: impl Fn(&Tensor) -> Result<(), RanksError>,
    ) -> Result<(), RanksError> {
        let parts = || {
            tensors.iter().scan(0, |start, tensor| {
                let part = self.flat.narrow(0, *start, length(tensor)).view_as(tensor);
                *start += length(tensor);
                Some((part, tensor))
            })
        };
        let copy = |target: &Tensor, source: &Tensor| target.shallow_clone().copy_(source);
        attempt(|| parts().for_each(|(part, tensor)| copy(&part, tensor)))?;
        let all: i64 = tensors.iter().map(length).sum();
        send(&attempt(|| self.flat.narrow(0, 0, all))?)?;
        attempt(|| parts().for_each(|(part, tensor)| copy(tensor, &part)))?;
        Ok(())
    }
}

fn length(tensor: &Tensor) -> i64 {
    i64::try_from(tensor.numel()).unwrap_or(i64::MAX)
}
