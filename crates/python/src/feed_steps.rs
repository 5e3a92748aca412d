//! The steps of a feed: put together when they are asked for, or by a thread that is two ahead.
//!
//! Whoever trains on a batch leaves the processor free to copy the next one. Into memory of Python's own that cannot be
//! done ahead, for nobody has made it yet.
//!
//! Whoever comes back at once waits awake for a while: to be woken takes longer than it looks, and it is the thread that makes
//! batches which has to do it, for every one of them. Meanwhile it helps to make what it waits for.

use std::hint;
use std::mem;
use std::sync::mpsc::{Receiver, TryRecvError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use lowtide_data::DataSet;
use lowtide_data::feed::{Feed, FeedStats};
use lowtide_data::order::{Cursor, Share};

use crate::failure::{Failure, Kind};
use crate::feed_batch::{Gathering, Offer};
use crate::help::Desk;

/// A batch, or the end of an epoch; and where the next step begins.
pub(crate) type Step = (Option<Gathering>, Cursor);

/// Takes samples out of a feed, step by step.
pub(crate) struct Stepper {
    pub(crate) feed: Feed<DataSet>,
    pub(crate) share: Share,
    /// Samples of an epoch.
    pub(crate) samples: u64,
    /// Where the next step begins.
    pub(crate) next: Cursor,
    /// The first epoch that is not read any more.
    pub(crate) end: Option<u64>,
    /// Where copies lie for whoever waits.
    pub(crate) desk: Arc<Desk>,
}

impl Stepper {
    fn take(&mut self, offers: Vec<Offer>) -> Result<Step, Failure> {
        let Some(step) = self.share.step_at(self.samples, self.next.position) else {
            self.next = Cursor { epoch: self.next.epoch + 1, position: 0 };
            return Ok((None, self.next));
        };
        let mut gathering = Gathering::new((step.own.end - step.own.start) as usize, offers);
        for position in step.own {
            let sample = self.feed.take()?;
            let expect = Cursor { epoch: self.next.epoch, position };
            let sample = sample.filter(|sample| sample.at == expect);
            let sample = sample.ok_or_else(|| {
                let text = format!("the data ended before sample {position} of epoch {}", expect.epoch);
                Failure::new(Kind::BadData, text, "this is a bug in lowtide: report it")
            })?;
            gathering.add(&sample, &self.desk)?;
        }
        self.desk.make();
        self.next.position = step.all.end;
        Ok((Some(gathering), self.next))
    }

    fn is_at_end(&self) -> bool {
        self.end.is_some_and(|end| self.next.epoch >= end)
    }
}

/// Where steps come from.
pub(crate) enum Steps {
    /// Put together when they are asked for.
    Asked(Box<Stepper>),
    /// Put together by a thread.
    Ahead(StepThread),
}

impl Steps {
    pub(crate) fn asked(stepper: Stepper) -> Self {
        Self::Asked(Box::new(stepper))
    }

    pub(crate) fn ahead(stepper: Stepper) -> Self {
        Self::Ahead(StepThread::start(stepper))
    }

    /// The next step. Offers are of use only where steps are put together when they are asked for.
    pub(crate) fn take(&mut self, offers: Vec<Offer>) -> Result<Step, Failure> {
        match self {
            Self::Asked(stepper) => stepper.take(offers),
            Self::Ahead(thread) => thread.take(),
        }
    }

    /// What the feed has done so far.
    pub(crate) fn stats(&self) -> FeedStats {
        match self {
            Self::Asked(stepper) => stepper.feed.stats(),
            Self::Ahead(thread) => *thread.stats.lock().unwrap_or_else(PoisonError::into_inner),
        }
    }
}

/// Whoever waits for longer waits for the disk, and can sleep.
const AWAKE: Duration = Duration::from_millis(1);

/// A thread that puts the next steps together while the one before is used. It holds two at the most.
pub(crate) struct StepThread {
    steps: Option<Receiver<Result<Step, Failure>>>,
    stats: Arc<Mutex<FeedStats>>,
    desk: Arc<Desk>,
    thread: Option<JoinHandle<()>>,
}

impl StepThread {
    fn start(mut stepper: Stepper) -> Self {
        // One waits in the channel, and one is being put together: whoever asks finds one at once.
        let (sender, steps) = sync_channel(1);
        let stats = Arc::new(Mutex::new(FeedStats::default()));
        let shared = Arc::clone(&stats);
        let desk = Arc::clone(&stepper.desk);
        let thread = thread::spawn(move || {
            while !stepper.is_at_end() {
                let step = stepper.take(Vec::new());
                let has_failed = step.is_err();
                *shared.lock().unwrap_or_else(PoisonError::into_inner) = stepper.feed.stats();
                if sender.send(step).is_err() || has_failed {
                    return;
                }
            }
        });
        Self { steps: Some(steps), stats, desk, thread: Some(thread) }
    }

    fn take(&mut self) -> Result<Step, Failure> {
        let received = self.steps.as_ref().and_then(|steps| receive(steps, &self.desk));
        let lost = || Failure::new(Kind::BadData, "the thread that makes batches has ended", "begin a new loop");
        received.ok_or_else(lost)?
    }
}

/// Waits for what comes next: awake and helping at first, but never before others who have something to do.
fn receive<T>(steps: &Receiver<T>, desk: &Desk) -> Option<T> {
    let mut received = steps.try_recv();
    if matches!(received, Err(TryRecvError::Empty)) {
        desk.watch();
        let mut idle_since = Instant::now();
        let mut turns: u32 = 0;
        while matches!(received, Err(TryRecvError::Empty)) && idle_since.elapsed() < AWAKE {
            turns += 1;
            if desk.make() {
                idle_since = Instant::now();
            } else if turns.is_multiple_of(32) {
                thread::yield_now();
            } else {
                hint::spin_loop();
            }
            received = steps.try_recv();
        }
        desk.leave();
    }
    match received {
        Ok(step) => Some(step),
        Err(TryRecvError::Disconnected) => None,
        Err(TryRecvError::Empty) => steps.recv().ok(),
    }
}

impl Drop for StepThread {
    fn drop(&mut self) {
        // A thread that has a step to give sees that nobody wants it.
        drop(mem::take(&mut self.steps));
        if let Some(thread) = self.thread.take() {
            // One that panicked has said so already.
            let _ = thread.join();
        }
    }
}
