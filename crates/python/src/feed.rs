//! The feed of a data set, as Python asks it for batches.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::mem;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::process;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use lowtide_core::Bytes;
use lowtide_data::feed::{Feed, FeedOptions, Store, transient_bytes};
use lowtide_data::order::{Cursor, Order, Share, Shuffle, Tail, window_for};
use lowtide_data::{DataSet, OpenOptions};
use lowtide_tensorfile::Dtype;
use lowtide_tensorfile::pages::PageCache;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::block::drop_spare;
use crate::dlpack::Lent;
use crate::failure::{Failure, Kind};
use crate::feed_batch::Offer;
use crate::feed_steps::{Step, Stepper, Steps};

/// A data set, and the threads that read it once it is started.
///
/// It is told where to begin, and gives the part of each step that belongs to a rank. In a process that was forked off
/// afterwards there are no such threads, and nothing works but letting go of it.
#[pyclass(module = "lowtide._native", frozen)]
pub(crate) struct DataFeed {
    set: Arc<DataSet>,
    /// What the data may hold: the limit less batches and open files.
    budget: Bytes,
    threads: NonZeroUsize,
    running: Mutex<Option<Running>>,
    /// The process that started the threads; 0 where none did.
    owner: AtomicU32,
}

struct Running {
    steps: Steps,
    course: Course,
    /// Where the next step begins.
    next: Cursor,
}

/// What is read, but for where it begins.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Course {
    shuffle: Shuffle,
    seed: u64,
    share: Share,
    ahead: bool,
    /// The first epoch that is not read any more.
    end: Option<u64>,
}

/// A field, its type and shape in a sample, and a tensor to gather it into.
type OfferedTensor<'py> = (String, String, Vec<u64>, Bound<'py, PyAny>);
/// A batch, and where the next one begins.
type Taken<'py> = (Option<Bound<'py, PyDict>>, (u64, u64));

#[pymethods]
impl DataFeed {
    /// Opens a folder of data files, or one file; no value is read.
    #[new]
    #[pyo3(signature = (path, *, limit, batch, threads, keep_page_cache))]
    fn new(
        py: Python<'_>,
        path: PathBuf,
        limit: u64,
        batch: u64,
        threads: NonZeroUsize,
        keep_page_cache: bool,
    ) -> PyResult<Self> {
        let page_cache = if keep_page_cache { PageCache::Keep } else { PageCache::default() };
        let opened = py.detach(|| open(&path, OpenOptions { page_cache, ..OpenOptions::default() }));
        let set = Arc::new(opened?);
        let budget = py.detach(|| budget_of(&set, Bytes(limit), batch))?;
        Ok(Self { set, budget, threads, running: Mutex::new(None), owner: AtomicU32::new(0) })
    }

    /// Samples in all files.
    #[getter]
    fn samples(&self) -> u64 {
        self.set.layout().samples()
    }

    /// Bytes that data may hold: the limit without batches and what reading takes.
    #[getter]
    fn budget(&self) -> u64 {
        self.budget.get()
    }

    /// Samples in each file.
    fn file_samples(&self) -> Vec<u64> {
        let layout = self.set.layout();
        (0..layout.shards()).map(|shard| layout.samples_of(shard)).collect()
    }

    /// The largest window of files that costs no reading.
    fn window(&self) -> u32 {
        let sizes: Vec<Bytes> = (0..self.set.layout().shards()).map(|shard| self.set.shard_bytes(shard)).collect();
        let kept = self.budget.saturating_sub(transient_bytes(&*self.set));
        window_for(kept, &sizes).unwrap_or(1).max(1)
    }

    /// The numbers of the samples in their order, as many as there are from a position of an epoch on, up to `count`.
    #[pyo3(signature = (shuffle, seed, epoch, position, count))]
    fn order(&self, shuffle: &str, seed: u64, epoch: u64, position: u64, count: usize) -> PyResult<Vec<u64>> {
        let layout = self.set.layout();
        let order = Order::new(layout.clone(), shuffle_of(shuffle)?, seed);
        let samples = order.samples_from(Cursor { epoch, position }).take_while(|(at, _)| at.epoch == epoch);
        Ok(samples.take(count).map(|(_, sample)| layout.number_of(sample)).collect())
    }

