//! One event from what a log says of it, which is often several times and in several voices, and what stands around it.

use lowtide_core::Bytes;
use lowtide_log::{Activity, StackFrame, activity, activity_of_stack, frames, steps, time};
use lowtide_oom::{Certainty, Engine, Oom, Place, Source};

use super::cards::CardFacts;

/// Messages further apart than this are events of their own.
const NEAR: u64 = 32 << 10;
/// The allocators of XLA and TensorFlow warn for every attempt, each with another size.
const ATTEMPTS: u64 = 8 << 10;
/// A program's own remark stands right before the error it is about.
const ANNOUNCED: u64 = 1 << 10;
/// How many of the further messages are kept.
const MOST_ALSO: usize = 6;
/// How many processes are kept.
const MOST_PROCESSES: usize = 16;
/// How many ranks are kept.
const MOST_RANKS: usize = 1024;

/// An out-of-memory event.
#[derive(Debug, Clone)]
pub(crate) struct Event {
    pub(crate) line: u64,
    pub(crate) message: String,
    pub(crate) oom: Oom,
    pub(crate) circumstances: Circumstances,
    /// What else the log says of it.
    pub(crate) also: Vec<(Source, String)>,
    /// Where the last of its messages ends.
    pub(crate) end: u64,
    /// Which of the reports of processes is of it.
    pub(crate) report: Option<usize>,
    /// The ranks of a job that its messages are of, where lines name them, as they came.
    pub(crate) ranks: Vec<u64>,
}

/// `when warming up sampler with 1024 dummy requests`: as many as there may be at once, before any is served.
pub(crate) fn dummy_requests(text: &str) -> Option<u64> {
    let (head, _) = text.split_once(" dummy requests")?;
    head.rsplit(' ').next()?.parse().ok().filter(|requests| *requests > 0)
}

impl Event {
    /// Requests that a server warmed its sampler up with, where it says so.
    pub(crate) fn dummy_requests(&self) -> Option<u64> {
        let mut texts = std::iter::once(&*self.message).chain(self.also.iter().map(|(_, text)| &**text));
        texts.find_map(dummy_requests)
    }
}

/// What stands around an error.
#[derive(Debug, Clone, Default)]
pub(crate) struct Circumstances {
    pub(crate) frames: Vec<StackFrame>,
    /// What the program was doing, and the words of the log that say so.
    pub(crate) activity: Option<(Activity, String)>,
    pub(crate) step: Option<u64>,
    pub(crate) time: Option<String>,
}

impl Event {
    /// Takes what the process wrote down itself; its stack counts before that of the log, in which ranks may be mixed.
    pub(crate) fn take_report(&mut self, report: usize, frames: &[StackFrame]) {
        self.report = Some(report);
        if frames.is_empty() {
            return;
        }
        frames.clone_into(&mut self.circumstances.frames);
        if let Some(activity) = activity_of_stack(frames) {
            self.circumstances.activity = Some(activity);
        }
    }

    /// Takes the rank that a message of it is of.
    pub(crate) fn take_rank(&mut self, rank: Option<u64>) {
        let is_new = |rank: &u64| self.ranks.len() < MOST_RANKS && !self.ranks.contains(rank);
        self.ranks.extend(rank.filter(is_new));
    }

    /// Whether a message that starts at `start` tells of this event too.
    pub(crate) fn takes(&self, oom: &Oom, start: u64) -> bool {
        let distance = start.saturating_sub(self.end);
        if distance > NEAR {
            return false;
        }
        // A program that says what it could not do for want of what was refused before.
        let is_echo = oom.engine == Engine::Ggml && oom.requested.is_none() && oom.device_kind.is_none();
        if is_echo && self.oom.engine == oom.engine && distance <= ANNOUNCED {
            return true;
        }
        let is_weak = oom.source == Source::ExitStatus || oom.certainty <= Certainty::Possible;
        if self.oom.place != oom.place {
            return is_weak && oom.requested.is_none() || self.announces(oom, distance);
        }
        let (ours, theirs) = (&self.oom, oom);
        let is_attempt = matches!(ours.engine, Engine::Tensorflow | Engine::Xla) && ours.engine == theirs.engine;
        if is_attempt && distance <= ATTEMPTS {
            return true;
        }
        !differ(ours.device, theirs.device)
            && !differ(ours.requested, theirs.requested)
            && !differ(ours.free, theirs.free)
            && !differ(ours.allocated, theirs.allocated)
    }

    /// Whether this is only a remark of the program, such as `ran out of memory, trying again`, right before the error.
    fn announces(&self, oom: &Oom, distance: u64) -> bool {
        self.is_remark() && oom.certainty > self.oom.certainty && distance <= ANNOUNCED
    }

    /// Whether it has nothing but words of no engine.
    fn is_remark(&self) -> bool {
        self.oom.engine == Engine::Unknown && self.oom.source != Source::ExitStatus && self.oom.requested.is_none()
    }

    /// Takes a further message; where it is surer or says more, it becomes the one that counts. Whether it did.
    pub(crate) fn take(&mut self, oom: Oom, line: u64, message: String, end: u64) -> bool {
        self.end = end;
        let is_same = self.oom == oom;
        // The kernel's report begins alike for a group and the machine, and says at its end whose limit it was.
        if [self.oom.source, oom.source] == [Source::Kernel, Source::Cgroup] && self.oom.engine == oom.engine {
            self.oom.source = Source::Cgroup;
        }
        let is_elsewhere = self.oom.place != oom.place;
        let counts = !is_elsewhere && weight(&oom) > weight(&self.oom)
            || is_elsewhere && oom.certainty > self.oom.certainty
            // Who says `out of memory` in a word of his own does not say whose.
            || is_elsewhere && self.is_remark() && oom.engine != Engine::Unknown;
        if counts {
            let old = std::mem::replace(&mut self.oom, oom);
            let text = std::mem::replace(&mut self.message, message);
            self.line = line;
            if old.place == self.oom.place {
                fill(&mut self.oom, &old);
            }
            self.note(old.source, text);
        } else {
            if self.oom.place == oom.place {
                fill(&mut self.oom, &oom);
            }
            if !is_same {
                self.note(oom.source, message);
            }
        }
        counts
    }

