//! Items by their place in an order, from a feed that runs ahead.
//!
//! The loop asks for the same place again where memory ran out or a micro-batch is tried out, and goes back where it is
//! resumed. What was given out last is kept for the first; for the second the feed starts anew.
//!
//! The batch behind the one that is computed may be looked at ahead, on another thread; what was given out last stays for a batch that
//! is tried again. Batches are pure functions of a position.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use lowtide_core::Bytes;
use lowtide_data::feed::{Feed, FeedError, FeedOptions, FeedStats, Store};
use lowtide_data::order::{Cursor, Order, SampleId, Stride};
use lowtide_data::policy::{Cache, Decision, Policy, Units};
use lowtide_generators::traces::Item;
use lowtide_train::CacheReads;

/// Samples whose reading is simulated to tell the optimum.
const MOST_SIMULATED: u64 = 500_000;

/// Items by their place, whatever they are read from.
pub(crate) trait Places: Send {
    /// The items at `first .. first + count`: fewer where some were left out because they cannot be read.
    fn take(&mut self, first: u64, count: u32) -> Result<Vec<Arc<Item>>, String>;

    /// The same items ahead of their time: what was taken last can be taken again without going back. Time spent here is nobody's
    /// waiting.
    fn look_ahead(&mut self, first: u64, count: u32) -> Result<Vec<Arc<Item>>, String>;

    /// Only such places will be asked for, counted from the first one that is.
    fn expect(&mut self, stride: Stride);

    /// What was asked of the cache so far.
    fn figures(&self) -> StreamFigures;
}

/// What a stream has done so far.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct StreamFigures {
    pub(crate) reads: CacheReads,
    pub(crate) optimum: Bytes,
    pub(crate) skipped: u64,
    pub(crate) waited: Duration,
    pub(crate) capacity: Bytes,
}

/// How places are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Counting {
    /// On and on through all epochs, up to an end.
    Through { end: u64 },
    /// From 0 in each epoch: the epoch itself means nothing.
    Again,
}

/// What makes an item of a sample.
pub(crate) type Decode<T> = Box<dyn Fn(&T, SampleId) -> Result<Arc<Item>, String> + Send>;

/// A store's items in an order.
pub(crate) struct Stream<S: Store> {
    store: Arc<S>,
    order: Order,
    options: FeedOptions,
    counting: Counting,
    decode: Decode<S::Sample>,
    open: Option<OpenFeed<S>>,
    /// What was given out last, by place; `None` is an item that cannot be read.
    kept: VecDeque<(u64, Option<Arc<Item>>)>,
    /// Of feeds that have ended.
    before: StreamFigures,
    /// What the feed that is open waited ahead of time.
    waited_ahead: Duration,
}

struct OpenFeed<S: Store> {
    feed: Feed<S>,
    from: Cursor,
    /// What the feed gives next, unless that cannot be read.
    next: Cursor,
}

impl<S: Store> Stream<S> {
    pub(crate) fn new(
        store: Arc<S>,
        order: Order,
        options: FeedOptions,
        counting: Counting,
        decode: Decode<S::Sample>,
    ) -> Stream<S> {
        let (before, waited_ahead) = (StreamFigures::default(), Duration::ZERO);
        Stream { store, order, options, counting, decode, open: None, kept: VecDeque::new(), before, waited_ahead }
    }

    fn len(&self) -> u64 {
        self.order.layout().samples()
    }

    fn cursor(&self, place: u64) -> Cursor {
        Cursor { epoch: place / self.len(), position: place % self.len() }
    }

    /// The place behind a place that a feed from `from` gives.
    fn following(&self, from: Cursor, at: Cursor) -> Cursor {
        let Some(stride) = self.options.stride else { return following(at, self.len()) };
        let way = |at: Cursor| at.epoch * self.len() + at.position;
        self.cursor(way(from) + stride.after(way(at) - way(from)))
    }

    fn place(&self, at: Cursor) -> u64 {
        match self.counting {
            Counting::Through { .. } => at.epoch * self.len() + at.position,
            Counting::Again => at.position,
        }
    }

    /// Makes `first` the place of whatever is kept or comes next.
    fn go_to(&mut self, first: u64) -> Result<(), FeedError> {
        while self.kept.front().is_some_and(|(place, _)| *place < first) {
            self.kept.pop_front();
        }
        if self.kept.front().is_some_and(|(place, _)| *place == first) {
            return Ok(());
        }
        self.kept.clear();
        let is_there = self.open.as_ref().is_some_and(|open| self.place(open.next) == first);
        if is_there { Ok(()) } else { self.start(self.cursor(first)) }
    }

