//! A run in figures: what it said when it began, and what it has come to.

use lowtide_core::{Bytes, Metrics};
use serde::Serialize;

/// What a run said of itself when it began.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RunHeader {
    /// The workload.
    pub workload: String,
    /// The device.
    pub device: String,
    /// Samples in a step.
    pub batch: u32,
    /// Trained parameters.
    pub parameters: u64,
    /// The line.
    pub line: Option<Bytes>,
    /// The line on host memory.
    pub host_line: Option<Bytes>,
}

impl RunHeader {
    /// Whether it computes on a card, and not on the processors of the host.
    pub(crate) fn is_on_card(&self) -> bool {
        self.device.starts_with("cuda")
    }
}

/// The figures of a run at present.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Figures {
    /// The last committed step.
    pub step: u64,
    /// The steps it is to have, where its settings tell.
    pub steps: Option<u64>,
    /// Seconds of training, over all starts.
    pub time: f64,
    /// The loss of the last step.
    pub loss: Option<f64>,
    /// The loss of the last evaluation.
    pub eval_loss: Option<f64>,
    /// Other figures of the last evaluation.
    pub metrics: Metrics,
    /// Bytes in use after the last step.
    pub allocated: Bytes,
    /// The most bytes in use during the last step.
    pub peak: Bytes,
    /// The most bytes held from the device during the last step.
    pub reserved: Bytes,
    /// The most bytes in use during a step that was done.
    pub highest_peak: Bytes,
    /// The most bytes held from the device during a step that was done.
    pub highest_reserved: Bytes,
    /// The most bytes in use during a try that ran out of memory.
    pub failed_peak: Option<Bytes>,
    /// The most bytes held from the device during such a try.
    pub failed_reserved: Option<Bytes>,
    /// Samples computed at once.
    pub micro_batch: u32,
    /// Samples in a second, over the last steps.
    pub samples_per_second: f64,
    /// Tokens in a second, over the last steps, for workloads that have tokens.
    pub tokens_per_second: Option<f64>,
    /// Out-of-memory errors.
    pub out_of_memory: u64,
    /// Out-of-memory errors after which the same work was done.
    pub recovered: u64,
    /// Answers of the guard.
    pub rungs: u64,
    /// Times that cached blocks were released.
    pub cleanings: u64,
    /// Bytes that came back by that.
    pub freed: Bytes,
    /// Checkpoints written.
    pub saved: u64,
    /// Times the allocator had to empty its cache, since the last start; runs of older versions do not tell.
    pub retries: Option<u64>,
    /// Memory of the host that the process, or the processes of a command, took when that was last noted.
    pub resident: Option<Bytes>,
    /// The most of it; of a command, in starts that did not run out of memory.
    pub highest_resident: Option<Bytes>,
    /// The most of it in a start of a command that ran out of memory.
    pub failed_resident: Option<Bytes>,
    /// What was taken of the fullest card, by all programs, when a command's was last noted.
    pub card: Option<Bytes>,
    /// The most of it, in starts that did not run out of memory.
    pub highest_card: Option<Bytes>,
    /// The most of it in a start that ran out of memory.
    pub failed_card: Option<Bytes>,
    /// Memory of the host, or what its control group may take of it.
    pub host_total: Option<Bytes>,
    /// Every rank, where there are several.
    pub ranks: Vec<RankFigures>,
}

/// The memory of one of several ranks, when it was last noted.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct RankFigures {
    /// Its number.
    pub rank: u32,
    /// Bytes held by tensors on its device.
    pub allocated: Bytes,
    /// Bytes held from its device.
    pub reserved: Bytes,
    /// The most of that.
    pub highest_reserved: Bytes,
    /// Bytes of its host that it takes.
    pub resident: Bytes,
    /// Out-of-memory errors.
    pub out_of_memory: u64,
    /// Seconds of a step in which it worked.
    pub worked: Option<f64>,
    /// Seconds of a step in which it waited for others.
    pub waited: Option<f64>,
}

/// More ranks than these are counted and not kept.
const MOST_RANKS: usize = 4096;

impl Figures {
    /// One of several ranks, if there are not too many.
    pub(crate) fn rank(&mut self, rank: u32) -> Option<&mut RankFigures> {
        let place = match self.ranks.binary_search_by_key(&rank, |figures| figures.rank) {
            Ok(place) => place,
            Err(_) if self.ranks.len() >= MOST_RANKS => return None,
            Err(place) => {
                self.ranks.insert(place, RankFigures { rank, ..RankFigures::default() });
                place
            }
        };
        self.ranks.get_mut(place)
    }
}