    /// Says where memory ran out, once all messages are read, and adds what the rest of the log says of the device.
    ///
    /// The driver refuses to pin memory of the machine in the words it has for the device's.
    pub(crate) fn settle(&mut self, cards: &CardFacts) {
        let pins = self.circumstances.ends_in_pinning();
        let oom = &mut self.oom;
        if oom.source == Source::Runtime && oom.requested.is_none() && pins {
            oom.place = Place::Host;
        }
        // TensorFlow's pool of memory that is pinned for its cards.
        if self.message.contains("host_bfc") {
            oom.limit = oom.limit.or(cards.pool.map(|pool| pool.limit));
        }
        if oom.place == Place::Host || oom.source == Source::Startup {
            return;
        }
        let has_pool = matches!(oom.engine, Engine::Tensorflow | Engine::Xla) && oom.allocated.is_none();
        if let Some(pool) = cards.pool.filter(|pool| has_pool && oom.limit.is_none() && pool.in_use <= pool.limit) {
            oom.allocated = Some(pool.in_use);
            oom.reserved = Some(pool.limit);
            match pool.is_set() {
                true => oom.limit = Some(pool.limit),
                false => {
                    oom.capacity = oom.capacity.or(Some(pool.limit));
                    oom.free = oom.free.or(Some(Bytes::ZERO));
                }
            }
        }
        let card = cards.card(oom.device).map(|card| Bytes::from_mib(card.total_mib));
        oom.capacity = oom.capacity.or(card).or(cards.total);
    }

    fn note(&mut self, source: Source, text: String) {
        if self.also.len() < MOST_ALSO && text != self.message {
            self.also.push((source, text));
        }
    }
}

impl Circumstances {
    /// Reads the text that ends where the error's line begins.
    pub(crate) fn read(before: &str) -> Self {
        let frames = frames(before);
        Self {
            activity: activity(&frames, before),
            frames,
            step: steps(before.as_bytes()).next_back(),
            time: before.rsplit(['\n', '\r']).find_map(time).map(str::to_owned),
        }
    }

    /// Takes the stack of a further message, which tells more of the same event.
    pub(crate) fn deepen(&mut self, between: &str) {
        let frames = frames(between);
        if let Some(activity) = activity_of_stack(&frames) {
            self.activity = Some(activity);
        }
        if !frames.is_empty() {
            self.frames = frames;
        }
    }

    /// Takes a stack that stands below the error: a report names the error first, and an editor has the innermost frame first.
    pub(crate) fn take_stack_below(&mut self, below: &str) {
        let first = below.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default();
        let is_editor = first.starts_with("File \"");
        if !is_editor && !["Stack Trace", "Traceback (most"].iter().any(|title| first.contains(title)) {
            return;
        }
        let mut frames = frames(below);
        if is_editor {
            frames.reverse();
        }
        if let Some(activity) = activity_of_stack(&frames) {
            self.activity = Some(activity);
        }
        self.frames = frames;
    }

    /// Whether the stack ends where memory of the machine is pinned.
    pub(crate) fn ends_in_pinning(&self) -> bool {
        let pins = |frame: &StackFrame| frame.code.contains("pin_memory=True") || frame.code.contains("pin_memory(");
        // The thread of a data loader makes a context on the device first, by another call, which may be what failed.
        self.frames.last().is_some_and(pins)
    }
}

fn differ<T: PartialEq>(one: Option<T>, other: Option<T>) -> bool {
    matches!((one, other), (Some(one), Some(other)) if one != other)
}

/// How much a message says: first how sure it is, then how many figures it has.
fn weight(oom: &Oom) -> (Certainty, u8, usize) {
    let figures = [oom.requested, oom.capacity, oom.free, oom.in_use, oom.allocated, oom.limit];
    // Who ended a process knows more than who saw it end.
    let voice = match oom.source {
        Source::Kernel | Source::Cgroup | Source::Scheduler => 2,
        Source::ExitStatus => 0,
        _ => 1,
    };
    (oom.certainty, voice, figures.iter().flatten().count())
}

/// Adds figures that the other message has.
fn fill(oom: &mut Oom, other: &Oom) {
    let pairs = [
        (&mut oom.requested, other.requested),
        (&mut oom.capacity, other.capacity),
        (&mut oom.free, other.free),
        (&mut oom.in_use, other.in_use),
        (&mut oom.allocated, other.allocated),
        (&mut oom.reserved, other.reserved),
        (&mut oom.reserved_unallocated, other.reserved_unallocated),
        (&mut oom.limit, other.limit),
    ];
    for (ours, theirs) in pairs {
        *ours = ours.or(theirs);
    }
    if oom.place == Place::Host {
        for process in &other.processes {
            if let Some(known) = oom.processes.iter_mut().find(|known| known.pid == process.pid) {
                known.used = known.used.or(process.used);
                if known.name.is_none() {
                    known.name.clone_from(&process.name);
                }
            } else if oom.processes.len() < MOST_PROCESSES {
                oom.processes.push(process.clone());
            }
        }
    }
}