    fn start(&mut self, from: Cursor) -> Result<(), FeedError> {
        self.before = self.figures();
        self.waited_ahead = Duration::ZERO;
        self.open = None;
        let end = match self.counting {
            Counting::Through { end } => Some(self.cursor(end)).filter(|end| *end > from),
            Counting::Again => None,
        };
        let options = FeedOptions { end, ..self.options };
        let feed = Feed::start(Arc::clone(&self.store), &self.order, from, options)?;
        self.open = Some(OpenFeed { feed, from, next: from });
        Ok(())
    }

    /// Puts the next item behind those that are kept, and those before it that were left out.
    fn pull(&mut self) -> Result<(), String> {
        let Some(open) = &mut self.open else { return Err("the feed has not begun".to_owned()) };
        let (expected, from) = (open.next, open.from);
        let (at, item) = match open.feed.take().map_err(|error| error.to_string())? {
            Some(fed) => (fed.at, Some((self.decode)(&fed, fed.sample)?)),
            // The last ones were left out.
            None => (expected, None),
        };
        let next = self.following(from, at);
        let mut left_out = expected;
        while left_out != at {
            self.kept.push_back((self.place(left_out), None));
            left_out = self.following(from, left_out);
        }
        self.open.iter_mut().for_each(|open| open.next = next);
        self.kept.push_back((self.place(at), item));
        Ok(())
    }

    /// `count` items from a place among those that are kept.
    fn items_from(&mut self, at: usize, count: u32) -> Result<Vec<Arc<Item>>, String> {
        let mut taken = count as usize;
        while self.kept.len() < at + taken {
            self.pull()?;
        }
        // Where nothing of it can be read, the next item that can stands in: a batch is never empty.
        while self.kept.iter().skip(at).take(taken).all(|(_, item)| item.is_none())
            && (taken as u64) < 2 * self.len()
            && count > 0
        {
            taken += 1;
            if self.kept.len() < at + taken {
                self.pull()?;
            }
        }
        Ok(self.kept.iter().skip(at).take(taken).filter_map(|(_, item)| item.clone()).collect())
    }

    /// What this feed has waited for data.
    fn waited(&self) -> Duration {
        self.open.as_ref().map_or(Duration::ZERO, |open| open.feed.stats().waited)
    }

    /// What the best policy would have read between two places, beginning with an empty cache. Of a long way the beginning is
    /// simulated, and the rest taken to be like its second half.
    fn optimum(&self, from: Cursor, to: Cursor, capacity: Bytes) -> Bytes {
        let way = |at: Cursor| at.epoch * self.len() + at.position;
        let all = way(to).saturating_sub(way(from));
        let (half, read) = self.simulated(from, all.min(MOST_SIMULATED), capacity);
        let like_second_half = read.saturating_sub(half).get() as f64 / (MOST_SIMULATED / 2) as f64;
        let rest = all.saturating_sub(MOST_SIMULATED) as f64 * like_second_half;
        read.saturating_add(Bytes(rest as u64))
    }

    /// What the best policy reads of so many samples: of the first half, and of all.
    fn simulated(&self, from: Cursor, samples: u64, capacity: Bytes) -> (Bytes, Bytes) {
        let units = Units::of(self.order.shuffle());
        let mut cache = Cache::new(&self.order, Policy::Belady, capacity);
        let (mut half, mut read) = (Bytes::ZERO, Bytes::ZERO);
        for (number, (at, sample)) in (0..samples).zip(self.order.samples_from(from)) {
            if self.options.stride.is_some_and(|stride| !stride.takes(number)) {
                continue;
            }
            if number == samples / 2 {
                half = read;
            }
            let (whole, alone) = (self.store.shard_bytes(sample.shard), self.store.sample_bytes(sample));
            let bytes = if units == Units::Shards { whole } else { alone };
            read = match cache.need_part(units.unit_of(self.order.layout(), sample), bytes, at) {
                Decision::Hit => read,
                Decision::Load { keep: true, .. } => read.saturating_add(bytes),
                Decision::Load { keep: false, .. } => read.saturating_add(alone),
            };
        }
        (half, read)
    }
}

impl<S: Store> Places for Stream<S> {
    fn take(&mut self, first: u64, count: u32) -> Result<Vec<Arc<Item>>, String> {
        self.go_to(first).map_err(|error| error.to_string())?;
        self.items_from(0, count)
    }

    fn look_ahead(&mut self, first: u64, count: u32) -> Result<Vec<Arc<Item>>, String> {
        let comes_next = self.open.as_ref().is_some_and(|open| self.place(open.next) == first);
        let at = match self.kept.iter().position(|(place, _)| *place == first) {
            Some(at) => at,
            None if comes_next => self.kept.len(),
            None => return Err("it is not what comes next".to_owned()),
        };
        let waited = self.waited();
        let items = self.items_from(at, count);
        self.waited_ahead += self.waited().saturating_sub(waited);
        items
    }

