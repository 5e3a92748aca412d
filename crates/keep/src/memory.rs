//! Looks at the memory of the command's processes and of the cards while it runs.

use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use lowtide_sensors::{Options, Sample, Sampler};
use serde::Serialize;

use crate::Evidence;

/// How often memory is looked at.
const TICK: Duration = Duration::from_millis(500);
/// How often at first, so that something is seen of a command that ends soon; then ever more seldom.
const FIRST_TICK: Duration = Duration::from_millis(10);
/// How often new processes are looked for, in ticks.
const LOOK_AROUND: u64 = 4;
/// A share of all there is that counts as nearly all, in percent.
const NEARLY_ALL: u64 = 85;
/// What a machine has left when it is full, in percent.
const NOTHING_LEFT: u64 = 3;

/// The most memory that was seen.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Peak {
    /// Of all processes of the command together, in RAM; pages that several share are counted for each.
    pub tree_bytes: u64,
    /// Of each card, by all who use it.
    pub cards: Vec<CardPeak>,
}

/// The most memory that was seen in use on a card.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct CardPeak {
    /// The card, in the driver's order.
    pub index: u32,
    /// In use, by everybody.
    pub used_bytes: u64,
    /// All there is.
    pub total_bytes: u64,
}

/// What was seen of a start.
#[derive(Debug, Clone, Default)]
pub(crate) struct Seen {
    pub(crate) peak: Peak,
    /// Set where the last look, or one before it, found memory nearly full.
    pub(crate) full: Option<Evidence>,
    /// Every process that was seen.
    pub(crate) pids: Vec<u32>,
}

impl Seen {
    fn add(&mut self, sample: &Sample) {
        let Some(process) = sample.process.known() else { return };
        let held_bytes = process.resident_bytes.saturating_add(sample.children.resident_bytes);
        // The kernel remembers the most that the first process ever held, between two looks too.
        self.peak.tree_bytes = self.peak.tree_bytes.max(held_bytes).max(process.peak_bytes);
        for card in &sample.gpus.cards {
            let Some(memory) = card.memory.known() else { continue };
            match self.peak.cards.iter_mut().find(|peak| peak.index == card.index) {
                Some(peak) => peak.used_bytes = peak.used_bytes.max(memory.used_bytes),
                None => self.peak.cards.push(CardPeak {
                    index: card.index,
                    used_bytes: memory.used_bytes,
                    total_bytes: memory.total_bytes,
                }),
            }
        }
        let machine = sample.machine.known();
        let group = sample.cgroup.known().and_then(|group| group.limit_bytes);
        let limit = [machine.map(|machine| machine.total_bytes), group].into_iter().flatten().min();
        let Some(limit_bytes) = limit else { return };
        let exhausted = machine.is_some_and(|it| it.available_bytes / NOTHING_LEFT < it.total_bytes / 100);
        if held_bytes / NEARLY_ALL >= limit_bytes / 100 || (exhausted && held_bytes >= limit_bytes / 4) {
            self.full = Some(Evidence::NearTheLimit { held_bytes, limit_bytes });
        }
    }
}

/// A thread that looks at memory until it is told to stop.
#[derive(Debug)]
pub(crate) struct Watch {
    stop: Sender<()>,
    thread: JoinHandle<Seen>,
}

impl Watch {
    /// Looks at a process and all below it.
    pub(crate) fn start(process: u32) -> Self {
        let (stop, stopped) = mpsc::channel();
        let thread = thread::spawn(move || {
            let begun = Instant::now();
            // Shares of memory take long to find and are not asked for.
            let options = Options { process: Some(process), share_up_to_bytes: 0, ..Options::default() };
            let mut sampler = Sampler::new(options);
            let mut seen = Seen { pids: vec![process], ..Seen::default() };
            let mut tick_time = FIRST_TICK;
            for tick in 0_u64.. {
                let now = begun.elapsed().as_secs_f64();
                if tick.is_multiple_of(LOOK_AROUND) {
                    let pids = sampler.slow(now).processes.into_iter().map(|detail| detail.process.pid);
                    seen.pids.extend(pids);
                    seen.pids.sort_unstable();
                    seen.pids.dedup();
                }
                seen.add(&sampler.fast(now));
                if stopped.recv_timeout(tick_time) != Err(RecvTimeoutError::Timeout) {
                    break;
                }
                tick_time = tick_time.mul_f64(1.2).min(TICK);
            }
            seen
        });
        Self { stop, thread }
    }

    /// What was seen.
    pub(crate) fn finish(self) -> Seen {
        // It may have ended by itself.
        let _ = self.stop.send(());
        self.thread.join().unwrap_or_default()
    }
}