    /// Starts reading at a place, with threads of its own. Where that is where it stands already, nothing is lost.
    ///
    /// `ahead` puts each batch together before it is asked for, in memory of its own: offers are not used then.
    #[pyo3(signature = (shuffle, seed, *, epoch, position, end, rank, ranks, batch, drop_last, ahead))]
    #[expect(clippy::too_many_arguments, reason = "all of them have names in Python")]
    fn start(
        &self,
        py: Python<'_>,
        shuffle: &str,
        seed: u64,
        epoch: u64,
        position: u64,
        end: Option<u64>,
        rank: u64,
        ranks: u64,
        batch: u64,
        drop_last: bool,
        ahead: bool,
    ) -> PyResult<()> {
        self.check_owner()?;
        let share = share_of(rank, ranks, batch, drop_last)?;
        let course = Course { shuffle: shuffle_of(shuffle)?, seed, share, ahead, end };
        let next = Cursor { epoch, position };
        py.detach(|| {
            let mut running = self.running();
            if running.as_ref().is_some_and(|running| running.course == course && running.next == next) {
                return Ok(());
            }
            // The memory of the one that was goes first.
            *running = None;
            let order = Order::new(self.set.layout().clone(), course.shuffle, seed);
            let end = end.map(|epoch| Cursor { epoch, position: 0 });
            let options =
                FeedOptions { threads: self.threads, end, share: Some(share), ..FeedOptions::new(self.budget) };
            let feed = Feed::start(Arc::clone(&self.set), &order, next, options)?;
            self.owner.store(process::id(), Ordering::Relaxed);
            let samples = self.samples();
            let stepper = Stepper { feed, share, samples, next, end: course.end, desk: Arc::default() };
            let steps = if ahead { Steps::ahead(stepper) } else { Steps::asked(stepper) };
            *running = Some(Running { steps, course, next });
            Ok::<_, Failure>(())
        })?;
        Ok(())
    }

    /// The steps of an epoch, from a position on.
    #[pyo3(signature = (position, *, rank, ranks, batch, drop_last))]
    fn steps(&self, position: u64, rank: u64, ranks: u64, batch: u64, drop_last: bool) -> PyResult<u64> {
        Ok(share_of(rank, ranks, batch, drop_last)?.steps_from(self.samples(), position))
    }

    /// The samples of the next step that are this rank's; 0 at the end of an epoch.
    fn next_samples(&self, py: Python<'_>) -> PyResult<u64> {
        self.check_owner()?;
        let samples = self.samples();
        py.detach(|| self.running().as_ref().map(|running| running.own(samples))).ok_or_else(not_started)
    }

    /// The next batch of this rank, `None` at the end of an epoch; and the epoch and the position at which the next step begins.
    ///
    /// A batch has for each field what `torch.from_dlpack` takes, a list of that where shapes differ, a list of texts, or `None`
    /// where it was gathered into memory that was offered. An offer is a field, its type and shape in a sample, and a contiguous
    /// tensor for all samples of the batch.
    #[pyo3(signature = (offers=None))]
    fn take<'py>(&self, py: Python<'py>, offers: Option<Vec<OfferedTensor<'py>>>) -> PyResult<Taken<'py>> {
        self.check_owner()?;
        let offers = match offers {
            Some(offers) => {
                let samples = self.next_samples(py)?;
                offers.into_iter().map(|offer| offer_of(samples, offer)).collect::<PyResult<Vec<_>>>()?
            }
            None => Vec::new(),
        };
        let taken = py.detach(|| {
            let mut running = self.running();
            let taken = running.as_mut().map(|running| running.take(offers));
            if matches!(taken, Some(Err(_))) {
                // It stands in the middle of a step.
                *running = None;
            }
            taken
        });
        let (gathering, next) = taken.ok_or_else(not_started)?.map_err(|failure: Failure| PyErr::from(failure))?;
        let batch = gathering.map(|gathering| gathering.finish(py)).transpose()?;
        Ok((batch, (next.epoch, next.position)))
    }

    /// What it has done since it was started: hits, reads, bytes read, seconds waited, most bytes held.
    fn stats(&self, py: Python<'_>) -> PyResult<(u64, u64, u64, f64, u64)> {
        self.check_owner()?;
        let stats = py.detach(|| self.running().as_ref().map(|running| running.steps.stats())).unwrap_or_default();
        Ok((stats.hits, stats.loads, stats.bytes_read.get(), stats.waited.as_secs_f64(), stats.peak.get()))
    }

    /// Ends its threads and gives its memory back.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        self.check_owner()?;
        py.detach(|| *self.running() = None);
        drop_spare();
        Ok(())
    }
}

