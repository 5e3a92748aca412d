//! Many threads share a budget: the sum stays under it, everybody is served in turn, and a stop wakes them all.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::Duration;

use lowtide_core::Bytes;
use lowtide_data::budget::{Budget, Error, Stop};

/// Fails instead of hanging where `work` does not end.
fn within_a_minute<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    let (done, wait) = mpsc::channel();
    thread::spawn(move || done.send(work()));
    wait.recv_timeout(Duration::from_secs(60)).expect("the work ends within a minute, without a panic")
}

/// Numbers that look random, the same in every run.
fn noise(state: &mut u64) -> u64 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    *state >> 33
}

/// Returns when a thread waits for the budget, which shows in that not even nothing can be had at once.
fn until_somebody_waits(budget: &Budget) {
    while budget.try_reserve(Bytes::ZERO).is_some() {
        thread::yield_now();
    }
}

#[test]
fn the_sum_never_exceeds_the_budget_and_nobody_waits_for_ever() {
    within_a_minute(|| {
        const LIMIT: u64 = 1000;
        let budget = Budget::new(Bytes(LIMIT));
        let held = Arc::new(AtomicU64::new(0));
        let threads: Vec<_> = (0..16_u64)
            .map(|number| {
                let (budget, held) = (budget.clone(), Arc::clone(&held));
                thread::spawn(move || {
                    let (stop, mut state) = (Stop::default(), number);
                    for round in 0..2000 {
                        let most = if number == 0 { LIMIT } else { 400 };
                        let bytes = 1 + noise(&mut state) % most;
                        let taken = if round % 3 == 2 {
                            budget.try_reserve(Bytes(bytes))
                        } else {
                            Some(budget.reserve(Bytes(bytes), &stop).expect("it fits"))
                        };
                        let Some(mut taken) = taken else { continue };
                        let sum = held.fetch_add(bytes, Ordering::SeqCst) + bytes;
                        assert!(sum <= LIMIT, "{sum} bytes are held");
                        let kept = noise(&mut state) % bytes;
                        let part = taken.split(Bytes(kept)).expect("less than all");
                        held.fetch_sub(bytes - kept, Ordering::SeqCst);
                        taken.shrink_to(Bytes::ZERO);
                        thread::yield_now();
                        held.fetch_sub(kept, Ordering::SeqCst);
                        drop(part);
                    }
                })
            })
            .collect();
        threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
        assert_eq!(budget.used(), Bytes::ZERO);
        assert!(budget.peak() <= Bytes(LIMIT) && budget.peak() > Bytes(LIMIT / 2));
    });
}

#[test]
fn a_large_request_is_not_overtaken_by_small_ones() {
    within_a_minute(|| {
        let budget = Budget::new(Bytes(100));
        let first = budget.try_reserve(Bytes(50)).unwrap();
        let served = Arc::new(Mutex::new(Vec::new()));
        let mut threads = Vec::new();
        for (number, bytes) in [100_u64, 10, 20].into_iter().enumerate() {
            let (thread_budget, served) = (budget.clone(), Arc::clone(&served));
            threads.push(thread::spawn(move || {
                let taken = thread_budget.reserve(Bytes(bytes), &Stop::default()).expect("it fits");
                served.lock().unwrap().push(bytes);
                drop(taken);
            }));
            if number == 0 {
                until_somebody_waits(&budget);
            }
        }
        assert!(budget.try_reserve(Bytes(1)).is_none(), "there is room, and somebody waits for more of it");
        drop(first);
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!(served.lock().unwrap()[0], 100);
    });
}

#[test]
fn a_stop_wakes_all_who_wait_and_lets_the_others_pass() {
    within_a_minute(|| {
        for round in 0..200 {
            let budget = Budget::new(Bytes(100));
            let whole = budget.try_reserve(Bytes(100)).unwrap();
            let (stop, other) = (Stop::default(), Stop::default());
            let wait = |stop: &Stop| {
                let (budget, stop) = (budget.clone(), stop.clone());
                thread::spawn(move || budget.reserve(Bytes(60), &stop).map(drop))
            };
            let stopped: Vec<_> = (0..4).map(|_| wait(&stop)).collect();
            let patient = wait(&other);
            if round % 2 == 0 {
                until_somebody_waits(&budget);
            }
            stop.raise();
            for thread in stopped {
                assert_eq!(thread.join().unwrap(), Err(Error::Stopped { asked: Bytes(60) }));
            }
            drop(whole);
            assert_eq!(patient.join().unwrap(), Ok(()));
            assert_eq!(budget.used(), Bytes::ZERO);
        }
    });
}

#[test]
fn a_stopped_wait_in_front_does_not_block_those_behind() {
    within_a_minute(|| {
        let budget = Budget::new(Bytes(100));
        let held = budget.try_reserve(Bytes(50)).unwrap();
        let stop = Stop::default();
        let front = thread::spawn({
            let (budget, stop) = (budget.clone(), stop.clone());
            move || budget.reserve(Bytes(100), &stop).map(drop)
        });
        until_somebody_waits(&budget);
        let behind = thread::spawn({
            let budget = budget.clone();
            move || budget.reserve(Bytes(10), &Stop::default()).map(drop)
        });
        thread::sleep(Duration::from_millis(20));
        stop.raise();
        assert!(front.join().unwrap().is_err());
        assert_eq!(behind.join().unwrap(), Ok(()));
        drop(held);
    });
}
