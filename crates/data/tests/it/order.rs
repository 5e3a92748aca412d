//! An order is a bijection of the samples, the same from wherever it is entered, and keeps windows together.

use std::collections::HashSet;

use lowtide_data::order::{Cursor, EpochOrder, Layout, Order, SampleId, Shuffle};
use proptest::prelude::*;

fn shuffles() -> impl Strategy<Value = Shuffle> {
    prop_oneof![
        Just(Shuffle::Sequential),
        Just(Shuffle::Full),
        (0_u32..12).prop_map(|shards| Shuffle::Window { shards }),
        Just(Shuffle::Window { shards: u32::MAX }),
    ]
}

/// Counts with many empty and tiny shards among them.
fn layouts() -> impl Strategy<Value = Vec<u64>> {
    prop::collection::vec(prop_oneof![0_u64..3, 1_u64..40], 0..24)
}

proptest! {
    #[test]
    fn every_sample_comes_once_and_is_found_again(
        counts in layouts(), shuffle in shuffles(), seed in any::<u64>(), epoch in 0_u64..5,
    ) {
        let order = Order::new(Layout::new(counts.clone()), shuffle, seed);
        let epoch_order = order.epoch(epoch);
        let samples: Vec<_> = epoch_order.samples_from(0).collect();
        prop_assert_eq!(samples.len() as u64, counts.iter().sum::<u64>());
        prop_assert_eq!(samples.iter().collect::<HashSet<_>>().len(), samples.len());
        for (position, sample) in samples.iter().enumerate() {
            prop_assert!(sample.index < counts[sample.shard as usize]);
            prop_assert_eq!(epoch_order.position_of(*sample), position as u64);
            prop_assert_eq!(epoch_order.sample_at(position as u64), *sample);
        }
    }

    #[test]
    fn a_run_goes_on_from_any_place(
        counts in layouts(), shuffle in shuffles(), seed in any::<u64>(), stop in 0_usize..300,
    ) {
        let order = Order::new(Layout::new(counts), shuffle, seed);
        let whole: Vec<_> = order.samples_from(Cursor::default()).take(stop + 100).collect();
        let Some((cursor, _)) = whole.get(stop) else {
            prop_assert!(whole.is_empty());
            return Ok(());
        };
        let again: Vec<_> = order.samples_from(*cursor).take(100).collect();
        prop_assert_eq!(&again[..], &whole[stop..]);
        prop_assert!(whole.windows(2).all(|pair| pair[0].0 < pair[1].0));
    }

    #[test]
    fn a_window_uses_up_its_shards_before_the_next_begins(
        counts in layouts(), width in 1_u32..8, seed in any::<u64>(), epoch in 0_u64..3,
    ) {
        let order = Order::new(Layout::new(counts.clone()), Shuffle::Window { shards: width }, seed).epoch(epoch);
        let mut left = counts.clone();
        let mut open = HashSet::new();
        for sample in order.samples_from(0) {
            open.insert(sample.shard);
            left[sample.shard as usize] -= 1;
            open.retain(|shard| left[*shard as usize] > 0);
            prop_assert!(open.len() <= width as usize);
        }
    }

    #[test]
    fn the_next_use_of_a_shard_is_found(
        counts in layouts(), shuffle in shuffles(), seed in any::<u64>(), from in 0_u64..300,
    ) {
        let order = Order::new(Layout::new(counts.clone()), shuffle, seed).epoch(1);
        let shards: Vec<_> = order.samples_from(0).map(|sample| sample.shard).collect();
        for shard in 0..counts.len() as u32 {
            let expected = (from..order.len()).find(|position| shards[*position as usize] == shard);
            prop_assert_eq!(order.next_use_of_shard(shard, from), expected);
        }
    }
}

#[test]
fn a_cursor_at_the_end_of_an_epoch_is_the_start_of_the_next() {
    let order = Order::new(Layout::new([3, 4]), Shuffle::Full, 1);
    let (cursor, sample) = order.samples_from(Cursor { epoch: 2, position: 7 }).next().unwrap();
    assert_eq!(cursor, Cursor { epoch: 3, position: 0 });
    assert_eq!(sample, order.epoch(3).sample_at(0));
}

#[test]
fn epochs_and_seeds_differ_unless_nothing_is_shuffled() {
    let first = |shuffle, seed, epoch| {
        let order = Order::new(Layout::new([100; 20]), shuffle, seed).epoch(epoch);
        order.samples_from(0).collect::<Vec<SampleId>>()
    };
    for shuffle in [Shuffle::Full, Shuffle::Window { shards: 1 }, Shuffle::Window { shards: 4 }] {
        assert_ne!(first(shuffle, 1, 0), first(shuffle, 1, 1));
        assert_ne!(first(shuffle, 1, 0), first(shuffle, 2, 0));
        assert_eq!(first(shuffle, 1, 3), first(shuffle, 1, 3));
    }
    assert_eq!(first(Shuffle::Sequential, 1, 0), first(Shuffle::Sequential, 2, 1));
}

