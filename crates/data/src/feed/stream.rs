//! The feed itself: threads that read, and the consumer's side.

use std::ops::{Deref, Range};
use std::panic::{self, AssertUnwindSafe};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use lowtide_core::Bytes;

use super::lookahead::{Extent, Lookahead, Task, part_bytes};
use super::options::{FeedError, FeedOptions, FeedStats, OnDamage};
use super::slot::{Block, Promise};
use super::store::Store;
use crate::DataError;
use crate::budget::{Budget, Error as BudgetError, Reservation, Stop};
use crate::order::{Cursor, Order, SampleId};
use crate::policy::Units;

/// Samples that one read takes together under a full shuffle, at the most.
const TOGETHER: usize = 64;
/// The same in bytes: large samples are read one by one anyway, and the other threads want some too.
const TOGETHER_BYTES: Bytes = Bytes(512 << 10);
/// The part of the budget that is left for samples which are read ahead under a full shuffle and not kept.
const AHEAD_PART: u64 = 256;

/// Samples in order, from some place on.
pub struct Feed<S: Store> {
    state: Arc<FeedState<S>>,
    threads: Vec<JoinHandle<()>>,
    on_damage: OnDamage,
    hits: u64,
    skipped: u64,
    skipped_in_a_row: u64,
    waited: Duration,
}

/// What the consumer and the threads share.
struct FeedState<S: Store> {
    store: Arc<S>,
    budget: Budget,
    stop: Stop,
    lookahead: Mutex<Lookahead<S>>,
    /// Told when there is something to read, or nothing any more.
    changed: Condvar,
    /// Held while bytes are reserved, so that this happens in the order of the lookahead.
    turn: Mutex<()>,
    /// Reads that wait for a thread at the most.
    backlog: usize,
    loads: AtomicU64,
    bytes_read: AtomicU64,
}

/// A sample that is in memory until the next one is asked for.
pub struct FeedSample<'a, T> {
    /// Its place in the run.
    pub at: Cursor,
    /// Which one it is.
    pub sample: SampleId,
    block: Arc<Block<T>>,
    /// Whoever kept it while the feed goes on would hold memory that the feed waits for.
    _until_next: std::marker::PhantomData<&'a mut ()>,
}

impl<T> FeedSample<'_, T> {
    /// The same sample for somebody who needs it for a moment longer.
    ///
    /// Its memory stays within the budget: the feed may wait for it, so that whoever has it must not wait for the feed.
    #[must_use]
    pub fn keep(&self) -> KeptSample<T> {
        KeptSample { sample: self.sample, block: Arc::clone(&self.block) }
    }
}

impl<T> Deref for FeedSample<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.block.sample(self.sample)
    }
}

/// A sample that is in memory until this is dropped.
pub struct KeptSample<T> {
    sample: SampleId,
    block: Arc<Block<T>>,
}

impl<T> Deref for KeptSample<T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.block.sample(self.sample)
    }
}

impl<S: Store> Feed<S> {
    /// Starts reading `order` from a place on.
    ///
    /// # Errors
    ///
    /// [`FeedError::TooLarge`] where a sample alone does not fit into the budget. A shard that does not is read sample
    /// by sample.
    pub fn start(store: Arc<S>, order: &Order, from: Cursor, options: FeedOptions) -> Result<Feed<S>, FeedError> {
        let costliest = costliest_sample(&*store);
        if let Some((sample, needed)) = costliest.filter(|(_, bytes)| *bytes > options.budget) {
            return Err(FeedError::TooLarge { sample, needed, budget: options.budget });
        }
        let ahead = match Units::of(order.shuffle()) {
            Units::Shards => Bytes::ZERO,
            Units::Samples => Bytes(options.budget.get() / AHEAD_PART),
        };
        let capacity = options.budget.saturating_sub(transient_bytes(&*store)).saturating_sub(ahead);
        let state = Arc::new(FeedState {
            lookahead: Mutex::new(Lookahead::new(&*store, order, from, &options, capacity)),
            store,
            budget: Budget::new(options.budget),
            stop: Stop::default(),
            changed: Condvar::new(),
            turn: Mutex::new(()),
            backlog: TOGETHER * 4 * options.threads.get(),
            loads: AtomicU64::new(0),
            bytes_read: AtomicU64::new(0),
        });
        state.look_ahead();
        let threads = (0..options.threads.get()).map(|_| {
            let state = Arc::clone(&state);
            thread::spawn(move || state.read_on())
        });
        let threads = threads.collect();
        let on_damage = options.on_damage;
        Ok(Feed { state, threads, on_damage, hits: 0, skipped: 0, skipped_in_a_row: 0, waited: Duration::ZERO })
    }

