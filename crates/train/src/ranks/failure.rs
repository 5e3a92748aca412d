//! Work that failed on a rank, as all others hear of it.

use lowtide_core::{Bytes, Phase};
use lowtide_torch::TorchError;
use serde::{Deserialize, Serialize};

use crate::error::TrainError;
use crate::memory::DeviceMemory;

/// Work of this rank that failed.
#[derive(Debug)]
pub(crate) struct OwnFailure {
    pub(crate) phase: Phase,
    pub(crate) error: Box<TrainError>,
    /// The figure of an evaluation that it failed in.
    pub(crate) metric: Option<String>,
    /// The most memory in use and held during it.
    pub(crate) peaks: Option<(Bytes, Bytes)>,
}

impl OwnFailure {
    pub(crate) fn new(phase: Phase, error: impl Into<TrainError>, memory: &DeviceMemory) -> OwnFailure {
        let peaks = memory.reading().ok().map(|reading| (reading.allocated_peak, reading.reserved_peak));
        OwnFailure { phase, error: Box::new(error.into()), metric: None, peaks }
    }

    /// Whether memory ran out, so that the work can be done again.
    pub(crate) fn is_oom(&self) -> bool {
        matches!(&*self.error, TrainError::Engine(error) if error.is_oom())
    }
}

/// Memory that ran out on some rank.
#[derive(Clone, Debug)]
pub(crate) struct RankFailure {
    pub(crate) rank: u32,
    pub(crate) phase: Phase,
    pub(crate) error: TorchError,
    pub(crate) metric: Option<String>,
    pub(crate) peaks: Option<(Bytes, Bytes)>,
}

/// The form in which others hear of it.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct FailureMessage {
    pub(super) message: String,
    phase: Phase,
    metric: Option<String>,
    peaks: Option<(Bytes, Bytes)>,
    requested: Option<Bytes>,
    allocated: Option<Bytes>,
    limit: Option<Bytes>,
}

impl FailureMessage {
    pub(super) fn of(own: &OwnFailure) -> FailureMessage {
        let oom = match &*own.error {
            TrainError::Engine(TorchError::Oom { oom, .. }) => Some(oom),
            _ => None,
        };
        FailureMessage {
            message: own.error.to_string(),
            phase: own.phase,
            metric: own.metric.clone(),
            peaks: own.peaks,
            requested: oom.and_then(|oom| oom.requested),
            allocated: oom.and_then(|oom| oom.allocated),
            limit: oom.and_then(|oom| oom.limit),
        }
    }

    /// The same failure, where it is known that memory ran out.
    pub(super) fn on_rank(self, rank: u32) -> RankFailure {
        let FailureMessage { message, phase, metric, peaks, requested, allocated, limit } = self;
        let error = match lowtide_oom::read(&message) {
            Some(mut oom) => {
                (oom.requested, oom.allocated, oom.limit) = (requested, allocated, limit);
                TorchError::Oom { oom: Box::new(oom), message }
            }
            None => TorchError::Engine(message),
        };
        RankFailure { rank, phase, error, metric, peaks }
    }
}