/// The numbers come from a second implementation, written in another language.
#[test]
fn the_order_of_a_run_is_the_same_everywhere_and_for_ever() {
    let first = |shuffle| {
        let order = Order::new(Layout::new([5, 3, 0, 7, 2]), shuffle, 42).epoch(1);
        order.samples_from(0).take(9).map(|sample| (sample.shard, sample.index)).collect::<Vec<_>>()
    };
    assert_eq!(first(Shuffle::Sequential)[..6], [(0, 0), (0, 1), (0, 2), (0, 3), (0, 4), (1, 0)]);
    assert_eq!(first(Shuffle::Window { shards: 2 })[6..], [(3, 6), (0, 0), (0, 4)]);
    assert_eq!(first(Shuffle::Full)[..6], [(0, 4), (0, 1), (3, 0), (3, 1), (1, 1), (1, 2)]);
}

#[test]
fn a_trillion_samples_take_no_memory() {
    let order = Order::new(Layout::new([1 << 30; 1024]), Shuffle::Full, 9).epoch(4);
    for position in [0, 1, 1 << 39, (1 << 40) - 1] {
        assert_eq!(order.position_of(order.sample_at(position)), position);
    }
}

/// How far an epoch moves samples, as shares of its length; measured, for any order.
///
/// | order | displacement | separation |
/// | --- | --- | --- |
/// | as the samples lie | 0 | about 0 |
/// | shards shuffled, samples not | 1/3 | about 0 |
/// | windows of a tenth of the shards | 1/3 | 1/30 |
/// | all samples shuffled together | 1/3 | 1/3 |
struct Mixing {
    /// The mean distance between where a sample lies in the data set and where it comes in the epoch.
    displacement: f64,
    /// The mean distance in the epoch between two samples that lie side by side in a shard: how far samples that were
    /// stored together, and may well be alike, are pulled apart.
    separation: f64,
}

impl Mixing {
    /// Measures an epoch at up to `probes` samples, spread evenly over the data set.
    fn measure(epoch: &EpochOrder, probes: u64) -> Self {
        let (samples, probes) = (epoch.len(), probes.min(epoch.len()));
        let (mut displacement, mut separation, mut pairs) = (0.0, 0.0, 0_u64);
        for probe in 0..probes {
            let number = (u128::from(probe) * u128::from(samples) / u128::from(probes)) as u64;
            let sample = epoch.layout().sample(number);
            let position = epoch.position_of(sample);
            displacement += position.abs_diff(number) as f64;
            if sample.index + 1 < epoch.layout().samples_of(sample.shard) {
                let neighbour = SampleId { index: sample.index + 1, ..sample };
                separation += epoch.position_of(neighbour).abs_diff(position) as f64;
                pairs += 1;
            }
        }
        let share = |sum: f64, count: u64| if count == 0 { 0.0 } else { sum / count as f64 / samples as f64 };
        Self { displacement: share(displacement, probes), separation: share(separation, pairs) }
    }
}

#[test]
fn a_wider_window_mixes_better_and_the_widest_as_well_as_full() {
    let mixing = |shuffle| {
        let order = Order::new(Layout::new([200; 100]), shuffle, 3);
        let epochs: Vec<_> = (0..20).map(|epoch| Mixing::measure(&order.epoch(epoch), 1000)).collect();
        let mean = |figure: fn(&Mixing) -> f64| epochs.iter().map(figure).sum::<f64>() / 20.0;
        (mean(|it| it.displacement), mean(|it| it.separation))
    };
    let near = |one: f64, other: f64| (one - other).abs() < 0.03 * other.abs().max(0.1);
    let (sequential, full) = (mixing(Shuffle::Sequential), mixing(Shuffle::Full));
    let (one, tenth) = (mixing(Shuffle::Window { shards: 1 }), mixing(Shuffle::Window { shards: 10 }));
    let all = mixing(Shuffle::Window { shards: 100 });
    assert_eq!(sequential.0, 0.0);
    assert!(sequential.1 < 1e-4);
    assert!(near(full.0, 1.0 / 3.0) && near(full.1, 1.0 / 3.0), "{full:?}");
    assert!(near(all.0, full.0) && near(all.1, full.1), "{all:?} against {full:?}");
    assert!(near(one.1, 1.0 / 300.0) && near(tenth.1, 1.0 / 30.0), "{one:?}, {tenth:?}");
}
