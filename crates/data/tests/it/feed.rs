//! The feed against its promises: the order, the budget, the plan, and what goes wrong on the way.

use std::io;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use lowtide_core::Bytes;
use lowtide_data::DataError;
use lowtide_data::feed::{Feed, FeedError, FeedOptions, FeedStats, OnDamage, Store};
use lowtide_data::order::{Cursor, Layout, Order, SampleId, Share, Shuffle, Tail};
use lowtide_data::policy::{Policy, Units};
use lowtide_data::simulation::simulate;
use lowtide_tensorfile::{Place, TensorFileError};
use proptest::prelude::*;

/// Shards of samples of one size that say who they are, and count what is held of them.
struct Fake {
    layout: Layout,
    sample_bytes: u64,
    /// What reading takes for the moment.
    moment: u64,
    /// Into how many parts every shard is cut.
    parts: u64,
    /// A shard that cannot be read, and one whose reading panics.
    broken: Option<u32>,
    panics: Option<u32>,
    delay: Duration,
    reads: AtomicU64,
    held: Arc<AtomicI64>,
    most: AtomicI64,
}

/// A sample that knows itself.
struct Known {
    id: SampleId,
    bytes: i64,
    held: Arc<AtomicI64>,
}

impl Drop for Known {
    fn drop(&mut self) {
        self.held.fetch_sub(self.bytes, Ordering::SeqCst);
    }
}

impl Fake {
    fn new(shards: &[u64], sample_bytes: u64) -> Fake {
        Fake {
            layout: Layout::new(shards.iter().copied()),
            sample_bytes,
            moment: 0,
            parts: 1,
            broken: None,
            panics: None,
            delay: Duration::ZERO,
            reads: AtomicU64::new(0),
            held: Arc::default(),
            most: AtomicI64::new(0),
        }
    }

    fn sample(&self, shard: u32, index: u64) -> Known {
        self.hold(SampleId { shard, index }, self.sample_bytes)
    }

    fn hold(&self, id: SampleId, bytes: u64) -> Known {
        let bytes = bytes as i64;
        let now = self.held.fetch_add(bytes, Ordering::SeqCst) + bytes;
        self.most.fetch_max(now, Ordering::SeqCst);
        Known { id, bytes, held: Arc::clone(&self.held) }
    }

    fn fails(&self, shard: u32) -> Result<(), DataError> {
        self.reads.fetch_add(1, Ordering::SeqCst);
        std::thread::sleep(self.delay);
        assert!(self.panics != Some(shard), "on purpose");
        if self.broken == Some(shard) {
            let source = io::Error::new(io::ErrorKind::NotFound, "deleted");
            return Err(
                TensorFileError::Io { file: format!("shard-{shard}").into(), place: Place::Whole, source }.into()
            );
        }
        Ok(())
    }
}

impl Store for Fake {
    type Sample = Known;

    fn layout(&self) -> &Layout {
        &self.layout
    }

    fn shard_bytes(&self, shard: u32) -> Bytes {
        Bytes(self.layout.samples_of(shard) * self.sample_bytes)
    }

    fn sample_bytes(&self, _sample: SampleId) -> Bytes {
        Bytes(self.sample_bytes)
    }

    fn parts(&self, _shard: u32) -> u64 {
        self.parts
    }

    fn shard_cost(&self, shard: u32) -> Bytes {
        self.shard_bytes(shard).saturating_add(Bytes(self.moment))
    }

    fn samples_cost(&self, _shard: u32) -> Bytes {
        Bytes(self.moment)
    }

    fn read_shard(&self, shard: u32) -> Result<Vec<Known>, DataError> {
        self.fails(shard)?;
        let _moment = self.hold(SampleId { shard, index: 0 }, self.moment);
        Ok((0..self.layout.samples_of(shard)).map(|index| self.sample(shard, index)).collect())
    }

    fn read_samples(&self, shard: u32, places: &[u64]) -> Result<Vec<Known>, DataError> {
        assert!(places.is_sorted());
        self.fails(shard)?;
        let _moment = self.hold(SampleId { shard, index: 0 }, self.moment);
        Ok(places.iter().map(|index| self.sample(shard, *index)).collect())
    }
}

