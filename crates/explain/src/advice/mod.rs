//! What to do, in the order of what it gains against what it costs.

mod device;
mod host;
mod levers;
mod plan;
mod words;

use lowtide_core::Bytes;
use lowtide_oom::{Oom, Place};

use crate::cause::Judgement;
use crate::facts::Facts;
use crate::model::Model;
use crate::patch::Patch;
use crate::traceback::Frame;
use crate::verdict::{Activity, Advice, Cause, Culprit, Lever};

/// All that is known of an event.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Case<'a> {
    pub(crate) oom: &'a Oom,
    pub(crate) judgement: &'a Judgement,
    pub(crate) activity: Option<Activity>,
    pub(crate) before_first_step: bool,
    pub(crate) facts: &'a Facts<'a>,
    pub(crate) model: Option<Model>,
    pub(crate) culprit: Option<&'a Culprit>,
    pub(crate) frames: &'a [Frame],
}

/// Advice, the patch for the first of it that has one, and what is to be said of the configuration.
pub(crate) fn advise(case: &Case<'_>) -> (Vec<Advice>, Option<Patch>, Vec<String>) {
    let mut list = List { case: *case, advice: Vec::new(), next: None, notes: Vec::new(), stale: case.stale() };
    if let Some(why) = &list.stale {
        list.notes.push(why.clone());
    }
    match case.oom.place {
        Place::Host => list.host(),
        Place::Device => list.device(),
    }
    list.what_fits_first();
    let patch = list.best_patch();
    (list.advice, patch, list.notes)
}

/// Whether a piece of advice keeps what it should.
#[derive(Clone, Copy)]
struct Keeps {
    batch: bool,
    model: bool,
    numbers: bool,
}

const ALL: Keeps = Keeps { batch: true, model: true, numbers: true };
const NOT_NUMBERS: Keeps = Keeps { numbers: false, ..ALL };
const NOT_MODEL: Keeps = Keeps { batch: true, model: false, numbers: false };

struct List<'a> {
    case: Case<'a>,
    advice: Vec<Advice>,
    /// The patch of the advice that comes next.
    next: Option<Patch>,
    notes: Vec<String>,
    stale: Option<String>,
}

impl List<'_> {
    pub(super) fn push(&mut self, lever: Lever, text: impl Into<String>, peak: Option<Bytes>, keeps: Keeps) {
        let patch = self.next.take();
        if self.advice.iter().any(|advice| advice.lever == lever) {
            return;
        }
        self.advice.push(Advice {
            lever,
            text: text.into(),
            expected_peak_bytes: peak,
            same_effective_batch: keeps.batch,
            same_model: keeps.model,
            same_numbers: keeps.numbers,
            patch,
        });
    }

    /// Gives the advice that is pushed next its patch; none is offered for a configuration of another run.
    pub(super) fn offer(&mut self, patch: Option<Patch>) {
        self.next = patch.filter(|_| self.stale.is_none());
    }

    /// The patch that is shown: enough by arithmetic, and with the numbers kept, where there is one.
    fn best_patch(&self) -> Option<Patch> {
        let kept = |advice: &&Advice| {
            let is_aside = matches!(advice.lever, Lever::EvaluationLess | Lever::CompileOff);
            advice.same_model && advice.same_effective_batch && advice.patch.is_some() && !is_aside
        };
        let enough = |advice: &&Advice| !self.is_too_much(advice);
        let list = || self.advice.iter().filter(kept);
        let chosen = list()
            .find(|advice| advice.same_numbers && enough(advice))
            .or_else(|| list().find(enough))
            .or_else(|| list().next())
            .or_else(|| self.advice.iter().find(|advice| advice.lever == Lever::CompileOff && advice.patch.is_some()));
        chosen.and_then(|advice| advice.patch.clone())
    }

    /// Whether the figures say that this alone is not enough.
    fn is_too_much(&self, advice: &Advice) -> bool {
        let is_fragmented = self.case.judgement.cause == Cause::Fragmentation;
        // These make more room, or mend what stood in the way: what there is now says nothing about them.
        let is_enough = match advice.lever {
            Lever::EndOtherProcess | Lever::RaiseLimit => true,
            Lever::ExpandableSegments => is_fragmented,
            _ => false,
        };
        let target = self.case.target();
        !is_enough && advice.expected_peak_bytes.zip(target).is_some_and(|(peak, target)| peak > target)
    }

    /// Behind the levers that may be enough come those that alone are not, then those that only save time; what changes
    /// the model stays last.
    pub(super) fn what_fits_first(&mut self) {
        if self.case.target().is_none() {
            return;
        }
        let mut list = std::mem::take(&mut self.advice);
        let too_much = |advice: &Advice| self.is_too_much(advice);
        list.sort_by_key(|advice| {
            let saves_no_memory = matches!(advice.lever, Lever::EvaluationLess | Lever::CompileOff);
            match advice.same_model && advice.same_effective_batch {
                true if saves_no_memory => 2,
                true => u8::from(too_much(advice)),
                false => 3,
            }
        });
        for advice in list.iter_mut().filter(|advice| too_much(advice)) {
            advice.text.push_str(" (not enough alone)");
        }
        self.advice = list;
    }
}
