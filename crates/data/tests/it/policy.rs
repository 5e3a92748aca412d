//! The cache decides as well as one that has the whole future written down, and reaches what theory allows.

use std::collections::HashMap;

use lowtide_core::Bytes;
use lowtide_data::order::{Cursor, Layout, Order, Shuffle};
use lowtide_data::policy::{Cache, Decision, Policy, Unit, Units};
use lowtide_data::simulation::{Reads, curve, simulate};
use proptest::prelude::*;

/// Every access of some epochs, written down.
fn accesses(order: &Order, epochs: u64) -> Vec<u64> {
    let units = Units::of(order.shuffle());
    let epochs = (0..epochs).map(|epoch| order.epoch(epoch));
    let samples: Vec<_> = epochs.flat_map(|epoch| epoch.samples_from(0).collect::<Vec<_>>()).collect();
    samples.into_iter().map(|sample| units.unit_of(order.layout(), sample).0).collect()
}

/// Loads of each epoch by the textbook: look through the list for the next use of everything, drop the furthest.
fn naive_belady(list: &[u64], epoch_len: usize, epochs: usize, slots: usize) -> Vec<u64> {
    let mut cached: Vec<u64> = Vec::new();
    let mut loads = vec![0; epochs];
    for now in 0..epoch_len * epochs {
        if cached.contains(&list[now]) {
            continue;
        }
        loads[now / epoch_len] += 1;
        cached.push(list[now]);
        if cached.len() > slots {
            let next_use = |unit: &u64| list[now + 1..].iter().position(|other| other == unit).unwrap_or(usize::MAX);
            let furthest = (0..cached.len()).max_by_key(|place| next_use(&cached[*place])).expect("not empty");
            cached.remove(furthest);
        }
    }
    loads
}

/// Loads of each epoch when the one used longest ago goes.
fn naive_lru(list: &[u64], epoch_len: usize, epochs: usize, slots: usize) -> Vec<u64> {
    let mut oldest_first: Vec<u64> = Vec::new();
    let mut loads = vec![0; epochs];
    for now in 0..epoch_len * epochs {
        let place = oldest_first.iter().position(|unit| *unit == list[now]);
        if let Some(place) = place {
            oldest_first.remove(place);
        } else {
            loads[now / epoch_len] += 1;
            if oldest_first.len() >= slots && slots > 0 {
                oldest_first.remove(0);
            }
        }
        if slots > 0 {
            oldest_first.push(list[now]);
        }
    }
    loads
}

fn simulated(order: &Order, epochs: u64, slots: u64, policy: Policy) -> Vec<Reads> {
    simulate(order, epochs, Bytes(slots * 10 + 9), policy, |_| Bytes(10))
}

fn loads(order: &Order, epochs: u64, slots: u64, policy: Policy) -> Vec<u64> {
    simulated(order, epochs, slots, policy).iter().map(|epoch| epoch.loads).collect()
}

/// Loads of each epoch of a cache that is only asked for whole units.
fn whole_loads(order: &Order, epochs: u64, slots: u64, policy: Policy) -> Vec<u64> {
    let units = Units::of(order.shuffle());
    let mut cache = Cache::new(order, policy, Bytes(slots * 10 + 9));
    let mut loads = vec![0; epochs as usize];
    for (at, sample) in order.samples_from(Cursor::default()).take_while(|(at, _)| at.epoch < epochs) {
        let decision = cache.need(units.unit_of(order.layout(), sample), Bytes(10), at);
        loads[at.epoch as usize] += u64::from(decision != Decision::Hit);
    }
    loads
}