fn options(budget: u64, policy: Policy, threads: usize, epochs: u64) -> FeedOptions {
    let end = Some(Cursor { epoch: epochs, position: 0 });
    FeedOptions { policy, threads: NonZeroUsize::new(threads).unwrap(), end, ..FeedOptions::new(Bytes(budget)) }
}

/// Takes every sample, checks that it is the one it should be, and that no more than the budget is held.
fn take_all(fake: Fake, order: &Order, from: Cursor, options: FeedOptions) -> (Vec<(Cursor, SampleId)>, FeedStats) {
    let fake = Arc::new(fake);
    let mut taken = Vec::new();
    let mut feed = Feed::start(Arc::clone(&fake), order, from, options).unwrap();
    while let Some(fed) = feed.take().unwrap() {
        assert_eq!(fed.id, fed.sample);
        taken.push((fed.at, fed.sample));
    }
    let stats = feed.stats();
    drop(feed);
    assert_eq!(fake.held.load(Ordering::SeqCst), 0, "everything is given back");
    let most = fake.most.load(Ordering::SeqCst) as u64;
    assert!(most <= options.budget.get(), "{most} were held, and the budget is {}", options.budget);
    assert!(stats.peak <= options.budget);
    (taken, stats)
}

fn expected(order: &Order, from: Cursor, epochs: u64) -> Vec<(Cursor, SampleId)> {
    order.samples_from(from).take_while(|(at, _)| at.epoch < epochs).collect()
}

