//! Weights, gradients and moments that are shared out among cards, or lie on the host: what of them is left for one card.

use crate::log::SharingSwitches;

/// How what stays from step to step is shared out.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Sharing {
    /// ZeRO's stage; 0 where nothing is shared out.
    stage: u64,
    /// Cards that share, at least one.
    ranks: u64,
    pub(crate) offloads_moments: bool,
    pub(crate) offloads_weights: bool,
}

/// Bytes that stay on one card from step to step, whatever the batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Held {
    pub(crate) weights: u64,
    pub(crate) gradients: u64,
    pub(crate) moments: u64,
}

impl Held {
    pub(crate) fn all(&self) -> u64 {
        self.weights.saturating_add(self.gradients).saturating_add(self.moments)
    }
}

impl Sharing {
    /// As a run has it; `None` where it shares out and nothing tells among how many.
    pub(crate) fn read(switches: &SharingSwitches) -> Option<Self> {
        let stage = switches.stage.unwrap_or(0);
        let ranks = switches.ranks().filter(|_| stage > 0);
        if stage > 0 && ranks.is_none() {
            return None;
        }
        let SharingSwitches { offloads_moments, offloads_weights, .. } = *switches;
        Some(Self { stage, ranks: ranks.unwrap_or(0), offloads_moments, offloads_weights })
    }

    pub(crate) fn of_weights(&self, bytes: u64) -> u64 {
        if self.offloads_weights { 0 } else { self.part(bytes, 3) }
    }

    pub(crate) fn of_gradients(&self, bytes: u64) -> u64 {
        self.part(bytes, 2)
    }

    pub(crate) fn of_moments(&self, bytes: u64) -> u64 {
        if self.offloads_moments { 0 } else { self.part(bytes, 1) }
    }

    /// What is said behind a figure that a stage shares out.
    pub(crate) fn words(&self, stage: u64) -> String {
        let is_on_host = stage == 3 && self.offloads_weights || stage == 1 && self.offloads_moments;
        match self.stage >= stage && self.ranks > 1 {
            _ if is_on_host => ", on the host".to_owned(),
            true => format!(", shared among {}", self.ranks),
            false => String::new(),
        }
    }

    fn part(&self, bytes: u64, stage: u64) -> u64 {
        if self.stage >= stage { bytes.div_ceil(self.ranks.max(1)) } else { bytes }
    }
}