impl DataFeed {
    fn running(&self) -> MutexGuard<'_, Option<Running>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asked before the lock is: in a process that was forked off, nobody may be left who would give it back.
    fn check_owner(&self) -> Result<(), Failure> {
        let owner = self.owner.load(Ordering::Relaxed);
        if owner == 0 || owner == process::id() {
            return Ok(());
        }
        let text = "this process was forked after the feed had started, and the threads that read are not in it";
        Err(Failure::new(
            Kind::Unsupported,
            text,
            "make the Feed in the process that uses it; with a DataLoader, num_workers=0",
        ))
    }
}

impl Drop for DataFeed {
    fn drop(&mut self) {
        if self.check_owner().is_err() {
            // There are no threads here that could end.
            mem::forget(self.running.get_mut().unwrap_or_else(PoisonError::into_inner).take());
            return;
        }
        drop_spare();
    }
}

impl Running {
    fn own(&self, samples: u64) -> u64 {
        let step = self.course.share.step_at(samples, self.next.position);
        step.map_or(0, |step| step.own.end - step.own.start)
    }

    fn take(&mut self, offers: Vec<Offer>) -> Result<Step, Failure> {
        let step = self.steps.take(offers)?;
        self.next = step.1;
        Ok(step)
    }
}

fn open(path: &Path, options: OpenOptions) -> Result<DataSet, Failure> {
    let opened = match path.is_file() {
        true => DataSet::of_files(&[path.to_owned()], options),
        false => DataSet::open(path, options),
    };
    Ok(opened.map_err(|error| Failure::from(&error))?.set)
}

/// What the data may hold where batches are within the limit too: the one that was handed out, and the next two.
fn budget_of(set: &DataSet, limit: Bytes, batch: u64) -> Result<Bytes, Failure> {
    let layout = set.layout();
    let mut largest: BinaryHeap<Reverse<Bytes>> = BinaryHeap::new();
    let mut alone = Bytes::ZERO;
    for number in 0..layout.samples() {
        let sample = layout.sample(number);
        let bytes = set.sample_bytes(sample);
        alone = alone.max(bytes.saturating_add(set.samples_cost(sample.shard)));
        largest.push(Reverse(bytes));
        if largest.len() as u64 > batch {
            largest.pop();
        }
    }
    let one = largest.into_iter().fold(Bytes::ZERO, |sum, Reverse(bytes)| sum.saturating_add(bytes));
    let beside = one.saturating_mul(3).saturating_add(set.most_kept_open());
    let least = beside.saturating_add(alone);
    if least > limit {
        let text = format!("batches of {batch} samples take {least} while they are read, and the limit is {limit}");
        return Err(Failure::new(
            Kind::BadLimit,
            text,
            format!("limit=\"{}MiB\", or a smaller batch_size", least.get().div_ceil(1 << 20)),
        ));
    }
    Ok(limit.saturating_sub(beside))
}

fn share_of(rank: u64, ranks: u64, batch: u64, drop_last: bool) -> PyResult<Share> {
    let tail = if drop_last { Tail::Drop } else { Tail::Keep };
    Share::new(rank, ranks, batch, tail)
        .ok_or_else(|| PyValueError::new_err(format!("there is no rank {rank} of {ranks} with batches of {batch}")))
}

/// `sequential`, `full`, or `window` with a number behind it.
fn shuffle_of(text: &str) -> PyResult<Shuffle> {
    match text.split_once(' ') {
        None if text == "sequential" => Some(Shuffle::Sequential),
        None if text == "full" => Some(Shuffle::Full),
        Some(("window", shards)) => shards.parse().ok().map(|shards| Shuffle::Window { shards }),
        _ => None,
    }
    .ok_or_else(|| PyValueError::new_err(format!("no shuffle: {text}")))
}

fn offer_of(samples: u64, (field, dtype, shape, tensor): OfferedTensor<'_>) -> PyResult<Offer> {
    let no_type = || PyValueError::new_err(format!("no type of values: {dtype}"));
    let dtype = Dtype::from_name(&dtype).ok_or_else(no_type)?;
    let bytes = shape.iter().try_fold(samples.saturating_mul(dtype.size()), |bytes, size| bytes.checked_mul(*size));
    let bytes = bytes.and_then(|bytes| usize::try_from(bytes).ok());
    let bytes = bytes.ok_or_else(|| PyValueError::new_err("a tensor to gather into is too large"))?;
    Ok(Offer { field, dtype, shape, memory: Lent::of(&tensor, bytes)? })
}

fn not_started() -> PyErr {
    PyValueError::new_err("the feed is not started")
}
