//! Tensors from card to card. One card shows that NCCL is found, connects, adds up and sends, and what it refuses; that several cards
//! find each other it cannot show.

use std::time::{Duration, Instant};

use lowtide_torch::cuda;
use lowtide_torch::tch::{Device, Kind, Tensor};

use super::{GPU, gpu};
use crate::ranks::on_ranks;

const PATIENCE: Duration = Duration::from_secs(60);

#[test]
#[ignore = "needs a GPU"]
fn a_rank_alone_connects_adds_up_and_sends() {
    let _turn = gpu();
    on_ranks(1, |ranks| {
        let (before, begun) = (cuda::context(0).unwrap(), Instant::now());
        assert_eq!(ranks.use_nccl(Some(0), PATIENCE).unwrap(), None);
        let (after, connected) = (cuda::context(0).unwrap(), begun.elapsed());
        for kind in [Kind::Float, Kind::BFloat16, Kind::Half, Kind::Double, Kind::Int64] {
            for numbers in [1, 1000, 30 << 20] {
                let tensor = Tensor::arange(numbers, (Kind::Float, GPU)).to_kind(kind);
                let sent = tensor.copy();
                ranks.sum("testing", &sent).unwrap();
                ranks.spread("testing", &sent).unwrap();
                assert!(sent.equal(&tensor), "{kind:?} of {numbers}");
            }
        }
        // Through the host as before: what is not on the card, and what cannot be added up there.
        let host = Tensor::arange(10, (Kind::Float, Device::Cpu));
        ranks.sum("testing", &host).unwrap();
        assert!(host.equal(&Tensor::arange(10, (Kind::Float, Device::Cpu))));
        let bytes = Tensor::arange(10, (Kind::Uint8, GPU));
        ranks.spread("testing", &bytes).unwrap();
        assert!(bytes.equal(&Tensor::arange(10, (Kind::Uint8, GPU))));
        let bucket = Tensor::ones([(25 << 20) / 4], (Kind::Float, GPU));
        ranks.sum("testing", &bucket).unwrap();
        let begun = Instant::now();
        (0..100).for_each(|_| ranks.sum("testing", &bucket).unwrap());
        let each = begun.elapsed().as_secs_f64() * 1e4;
        let more = after.saturating_sub(before);
        println!("nccl alone: connected in {connected:.2?}, {more} more on the card, {each:.0} us for 25 MiB");
        ranks.part();
    });
}

/// The other rank's card is known before NCCL is asked, and gradients go through the host.
#[test]
#[ignore = "needs a GPU"]
fn ranks_that_share_a_card_go_through_the_host() {
    let _turn = gpu();
    on_ranks(2, |ranks| {
        let reason = ranks.use_nccl(Some(0), PATIENCE).unwrap();
        assert_eq!(reason.as_deref(), Some("ranks 0 and 1 share a card"));
        let tensor = Tensor::ones([1000], (Kind::Float, GPU)) * f64::from(ranks.rank() + 1);
        ranks.sum("testing", &tensor).unwrap();
        assert!(tensor.equal(&(Tensor::ones([1000], (Kind::Float, GPU)) * 3.0)));
        ranks.part();
    });
}

/// One rank without a card is enough.
#[test]
#[ignore = "needs a GPU"]
fn a_rank_on_the_host_is_named() {
    let _turn = gpu();
    on_ranks(2, |ranks| {
        let card = (ranks.rank() == 0).then_some(0);
        let reason = ranks.use_nccl(card, PATIENCE).unwrap();
        assert_eq!(reason.as_deref(), Some("rank 1: it computes on the CPU"));
        ranks.part();
    });
}
