//! The CPU allocator.

use lowtide_core::{Bytes, Line};
use lowtide_oom::Place;
use lowtide_torch::host::{self, HostAction};
use lowtide_torch::tch::{Device, Kind, Tensor};
use lowtide_torch::{TorchError, attempt};

use crate::kit::alone;

fn mib(count: i64) -> Tensor {
    Tensor::zeros([count << 20], (Kind::Uint8, Device::Cpu))
}

#[test]
fn counts_and_peaks() {
    let _alone = alone();
    assert!(host::installed());
    host::reset_peak();
    let start = host::stats();
    let a = mib(3);
    drop(mib(5));
    let now = host::stats();
    assert_eq!(now.allocated, start.allocated.saturating_add(Bytes::from_mib(3)));
    assert_eq!(now.peak, start.allocated.saturating_add(Bytes::from_mib(8)));
    assert!(now.allocations >= start.allocations + 2);
    drop(a);
    assert_eq!(host::stats().allocated, start.allocated);
}

#[test]
fn the_line_refuses_with_exact_numbers_and_nothing_is_lost() {
    let _alone = alone();
    let start = host::stats().allocated;
    let line = start.saturating_add(Bytes::from_mib(8));
    host::set_line(Line::at(line).unwrap());
    let kept = mib(6);
    let error = attempt(|| mib(3)).expect_err("6 + 3 is above 8");
    host::set_line(Line::NONE);
    let TorchError::Oom { oom, message } = error else { panic!("{error:?}") };
    assert_eq!(oom.place, Place::Host);
    assert_eq!(oom.requested, Some(Bytes::from_mib(3)));
    assert_eq!(oom.limit, Some(line));
    assert_eq!(oom.allocated, Some(start.saturating_add(Bytes::from_mib(6))));
    assert!(
        message.starts_with("CPU out of memory. Tried to allocate 3.00 MiB. CPU 0 has a total capacity of "),
        "{message}"
    );
    assert!(
        message.ends_with(" is allocated by PyTorch, and 0 bytes is reserved by PyTorch but unallocated."),
        "{message}"
    );
    drop(kept);
    assert_eq!(host::stats().allocated, start);
}

#[test]
fn a_request_that_fits_exactly_is_served() {
    let _alone = alone();
    let line = host::stats().allocated.saturating_add(Bytes::from_mib(4));
    host::set_line(Line::at(line).unwrap());
    let exact = attempt(|| mib(4));
    let more = attempt(|| Tensor::zeros([1], (Kind::Uint8, Device::Cpu)));
    host::set_line(Line::NONE);
    assert!(exact.is_ok());
    assert!(more.is_err_and(|error| error.is_oom()));
}

#[test]
fn absurd_sizes_are_errors_too() {
    let _alone = alone();
    let start = host::stats().allocated;
    let huge = attempt(|| Tensor::empty([1 << 50], (Kind::Uint8, Device::Cpu)));
    assert!(huge.is_err_and(|error| error.is_oom()), "the machine itself refuses, and that is the same error");
    assert_eq!(host::stats().allocated, start);
}

#[test]
fn failing_the_nth_and_the_next_ones() {
    let _alone = alone();
    host::fail_nth(2, 2);
    let results: Vec<bool> = (0..5).map(|_| attempt(|| mib(1)).is_ok()).collect();
    assert_eq!(results, [true, false, false, true, true]);
}

#[test]
fn records_pairs_in_order() {
    let _alone = alone();
    let (kept, events) = host::record(|| {
        let kept = mib(2);
        drop(mib(1));
        kept
    });
    let seen: Vec<_> = events.iter().map(|event| (event.action, event.bytes)).collect();
    let (one, two) = (Bytes::from_mib(1), Bytes::from_mib(2));
    assert_eq!(seen, [(HostAction::Allocate, two), (HostAction::Allocate, one), (HostAction::Free, one)]);
    assert_eq!(events[1].serial, events[2].serial);
    assert_ne!(events[0].serial, events[1].serial);
    assert!(events.windows(2).all(|pair| pair[0].nanoseconds <= pair[1].nanoseconds));
    drop(kept);
}

#[test]
fn many_threads_never_pass_the_line_and_leave_nothing() {
    let _alone = alone();
    let start = host::stats().allocated;
    host::reset_peak();
    let line = start.saturating_add(Bytes::from_mib(10));
    host::set_line(Line::at(line).unwrap());
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..200 {
                    let _ = attempt(|| mib(3)).map(|tensor| tensor.size());
                }
            });
        }
    });
    host::set_line(Line::NONE);
    let stats = host::stats();
    assert!(stats.peak <= line, "{} is above {line}", stats.peak);
    assert_eq!(stats.allocated, start);
}