fn shuffles() -> impl Strategy<Value = Shuffle> {
    prop_oneof![
        Just(Shuffle::Sequential),
        (1_u32..6).prop_map(|shards| Shuffle::Window { shards }),
        Just(Shuffle::Full)
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    /// Any layout, budget, policy and number of threads: the order is the order, and it never hangs.
    #[test]
    fn the_order_is_kept_under_any_budget(
        shards in prop::collection::vec(0_u64..12, 1..12),
        shuffle in shuffles(),
        lru in any::<bool>(),
        samples_that_fit in 1_u64..60,
        threads in 1_usize..5,
        skip in 0_u64..20,
        moment in 0_u64..40,
        parts in 1_u64..6,
    ) {
        let order = Order::new(Layout::new(shards.iter().copied()), shuffle, 7);
        let from = Cursor { epoch: 0, position: skip.min(order.layout().samples()) };
        let policy = if lru { Policy::Lru } else { Policy::Belady };
        let fake = Fake { moment, parts, ..Fake::new(&shards, 10) };
        let (taken, _) = take_all(fake, &order, from, options(10 * samples_that_fit + moment, policy, threads, 3));
        prop_assert_eq!(taken, expected(&order, from, 3));
    }

    /// Any number of ranks: together they take the order, each under its own budget, wherever they begin.
    #[test]
    fn ranks_divide_the_order(
        shards in prop::collection::vec(0_u64..12, 1..12),
        shuffle in shuffles(),
        samples_that_fit in 1_u64..60,
        ranks in 1_u64..5,
        batch in 1_u64..5,
        steps in 0_u64..4,
    ) {
        let order = Order::new(Layout::new(shards.iter().copied()), shuffle, 7);
        let samples = order.layout().samples();
        let from = Cursor { epoch: 0, position: (steps * ranks * batch).min(samples) };
        let mut all = Vec::new();
        for rank in 0..ranks {
            let share = Share::new(rank, ranks, batch, Tail::Keep);
            let options = FeedOptions { share, ..options(10 * samples_that_fit, Policy::Belady, 2, 3) };
            all.extend(take_all(Fake::new(&shards, 10), &order, from, options).0);
        }
        all.sort_unstable();
        // Fewer samples than ranks make no step.
        let is_left = |at: Cursor| if at.epoch == 0 { samples - from.position >= ranks } else { samples >= ranks };
        let expect: Vec<_> = expected(&order, from, 3).into_iter().filter(|(at, _)| is_left(*at)).collect();
        prop_assert_eq!(all, expect);
    }
}

#[test]
fn what_is_read_is_what_the_simulation_says_for_any_number_of_threads() {
    let shards = [16; 24];
    for shuffle in [Shuffle::Sequential, Shuffle::Window { shards: 4 }, Shuffle::Full] {
        let order = Order::new(Layout::new(shards), shuffle, 3);
        for policy in [Policy::Belady, Policy::Lru] {
            // Twelve shards are kept, one sample passes through, and a full shuffle reads ahead with a part in 256.
            let (kept, passing) = (12 * 16 * 10, 10);
            let budget = (kept + passing) * 256 / 255 + 1;
            let bytes = if Units::of(shuffle) == Units::Shards { 160 } else { 10 };
            let expect: u64 =
                simulate(&order, 4, Bytes(kept), policy, |_| Bytes(bytes)).iter().map(|epoch| epoch.loads).sum();
            for threads in [1, 2, 4] {
                let options = options(budget, policy, threads, 4);
                let (_, stats) = take_all(Fake::new(&shards, 10), &order, Cursor::default(), options);
                assert_eq!(stats.loads, expect, "{shuffle:?}, {policy:?}, {threads} threads");
                assert_eq!(stats.hits, 4 * 24 * 16 - expect);
                assert_eq!(stats.bytes_read, Bytes(expect * bytes));
            }
        }
    }
}

/// Loads by Belady's rule over a list of uses, of which the first `counted` count: out goes what is needed latest.
fn furthest_next_use(uses: &[u64], counted: usize, slots: usize) -> u64 {
    let next = |unit: u64, now: usize| uses[now + 1..].iter().position(|other| *other == unit);
    let (mut kept, mut loads) = (Vec::new(), 0);
    for (now, unit) in uses[..counted].iter().enumerate() {
        if kept.contains(unit) {
            continue;
        }
        loads += 1;
        kept.push(*unit);
        if kept.len() > slots {
            let latest = |place: &usize| next(kept[*place], now).unwrap_or(usize::MAX);
            let place = (0..kept.len()).max_by_key(latest).unwrap();
            kept.remove(place);
        }
    }
    loads
}

#[test]
fn parts_of_shards_are_kept_where_no_whole_shard_has_room() {
    let shards = [16; 24];
    for (shuffle, seed) in
        [(Shuffle::Sequential, 1), (Shuffle::Window { shards: 4 }, 1), (Shuffle::Window { shards: 4 }, 2)]
    {
        let order = Order::new(Layout::new(shards), shuffle, seed);
        let samples: Vec<SampleId> = order.samples_from(Cursor::default()).take(5 * 24 * 16).map(|it| it.1).collect();
        // Twelve shards and three quarters.
        let (kept, passing) = (51 * 40, 10);
        let loads = |parts: u64| {
            let fake = Fake { parts, ..Fake::new(&shards, 10) };
            let options = options(kept + passing, Policy::Belady, 2, 4);
            take_all(fake, &order, Cursor::default(), options).1
        };
        let uses = |parts: u64| -> Vec<u64> {
            samples.iter().map(|sample| u64::from(sample.shard) * parts + sample.index * parts / 16).collect()
        };
        let (whole, cut) = (loads(1), loads(4));
        assert_eq!(whole.loads, furthest_next_use(&uses(1), 4 * 24 * 16, 12), "{shuffle:?}");
        assert_eq!(cut.loads, furthest_next_use(&uses(4), 4 * 24 * 16, 51), "{shuffle:?}");
        assert_eq!(cut.bytes_read, Bytes(cut.loads * 40));
        assert!(cut.bytes_read < whole.bytes_read, "{shuffle:?}: {} of {}", cut.bytes_read, whole.bytes_read);
    }
}

#[test]
fn shards_are_read_ahead_while_the_consumer_works() {
    let shards = [4; 16];
    let order = Order::new(Layout::new(shards), Shuffle::Sequential, 1);
    let fake = Arc::new(Fake { delay: Duration::from_millis(2), ..Fake::new(&shards, 10) });
    let mut feed =
        Feed::start(Arc::clone(&fake), &order, Cursor::default(), options(210, Policy::Belady, 2, 1)).unwrap();
    feed.take().unwrap().unwrap();
    std::thread::sleep(Duration::from_millis(60));
    // Five shards of 40 fit beside the sample that passes through.
    assert_eq!(fake.reads.load(Ordering::SeqCst), 5, "as many as fit, without being asked");
    let before = feed.stats().waited;
    (0..12).for_each(|_| _ = feed.take().unwrap().unwrap());
    assert_eq!(feed.stats().waited, before, "what was read ahead is not waited for");
}

#[test]
fn a_shard_larger_than_the_budget_is_served_sample_by_sample() {
    let shards = [3, 100, 3];
    let order = Order::new(Layout::new(shards), Shuffle::Sequential, 1);
    let (taken, stats) =
        take_all(Fake::new(&shards, 10), &order, Cursor::default(), options(100, Policy::Belady, 2, 2));
    assert_eq!(taken, expected(&order, Cursor::default(), 2));
    assert!(stats.loads >= 200, "{stats:?}");
}

#[test]
fn a_budget_below_one_sample_names_the_least_that_works() {
    let order = Order::new(Layout::new([2]), Shuffle::Full, 1);
    let Err(error) = Feed::start(Arc::new(Fake::new(&[2], 10)), &order, Cursor::default(), FeedOptions::new(Bytes(9)))
    else {
        panic!("nine bytes do not hold ten")
    };
    let words =
        "sample 1 of shard 0 takes 10 bytes while it is read, and the data may hold 9 bytes: give it at least 10 bytes";
    assert_eq!(error.to_string(), words);
}

#[test]
fn a_shard_that_cannot_be_read_stops_or_is_left_out() {
    let shards = [4; 6];
    let order = Order::new(Layout::new(shards), Shuffle::Window { shards: 2 }, 5);
    let broken = || Arc::new(Fake { broken: Some(3), ..Fake::new(&shards, 10) });
    let stop = options(1000, Policy::Belady, 2, 1);
    let mut feed = Feed::start(broken(), &order, Cursor::default(), stop).unwrap();
    let error = loop {
        match feed.take() {
            Ok(Some(fed)) => assert_ne!(fed.sample.shard, 3),
            Ok(None) => panic!("it is there"),
            Err(error) => break error,
        }
    };
    assert_eq!(error.to_string(), "shard-3: the file: deleted");

    let skip = FeedOptions { on_damage: OnDamage::Skip, ..stop };
    let mut feed = Feed::start(broken(), &order, Cursor::default(), skip).unwrap();
    let mut taken = 0;
    while let Some(fed) = feed.take().unwrap() {
        assert_ne!(fed.sample.shard, 3);
        taken += 1;
    }
    assert_eq!((taken, feed.stats().skipped), (20, 4));
}

#[test]
fn a_panic_in_a_thread_is_an_error_here() {
    let order = Order::new(Layout::new([4; 6]), Shuffle::Sequential, 5);
    let fake = Arc::new(Fake { panics: Some(2), ..Fake::new(&[4; 6], 10) });
    let mut feed = Feed::start(fake, &order, Cursor::default(), options(60, Policy::Belady, 1, 1)).unwrap();
    (0..8).for_each(|_| _ = feed.take().unwrap().unwrap());
    assert!(matches!(feed.take(), Err(FeedError::ThreadLost)));
    (0..3).for_each(|_| assert!(feed.take().is_err()));
    assert_eq!(feed.take().unwrap().unwrap().sample, SampleId { shard: 3, index: 0 }, "the thread reads on");
}

#[test]
fn a_feed_may_be_dropped_at_any_moment() {
    let shards = [8; 32];
    let order = Order::new(Layout::new(shards), Shuffle::Window { shards: 4 }, 1);
    for taken in [0, 1, 7, 100] {
        let fake = Arc::new(Fake { delay: Duration::from_micros(300), ..Fake::new(&shards, 10) });
        let mut feed =
            Feed::start(Arc::clone(&fake), &order, Cursor::default(), options(330, Policy::Belady, 3, 2)).unwrap();
        (0..taken).for_each(|_| _ = feed.take().unwrap().unwrap());
        drop(feed);
        assert_eq!(fake.held.load(Ordering::SeqCst), 0);
    }
}