    fn expect(&mut self, stride: Stride) {
        self.options.stride = Some(stride);
        self.open = None;
        self.kept.clear();
    }

    fn figures(&self) -> StreamFigures {
        let Some(OpenFeed { feed, from, next }) = &self.open else { return self.before };
        let FeedStats { hits, loads, bytes_read, skipped, waited, .. } = feed.stats();
        let capacity = feed.capacity();
        StreamFigures {
            reads: self.before.reads.and(CacheReads::new(hits, loads, bytes_read.get())),
            optimum: self.before.optimum.saturating_add(self.optimum(*from, *next, capacity)),
            skipped: self.before.skipped + skipped,
            waited: (self.before.waited + waited).saturating_sub(self.waited_ahead),
            capacity,
        }
    }
}

/// The place behind a place.
fn following(at: Cursor, len: u64) -> Cursor {
    if at.position + 1 < len {
        Cursor { position: at.position + 1, ..at }
    } else {
        Cursor { epoch: at.epoch + 1, position: 0 }
    }
}

#[cfg(test)]
mod tests {
    use lowtide_data::DataError;
    use lowtide_data::feed::OnDamage;
    use lowtide_data::order::{Layout, Shuffle};
    use lowtide_tensorfile::{Place, TensorFileError};

    use super::*;

    /// Five shards of four items, named by their numbers; some shards cannot be read.
    struct Numbers {
        layout: Layout,
        damaged: Vec<u32>,
    }

    impl Store for Numbers {
        type Sample = u64;

        fn layout(&self) -> &Layout {
            &self.layout
        }

        fn shard_bytes(&self, _shard: u32) -> Bytes {
            Bytes(4)
        }

        fn sample_bytes(&self, _sample: SampleId) -> Bytes {
            Bytes(1)
        }

        fn read_shard(&self, shard: u32) -> Result<Vec<u64>, DataError> {
            self.read_samples(shard, &[0, 1, 2, 3])
        }

        fn read_samples(&self, shard: u32, places: &[u64]) -> Result<Vec<u64>, DataError> {
            if self.damaged.contains(&shard) {
                let (file, problem) = (format!("shard-{shard}").into(), "it is damaged".to_owned());
                return Err(TensorFileError::Malformed { file, place: Place::Whole, problem }.into());
            }
            Ok(places.iter().map(|index| self.layout.number_of(SampleId { shard, index: *index })).collect())
        }
    }

    fn stream(shuffle: Shuffle, counting: Counting, damaged: Vec<u32>) -> Stream<Numbers> {
        let store = Numbers { layout: Layout::new([4; 5]), damaged };
        let order = Order::new(store.layout.clone(), shuffle, 3);
        let options = FeedOptions { on_damage: OnDamage::Skip, ..FeedOptions::new(Bytes(9)) };
        let decode = |number: &u64, _| {
            let id = number.to_string();
            let (sequence, nodes, edges) = (Vec::new(), Vec::new(), Vec::new());
            Ok(Arc::new(Item { id, sequence, steps: 0, nodes, node_count: 0, edges, score: 0.0 }))
        };
        Stream::new(Arc::new(store), order, options, counting, Box::new(decode))
    }

    fn taken(stream: &mut Stream<Numbers>, first: u64, count: u32) -> Vec<u64> {
        stream.take(first, count).unwrap().iter().map(|item| item.id.parse().unwrap()).collect()
    }

    #[test]
    fn places_are_those_of_the_order_however_they_are_asked_for() {
        let shuffle = Shuffle::Window { shards: 2 };
        let through = Counting::Through { end: 60 };
        let mut all = stream(shuffle, through, Vec::new());
        let order: Vec<u64> = (0..20).flat_map(|step| taken(&mut all, 3 * step, 3)).collect();
        let expect = all.order.samples_from(Cursor::default()).map(|(_, sample)| all.store.layout.number_of(sample));
        assert_eq!(order, expect.take(60).collect::<Vec<_>>());
        // Again, less, more, back, and far ahead.
        let mut asked = stream(shuffle, through, Vec::new());
        for (first, count) in [(0, 4), (0, 1), (0, 6), (6, 3), (6, 3), (2, 5), (41, 7), (41, 2), (43, 5), (58, 2)] {
            let range = first as usize..first as usize + count as usize;
            assert_eq!(taken(&mut asked, first, count), order[range], "{first}, {count}");
        }
    }