    /// The next sample; `None` at the end.
    ///
    /// # Errors
    ///
    /// Where it cannot be read; the one behind it may be asked for. With [`OnDamage::Skip`] only where nothing can be
    /// read in a whole epoch.
    pub fn take(&mut self) -> Result<Option<FeedSample<'_, S::Sample>>, FeedError> {
        loop {
            self.state.look_ahead();
            let Some(upcoming) = self.state.lookahead().upcoming.pop_front() else {
                return Ok(None);
            };
            let (read, waited) = upcoming.slot.wait();
            self.waited += waited;
            match read {
                Ok(block) => {
                    let (at, sample) = (upcoming.at, upcoming.sample);
                    self.hits += u64::from(upcoming.is_hit);
                    self.skipped_in_a_row = 0;
                    return Ok(Some(FeedSample { at, sample, block, _until_next: std::marker::PhantomData }));
                }
                Err(FeedError::Data(error)) if self.on_damage == OnDamage::Skip => {
                    self.skipped += 1;
                    self.skipped_in_a_row += 1;
                    if self.skipped_in_a_row >= self.state.store.layout().samples() {
                        return Err(FeedError::Data(error));
                    }
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// What it has done so far.
    #[must_use]
    pub fn stats(&self) -> FeedStats {
        FeedStats {
            hits: self.hits,
            loads: self.state.loads.load(Ordering::Relaxed),
            bytes_read: Bytes(self.state.bytes_read.load(Ordering::Relaxed)),
            skipped: self.skipped,
            waited: self.waited,
            peak: self.state.budget.peak(),
        }
    }

    /// Bytes that may be kept: the budget less what passes through.
    #[must_use]
    pub fn capacity(&self) -> Bytes {
        self.state.lookahead().capacity
    }
}

impl<S: Store> Drop for Feed<S> {
    fn drop(&mut self) {
        self.state.stop.raise();
        {
            let _lookahead = self.state.lookahead();
            self.state.changed.notify_all();
        }
        for thread in self.threads.drain(..) {
            // One that panicked has said so already.
            let _ = thread.join();
        }
    }
}

impl<S: Store> FeedState<S> {
    fn lookahead(&self) -> MutexGuard<'_, Lookahead<S>> {
        self.lookahead.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn look_ahead(&self) {
        if self.lookahead().go_on(&self.store, self.backlog) {
            self.changed.notify_all();
        }
    }

    /// What a thread does all its life.
    fn read_on(&self) {
        while let Some(work) = self.next_work() {
            // A panic has said its words already, and what it did not read is filled with an error.
            let _ = panic::catch_unwind(AssertUnwindSafe(|| self.carry_out(work)));
            self.look_ahead();
        }
    }

    /// The next reads with their bytes reserved, in the order of the lookahead; `None` where the feed has ended.
    fn next_work(&self) -> Option<Work<S::Sample>> {
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let task = {
            let mut lookahead = self.lookahead();
            loop {
                if self.stop.is_raised() {
                    return None;
                }
                if let Some(task) = lookahead.tasks.pop_front() {
                    break task;
                }
                lookahead = self.changed.wait(lookahead).unwrap_or_else(PoisonError::into_inner);
            }
        };
        let cost = self.cost(&task.extent);
        match (self.budget.reserve(cost, &self.stop), task.extent) {
            (Ok(bytes), Extent::Part { shard, samples }) => {
                Some(Work::Part { shard, samples, promise: task.promise, bytes })
            }
            (Ok(mut bytes), Extent::Sample(sample)) => {
                let moment = self.store.samples_cost(sample.shard);
                let held = bytes.split(moment);
                let first = SampleRequest { sample, promise: task.promise, bytes };
                Some(Work::Samples { requests: self.with_those_behind(first, moment), moment: held })
            }
            (Err(BudgetError::Stopped { .. }), _) => None,
            (Err(BudgetError::TooLarge { asked, budget }), extent) => {
                let sample = match extent {
                    Extent::Part { shard, samples } => SampleId { shard, index: samples.start },
                    Extent::Sample(sample) => sample,
                };
                task.promise.keep(Err(FeedError::TooLarge { sample, needed: asked, budget }));
                Some(Work::Samples { requests: Vec::new(), moment: None })
            }
        }
    }

    /// More samples that wait to be read, as far as there is room for them now, and `moment` is enough for reading
    /// each.
    fn with_those_behind(&self, first: SampleRequest<S::Sample>, moment: Bytes) -> Vec<SampleRequest<S::Sample>> {
        let mut together = first.bytes.bytes();
        let mut requests = vec![first];
        let mut lookahead = self.lookahead();
        while requests.len() < TOGETHER && together < TOGETHER_BYTES {
            let Some(Extent::Sample(sample)) = lookahead.tasks.front().map(|task| task.extent.clone()) else { break };
            if self.store.samples_cost(sample.shard) > moment {
                break;
            }
            let Some(bytes) = self.budget.try_reserve(self.store.sample_bytes(sample)) else { break };
            together = together.saturating_add(bytes.bytes());
            let task: Task<S::Sample> = lookahead.tasks.pop_front().expect("it was looked at");
            requests.push(SampleRequest { sample, promise: task.promise, bytes });
        }
        requests
    }

    fn cost(&self, extent: &Extent) -> Bytes {
        match extent {
            Extent::Part { shard, samples } if self.is_whole(*shard, samples) => self.store.shard_cost(*shard),
            Extent::Part { shard, samples } => {
                part_bytes(&*self.store, *shard, samples.clone()).saturating_add(self.store.samples_cost(*shard))
            }
            Extent::Sample(sample) => cost_alone(&*self.store, *sample),
        }
    }

    fn is_whole(&self, shard: u32, samples: &Range<u64>) -> bool {
        *samples == (0..self.store.layout().samples_of(shard))
    }

    fn carry_out(&self, work: Work<S::Sample>) {
        match work {
            Work::Part { shard, samples, promise, mut bytes } => {
                let (first, held) = (samples.start, part_bytes(&*self.store, shard, samples.clone()));
                let read = match self.is_whole(shard, &samples) {
                    true => self.store.read_shard(shard),
                    false => self.store.read_together(shard, &samples.collect::<Vec<_>>()),
                };
                self.count(1, held);
                bytes.shrink_to(held);
                promise.keep(read.map(|samples| Block { samples, first, _bytes: bytes }).map_err(data));
            }
            Work::Samples { mut requests, moment: _moment } => {
                requests.sort_by_key(|request| request.sample);
                let mut rest = requests.into_iter().peekable();
                while let Some(first) = rest.next() {
                    let shard = first.sample.shard;
                    let mut together = vec![first];
                    while let Some(next) = rest.next_if(|request| request.sample.shard == shard) {
                        together.push(next);
                    }
                    self.read_samples(shard, together);
                }
            }
        }
    }

    fn read_samples(&self, shard: u32, requests: Vec<SampleRequest<S::Sample>>) {
        let places: Vec<u64> = requests.iter().map(|request| request.sample.index).collect();
        let held = requests.iter().fold(Bytes::ZERO, |sum, request| sum.saturating_add(request.bytes.bytes()));
        self.count(requests.len() as u64, held);
        match self.store.read_samples(shard, &places) {
            Ok(samples) => {
                for (request, sample) in requests.into_iter().zip(samples) {
                    let first = request.sample.index;
                    request.promise.keep(Ok(Block { samples: vec![sample], first, _bytes: request.bytes }));
                }
            }
            Err(error) => {
                let error = data(error);
                for request in requests {
                    request.promise.keep(Err(error.clone()));
                }
            }
        }
    }

    fn count(&self, loads: u64, bytes: Bytes) {
        self.loads.fetch_add(loads, Ordering::Relaxed);
        self.bytes_read.fetch_add(bytes.get(), Ordering::Relaxed);
    }
}

/// A sample to read, who waits for it, and its bytes.
struct SampleRequest<T> {
    sample: SampleId,
    promise: Promise<T>,
    bytes: Reservation,
}

/// What a thread does next.
enum Work<T> {
    Part {
        shard: u32,
        samples: Range<u64>,
        promise: Promise<T>,
        bytes: Reservation,
    },
    Samples {
        requests: Vec<SampleRequest<T>>,
        /// Bytes that are needed while they are read.
        moment: Option<Reservation>,
    },
}

fn data(error: DataError) -> FeedError {
    FeedError::Data(Arc::new(error))
}

/// What the feed of a store needs beside what it keeps: room for one sample that is not kept, and for what reading takes for
/// the moment.
pub fn transient_bytes<S: Store>(store: &S) -> Bytes {
    let reading = |shard| store.shard_cost(shard).saturating_sub(store.shard_bytes(shard));
    let costliest = costliest_sample(store).map(|(_, bytes)| bytes);
    (0..store.layout().shards()).map(reading).chain(costliest).max().unwrap_or_default()
}

/// What reading a sample by itself takes at its peak.
fn cost_alone<S: Store>(store: &S, sample: SampleId) -> Bytes {
    store.sample_bytes(sample).saturating_add(store.samples_cost(sample.shard))
}

fn costliest_sample<S: Store>(store: &S) -> Option<(SampleId, Bytes)> {
    let layout = store.layout();
    let samples = (0..layout.shards())
        .flat_map(|shard| (0..layout.samples_of(shard)).map(move |index| SampleId { shard, index }));
    samples.map(|sample| (sample, cost_alone(store, sample))).max_by_key(|(_, bytes)| *bytes)
}
