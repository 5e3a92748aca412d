//! Several ranks in one process, a thread each.

use std::net::TcpListener;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use lowtide_torch::tch::{Device, Kind, Tensor};
use lowtide_torch::{MeetingPoint, Ranks};

use crate::kit::alone;

const WORLD: u32 = 3;

/// Calls this on each of so many ranks, once they have met.
pub(crate) fn on_ranks(world: u32, work: impl Fn(Ranks) + Sync) {
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let meeting = |rank| MeetingPoint {
        host: "127.0.0.1".to_owned(),
        port,
        serves: rank == 0,
        prefix: "test".to_owned(),
        network_interface: None,
        is_local: true,
        rank,
        world,
        timeout: Duration::from_secs(60),
    };
    thread::scope(|scope| {
        for rank in 0..world {
            let (meeting, work) = (meeting(rank), &work);
            scope.spawn(move || work(Ranks::join(&meeting).unwrap()));
        }
    });
}

#[test]
fn nobody_leaves_before_all_are_done() {
    let _alone = alone();
    let done = AtomicU32::new(0);
    on_ranks(WORLD, |ranks| {
        if ranks.rank() == 1 {
            thread::sleep(Duration::from_millis(300));
        }
        done.fetch_add(1, Ordering::SeqCst);
        ranks.part();
        assert_eq!(done.load(Ordering::SeqCst), WORLD);
    });
}

#[test]
fn tensors_and_numbers_go_from_one_rank_to_another() {
    let _alone = alone();
    on_ranks(WORLD, |ranks| {
        let row = || Tensor::arange(10, (Kind::Float, Device::Cpu));
        match ranks.rank() {
            0 => {
                ranks.send_number(2, "testing", -7).unwrap();
                ranks.send(2, "testing", &row().narrow(0, 4, 3)).unwrap();
            }
            2 => {
                assert_eq!(ranks.receive_number(0, "testing").unwrap(), -7);
                let whole = Tensor::zeros([10], (Kind::Float, Device::Cpu));
                ranks.receive(0, "testing", &whole.narrow(0, 4, 3)).unwrap();
                assert_eq!(Vec::<f32>::try_from(whole).unwrap(), [0.0, 0.0, 0.0, 0.0, 4.0, 5.0, 6.0, 0.0, 0.0, 0.0]);
            }
            _ => {}
        }
        let all = row() * f64::from(ranks.rank());
        ranks.spread_from(1, "testing", &all).unwrap();
        assert_eq!(all, row());
        ranks.part();
    });
}