fn shuffles() -> impl Strategy<Value = Shuffle> {
    prop_oneof![
        1 => Just(Shuffle::Sequential),
        2 => Just(Shuffle::Full),
        5 => (1_u32..10).prop_map(|shards| Shuffle::Window { shards }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn loads_are_those_of_the_written_down_future(
        counts in prop::collection::vec(0_u64..12, 1..20),
        shuffle in shuffles(),
        seed in any::<u64>(),
        slots in 0_u64..24,
    ) {
        let order = Order::new(Layout::new(counts), shuffle, seed);
        let list = accesses(&order, 5);
        let len = order.layout().samples() as usize;
        prop_assume!(len > 0);
        let belady = naive_belady(&list, len, 4, slots as usize);
        prop_assert_eq!(&whole_loads(&order, 4, slots, Policy::Belady), &belady);
        prop_assert_eq!(loads(&order, 4, slots, Policy::Lru), naive_lru(&list, len, 4, slots as usize));
        match shuffle {
            Shuffle::Window { shards } if u64::from(shards) > slots => {
                // What has no room is read sample by sample until it has, and then as a whole.
                let twice = 20 * u64::from(order.layout().shards());
                let reads = simulated(&order, 4, slots, Policy::Belady);
                prop_assert!(reads.iter().all(|epoch| epoch.bytes <= Bytes(twice)), "{reads:?} of {twice}");
            }
            _ => prop_assert_eq!(&loads(&order, 4, slots, Policy::Belady), &belady),
        }
    }

    #[test]
    fn whatever_the_sizes_the_cache_stays_in_its_bytes(
        shards in prop::collection::vec((1_u64..8, 0_u64..50), 1..16),
        shuffle in shuffles(),
        seed in any::<u64>(),
        capacity in 0_u64..200,
        policy in prop_oneof![Just(Policy::Belady), Just(Policy::Lru)],
    ) {
        let order = Order::new(Layout::new(shards.iter().map(|shard| shard.0)), shuffle, seed);
        let units = Units::of(shuffle);
        let mut cache = Cache::new(&order, policy, Bytes(capacity));
        let mut model: HashMap<Unit, u64> = HashMap::new();
        let steps = order.layout().samples() as usize * 3;
        for (at, sample) in order.samples_from(Cursor::default()).take(steps) {
            let unit = units.unit_of(order.layout(), sample);
            let bytes = shards[sample.shard as usize].1;
            match cache.need(unit, Bytes(bytes), at) {
                Decision::Hit => prop_assert!(model.contains_key(&unit)),
                Decision::Load { evict, keep } => {
                    prop_assert!(!model.contains_key(&unit));
                    for gone in evict {
                        prop_assert!(model.remove(&gone).is_some());
                    }
                    if keep {
                        model.insert(unit, bytes);
                    }
                }
            }
            prop_assert_eq!(cache.used(), Bytes(model.values().sum()));
            prop_assert!(cache.used() <= Bytes(capacity));
        }
    }
}

/// The share of units that are found in the cache, over epochs behind the first.
fn hit_rate(order: &Order, share: f64, policy: Policy) -> f64 {
    let units = u64::from(order.layout().shards());
    let slots = (share * units as f64).round() as u64;
    let reads = loads(order, 21, slots, policy);
    1.0 - reads[1..].iter().sum::<u64>() as f64 / (20 * units) as f64
}

#[test]
fn hit_rates_are_those_of_theory_when_each_shard_is_used_once() {
    let order = Order::new(Layout::new([1; 1000]), Shuffle::Window { shards: 1 }, 5);
    for share in [0.25_f64, 0.5, 0.75] {
        let belady = hit_rate(&order, share, Policy::Belady);
        let lru = hit_rate(&order, share, Policy::Lru);
        let theory = share + (1.0 - share) * (1.0 - share).ln();
        println!("c = {share}: belady {belady:.4} of {share}, lru {lru:.4} of {theory:.4}");
        assert!((belady - share).abs() < 0.005, "belady hits {belady} at {share}");
        assert!((lru - theory).abs() < 0.01, "lru hits {lru} at {share}, theory says {theory}");
    }
}

#[test]
fn loads_are_those_of_theory_with_a_window() {
    let order = Order::new(Layout::new([64; 256]), Shuffle::Window { shards: 8 }, 5);
    let belady = 1.0 - hit_rate(&order, 0.5, Policy::Belady);
    let lru = 1.0 - hit_rate(&order, 0.5, Policy::Lru);
    println!("window 8, c = 0.5: belady loads {belady:.4}, lru {lru:.4} of the shards an epoch");
    assert!((belady - 0.5).abs() < 0.02, "{belady}");
    assert!((lru - 0.865).abs() < 0.02, "{lru}");
}

#[test]
fn a_full_shuffle_finds_the_share_that_is_cached() {
    let order = Order::new(Layout::new([100; 100]), Shuffle::Full, 5);
    let reads = loads(&order, 6, 5000, Policy::Belady);
    let mean = reads[1..].iter().sum::<u64>() as f64 / 5.0;
    assert!((mean / 5000.0 - 1.0).abs() < 0.01, "{reads:?}");
}

#[test]
fn a_cache_for_everything_reads_everything_once() {
    let order = Order::new(Layout::new([10; 10]), Shuffle::Window { shards: 3 }, 1);
    for policy in [Policy::Belady, Policy::Lru] {
        assert_eq!(loads(&order, 3, 10, policy), [10, 0, 0]);
    }
}

#[test]
fn no_cache_at_all_reads_every_use() {
    let order = Order::new(Layout::new([3; 4]), Shuffle::Sequential, 1);
    let reads = simulate(&order, 2, Bytes::ZERO, Policy::Belady, |_| Bytes(7));
    // Each sample by itself, at a third of 7 bytes rounded down.
    assert_eq!(reads, [Reads { loads: 12, bytes: Bytes(24) }; 2]);
}

#[test]
fn a_run_that_goes_on_in_the_middle_is_served_too() {
    let order = Order::new(Layout::new([10; 20]), Shuffle::Window { shards: 2 }, 1);
    let mut cache = Cache::new(&order, Policy::Belady, Bytes(100));
    let mut loads = 0;
    for (at, sample) in order.samples_from(Cursor { epoch: 7, position: 55 }).take(345) {
        loads += u32::from(cache.need(Unit(u64::from(sample.shard)), Bytes(10), at) != Decision::Hit);
    }
    assert!((20..=32).contains(&loads), "{loads} loads in 1.7 epochs with half of the shards cached");
}

#[test]
fn the_curve_falls_to_nothing_where_all_fits() {
    for shuffle in [Shuffle::Sequential, Shuffle::Window { shards: 4 }, Shuffle::Full] {
        let order = Order::new(Layout::new([1000; 100]), shuffle, 5);
        let capacities: Vec<_> = (1..=10).map(|tenth| Bytes(tenth * 10_000_000)).collect();
        let points = curve(&order, &[Bytes(1_000_000); 100], &capacities, Policy::Belady);
        for (tenth, point) in (1_u64..).zip(&points) {
            let bound = 100_000_000 - tenth * 10_000_000;
            let read = point.bytes_per_epoch.get();
            assert!(
                (bound - 1_000_000.min(bound)..=bound + 1_000_000).contains(&read),
                "{shuffle:?} at {tenth} tenths: {read}, bound {bound}"
            );
        }
    }
}
