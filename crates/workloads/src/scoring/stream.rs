//! Items by their place in an order, from a feed that runs ahead.
//!
//! The loop asks for the same place again where memory ran out or a micro-batch is tried out, and goes back where it is
//! resumed. What was given out last is kept for the first; for the second the feed starts anew.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use lowtide_core::Bytes;
use lowtide_data::feed::{Feed, FeedError, FeedOptions, FeedStats, Store};
use lowtide_data::order::{Cursor, Order, SampleId};
use lowtide_data::policy::{Cache, Decision, Policy, Units};
use lowtide_train::Fetched;

use super::item::Item;

/// Items by their place, whatever they are read from.
pub(crate) trait Places {
    /// The items at `first .. first + count`: fewer where some were left out because they cannot be read.
    fn take(&mut self, first: u64, count: u32) -> Result<Vec<Arc<Item>>, String>;

    /// What was asked of the cache so far.
    fn figures(&self) -> StreamFigures;
}

/// What a stream has done so far.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct StreamFigures {
    pub(crate) fetched: Fetched,
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
pub(crate) type Decode<T> = Box<dyn Fn(&T, SampleId) -> Result<Arc<Item>, String>>;

/// A store's items in an order.
pub(crate) struct Stream<S: Store> {
    store: Arc<S>,
    order: Order,
    options: FeedOptions,
    counting: Counting,
    decode: Decode<S::Sample>,
    running: Option<Running<S>>,
    /// What was given out last, by place; `None` is an item that cannot be read.
    kept: VecDeque<(u64, Option<Arc<Item>>)>,
    /// Of feeds that have ended.
    before: StreamFigures,
}

struct Running<S: Store> {
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
        let before = StreamFigures::default();
        Stream { store, order, options, counting, decode, running: None, kept: VecDeque::new(), before }
    }

    fn len(&self) -> u64 {
        self.order.layout().samples()
    }

    fn cursor(&self, place: u64) -> Cursor {
        Cursor { epoch: place / self.len(), position: place % self.len() }
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
        let is_there = self.running.as_ref().is_some_and(|running| self.place(running.next) == first);
        if is_there { Ok(()) } else { self.start(self.cursor(first)) }
    }

    fn start(&mut self, from: Cursor) -> Result<(), FeedError> {
        self.before = self.figures();
        self.running = None;
        let end = match self.counting {
            Counting::Through { end } => Some(self.cursor(end)).filter(|end| *end > from),
            Counting::Again => None,
        };
        let options = FeedOptions { end, ..self.options };
        let feed = Feed::start(Arc::clone(&self.store), &self.order, from, options)?;
        self.running = Some(Running { feed, from, next: from });
        Ok(())
    }

    /// Puts the next item behind those that are kept, and those before it that were left out.
    fn pull(&mut self) -> Result<(), String> {
        let len = self.len();
        let Some(running) = &mut self.running else { return Err("the feed has not begun".to_owned()) };
        let expected = running.next;
        let (at, item) = match running.feed.take().map_err(|error| error.to_string())? {
            Some(fed) => (fed.at, Some((self.decode)(&fed, fed.sample)?)),
            None => return Err("the data came to an end".to_owned()),
        };
        running.next = following(at, len);
        let mut left_out = expected;
        while left_out != at {
            self.kept.push_back((self.place(left_out), None));
            left_out = following(left_out, len);
        }
        self.kept.push_back((self.place(at), item));
        Ok(())
    }

    /// What the best policy would have read between two places, beginning with an empty cache.
    fn optimum(&self, from: Cursor, to: Cursor, capacity: Bytes) -> Bytes {
        let units = Units::of(self.order.shuffle());
        let mut cache = Cache::new(&self.order, Policy::Belady, capacity);
        let mut read = Bytes::ZERO;
        for (at, sample) in self.order.samples_from(from).take_while(|(at, _)| *at < to) {
            let (whole, alone) = (self.store.shard_bytes(sample.shard), self.store.sample_bytes(sample));
            let bytes = if units == Units::Shards { whole } else { alone };
            read = match cache.need_part(units.unit_of(self.order.layout(), sample), bytes, at) {
                Decision::Hit => read,
                Decision::Load { keep: true, .. } => read.saturating_add(bytes),
                Decision::Load { keep: false, .. } => read.saturating_add(alone),
            };
        }
        read
    }
}

impl<S: Store> Places for Stream<S> {
    fn take(&mut self, first: u64, count: u32) -> Result<Vec<Arc<Item>>, String> {
        self.go_to(first).map_err(|error| error.to_string())?;
        while self.kept.len() < count as usize {
            self.pull()?;
        }
        Ok(self.kept.iter().take(count as usize).filter_map(|(_, item)| item.clone()).collect())
    }

    fn figures(&self) -> StreamFigures {
        let Some(Running { feed, from, next }) = &self.running else { return self.before };
        let FeedStats { hits, loads, bytes_read, skipped, waited, .. } = feed.stats();
        let capacity = feed.capacity();
        StreamFigures {
            fetched: self.before.fetched.and(Fetched::new(hits, loads, bytes_read.get())),
            optimum: self.before.optimum.saturating_add(self.optimum(*from, *next, capacity)),
            skipped: self.before.skipped + skipped,
            waited: self.before.waited + waited,
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