    #[test]
    fn looking_ahead_leaves_what_was_taken_to_be_taken_again() {
        let through = Counting::Through { end: 60 };
        let mut stream = stream(Shuffle::Window { shards: 2 }, through, vec![1]);
        let expect: Vec<Vec<u64>> = (0..6).map(|step| taken(&mut stream, 3 * step, 3)).collect();
        let ahead = |stream: &mut Stream<Numbers>, step: u64| -> Vec<u64> {
            stream.look_ahead(3 * step, 3).unwrap().iter().map(|item| item.id.parse().unwrap()).collect()
        };
        assert_eq!(taken(&mut stream, 0, 3), expect[0]);
        let started = stream.before.reads;
        for step in 0..5 {
            assert_eq!(ahead(&mut stream, step + 1), expect[step as usize + 1]);
            assert_eq!(taken(&mut stream, 3 * step, 3), expect[step as usize], "it is tried again");
            assert_eq!(ahead(&mut stream, step + 1), expect[step as usize + 1], "and the next one is there again");
            assert_eq!(taken(&mut stream, 3 * step + 3, 3), expect[step as usize + 1]);
        }
        assert_eq!(stream.before.reads, started, "no feed was started anew");
        assert!(stream.look_ahead(40, 3).is_err(), "a place far away is not gone to");
        assert_eq!(taken(&mut stream, 15, 3), expect[5]);
    }

    #[test]
    fn an_evaluation_begins_where_the_last_one_ended() {
        let mut stream = stream(Shuffle::Sequential, Counting::Again, Vec::new());
        for _ in 0..3 {
            let pass: Vec<u64> = (0..5).flat_map(|batch| taken(&mut stream, 4 * batch, 4)).collect();
            assert_eq!(pass, (0..20).collect::<Vec<_>>());
        }
        assert_eq!(stream.before.reads, CacheReads::default(), "no feed was started anew");
        assert_eq!(taken(&mut stream, 0, 2), [0, 1]);
        assert_eq!(taken(&mut stream, 0, 2), [0, 1], "one that was cut");
    }

    #[test]
    fn ranks_take_all_places_of_an_order_without_starting_anew() {
        let shuffle = Shuffle::Window { shards: 2 };
        let through = Counting::Through { end: 60 };
        let mut all = stream(shuffle, through, Vec::new());
        let order: Vec<u64> = (0..10).flat_map(|step| taken(&mut all, 6 * step, 6)).collect();
        let mut parts: Vec<Stream<Numbers>> = (0..3).map(|_| stream(shuffle, through, Vec::new())).collect();
        parts.iter_mut().for_each(|part| part.expect(Stride::new(2, 6).unwrap()));
        let mut together = Vec::new();
        for step in 0..10 {
            for (rank, part) in (0..).zip(&mut parts) {
                let first = 6 * step + 2 * rank;
                assert_eq!(taken(part, first, 1), order[first as usize..][..1], "a micro-batch that is tried out");
                together.extend(taken(part, first, 2));
            }
        }
        assert_eq!(together, order);
        assert!(parts.iter().all(|part| part.before.reads == CacheReads::default()), "no feed was started anew");
    }

    #[test]
    fn what_cannot_be_read_of_a_part_is_missing_from_its_own_place() {
        let mut stream = stream(Shuffle::Sequential, Counting::Through { end: 40 }, vec![1]);
        stream.expect(Stride::new(3, 6).unwrap());
        assert_eq!(taken(&mut stream, 3, 3), [3], "4 and 5 are of the damaged shard");
        assert_eq!(taken(&mut stream, 9, 3), [9, 10, 11]);
        assert_eq!(taken(&mut stream, 15, 3), [15, 16, 17]);
    }

    #[test]
    fn what_cannot_be_read_is_missing_from_its_own_place() {
        let mut stream = stream(Shuffle::Sequential, Counting::Through { end: 40 }, vec![1]);
        assert_eq!(taken(&mut stream, 2, 4), [2, 3], "4 and 5 are of the damaged shard");
        assert_eq!(taken(&mut stream, 6, 4), [8, 9]);
        assert_eq!(taken(&mut stream, 4, 4), [8], "nothing of it, so the next one stands in");
        assert_eq!(taken(&mut stream, 18, 4), [18, 19, 0, 1]);
        assert!(stream.figures().skipped >= 4, "{:?}", stream.figures());
        let mut cut = self::stream(Shuffle::Sequential, Counting::Through { end: 8 }, vec![1]);
        assert_eq!(taken(&mut cut, 3, 5), [3], "the last ones of all");
        let mut none = self::stream(Shuffle::Sequential, Counting::Again, vec![0, 1, 2, 3, 4]);
        assert!(none.take(0, 4).unwrap_err().contains("it is damaged"), "an error and no endless search");
    }

    #[test]
    fn with_the_best_policy_the_least_is_read() {
        let shuffle = Shuffle::Window { shards: 2 };
        let mut stream = stream(shuffle, Counting::Through { end: 100 }, Vec::new());
        (0..10).for_each(|step| drop(taken(&mut stream, 10 * step, 10)));
        let figures = stream.figures();
        assert_eq!(Bytes(figures.reads.bytes_read), figures.optimum);
        assert_eq!(figures.reads.hits + figures.reads.loads, 100);
    }
}
