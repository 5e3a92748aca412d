//! Advice as it is gathered: each lever once, with its patch, sorted by what fits.

use lowtide_core::Bytes;

use super::case::Case;
use super::letters::{clause, sentence};
use crate::{Advice, Cause, Lever, Patch};

/// Whether a piece of advice keeps what it should.
#[derive(Clone, Copy)]
pub(super) struct Fidelity {
    pub(super) batch: bool,
    pub(super) model: bool,
    pub(super) numbers: bool,
}

pub(super) const ALL: Fidelity = Fidelity { batch: true, model: true, numbers: true };
pub(super) const NOT_NUMBERS: Fidelity = Fidelity { numbers: false, ..ALL };
pub(super) const NOT_MODEL: Fidelity = Fidelity { batch: true, model: false, numbers: false };

/// What a piece of advice comes to, by arithmetic.
#[derive(Clone, Copy, Default)]
pub(super) struct Gain {
    /// The peak expected after it.
    pub(super) peak: Option<Bytes>,
    /// What it saves.
    pub(super) saves: Option<Bytes>,
}

impl Gain {
    pub(super) const fn peak(peak: Option<Bytes>) -> Self {
        Self { peak, saves: None }
    }
}

/// Advice as it is gathered.
pub(super) struct List<'a> {
    pub(super) case: Case<'a>,
    pub(super) advice: Vec<Advice>,
    /// The patch of the advice that comes next.
    next: Option<Patch>,
    /// What is to be said of the configuration.
    pub(super) notes: Vec<String>,
    /// Why the configuration is not the one of the log, where it is not.
    stale: Option<String>,
    /// Smaller samples, in the sentence of a smaller batch: their levers and words.
    pub(super) samples: Option<(&'static [Lever], &'static str)>,
}

impl<'a> List<'a> {
    /// A list without advice.
    pub(super) fn new(case: Case<'a>) -> Self {
        let stale = case.stale();
        Self { case, advice: Vec::new(), next: None, notes: stale.iter().cloned().collect(), stale, samples: None }
    }

    /// Adds advice of which no peak is known.
    pub(super) fn add(&mut self, lever: Lever, text: impl Into<String>, keeps: Fidelity) {
        self.push(lever, text, Gain::default(), keeps);
    }

    pub(super) fn push(&mut self, lever: Lever, text: impl Into<String>, gain: Gain, keeps: Fidelity) {
        let patch = self.next.take();
        if self.names(lever) || self.is_out_of_place(lever) {
            return;
        }
        self.advice.push(Advice {
            lever,
            also: Vec::new(),
            text: text.into(),
            expected_peak_bytes: gain.peak,
            saves_bytes: gain.saves.filter(|bytes| *bytes > Bytes::ZERO),
            same_effective_batch: keeps.batch,
            same_model: keeps.model,
            same_numbers: keeps.numbers,
            patch,
        });
    }

    /// Whether a lever is turned on already, or does nothing here.
    fn is_out_of_place(&self, lever: Lever) -> bool {
        self.case.has_on(lever) || self.case.has_no_use_for(lever)
    }

    /// Metal's limit keeps the whole machine alive: what needs less comes before it.
    pub(super) fn limit_of_metal_second(&mut self) {
        let begins = self.advice.first().is_some_and(|advice| advice.lever == Lever::RaiseLimit);
        if begins && self.advice.len() > 1 && self.case.shares_memory_with_host() {
            self.advice.swap(0, 1);
        }
    }

    /// Whether a lever is in the list, by itself or beside another.
    pub(super) fn names(&self, lever: Lever) -> bool {
        self.advice.iter().any(|advice| advice.lever == lever || advice.also.contains(&lever))
    }

    /// Adds kindred levers to the advice of another, in the same sentence, so that two places show two different ways. Advice
    /// with a figure of its own stays as it is, because the figure is of one lever.
    pub(super) fn join(&mut self, lever: Lever, kin: &[Lever], words: &str) {
        if kin.iter().any(|kin| self.names(*kin) || self.is_out_of_place(*kin)) {
            return;
        }
        let found = self.advice.iter_mut().find(|advice| advice.lever == lever && advice.expected_peak_bytes.is_none());
        if let Some(advice) = found {
            advice.also.extend_from_slice(kin);
            advice.text.push_str(words);
        }
    }

    /// Takes a kindred lever and its words out of the advice of another, so that it may come by itself.
    pub(super) fn leave_out(&mut self, lever: Lever, kin: Lever, words: &str) {
        let Some(advice) = self.advice.iter_mut().find(|advice| advice.lever == lever) else { return };
        advice.also.retain(|also| *also != kin);
        advice.text = advice.text.replacen(words, "", 1);
    }

    /// Gives smaller samples a piece of their own behind that of a smaller batch.
    pub(super) fn part_samples(&mut self) {
        let Some((levers, words)) = self.samples.take() else { return };
        let Some(batch) = self.advice.iter().position(|advice| advice.lever == Lever::MicroBatch) else { return };
        let advice = &mut self.advice[batch];
        advice.also.retain(|lever| !levers.contains(lever));
        advice.text = advice.text.replacen(words, "", 1);
        let piece = Advice {
            lever: levers[0],
            also: levers[1..].to_vec(),
            text: sentence(words.strip_prefix("; or ").unwrap_or(words)),
            same_numbers: false,
            patch: None,
            ..advice.clone()
        };
        self.advice.insert(batch + 1, piece);
    }

    /// Takes a piece into the sentence of another, behind which it stands.
    pub(super) fn take_in(&mut self, lever: Lever, into: Lever) {
        let Some(at) = self.advice.iter().position(|advice| advice.lever == lever) else { return };
        let taken = self.advice.remove(at);
        let Some(advice) = self.advice.iter_mut().find(|advice| advice.lever == into) else {
            return self.advice.insert(at, taken);
        };
        advice.also.push(taken.lever);
        advice.also.extend(taken.also);
        advice.text.push_str(&format!("; or {}", clause(&taken.text)));
    }

    /// Gives the advice that is pushed next its patch; none is offered for a configuration of another run.
    pub(super) fn offer(&mut self, patch: Option<Patch>) {
        self.next = patch.filter(|_| self.stale.is_none());
    }

    /// The patch that is shown: enough by arithmetic, and with the numbers kept, where there is one.
    pub(super) fn best_patch(&self) -> Option<Patch> {
        let keeps = |advice: &&Advice| {
            // An update of as many samples may have fewer tokens, which is for whoever trains to choose.
            let is_aside = matches!(advice.lever, Lever::EvaluationLess | Lever::CompileOff | Lever::ShorterSequence);
            advice.same_model && advice.same_effective_batch && advice.patch.is_some() && !is_aside
        };
        let enough = |advice: &&Advice| !self.is_too_much(advice);
        let list = || self.advice.iter().filter(keeps);
        let chosen = list()
            .find(|advice| advice.same_numbers && enough(advice))
            .or_else(|| list().find(enough))
            .or_else(|| list().next())
            .or_else(|| self.advice.iter().find(|advice| advice.lever == Lever::CompileOff && advice.patch.is_some()));
        chosen.and_then(|advice| advice.patch.clone())
    }

    /// Whether the figures say that this alone is not enough.
    fn is_too_much(&self, advice: &Advice) -> bool {
        let is_fragmented = match self.case.judgement.cause {
            Cause::OutsideAllocator => self.case.fits_in_pieces(),
            cause => cause == Cause::Fragmentation,
        };
        // These make more room, or mend what stood in the way: what there is now says nothing about them.
        let is_enough = match advice.lever {
            Lever::EndOtherProcess | Lever::OtherCard | Lever::RaiseLimit => true,
            Lever::ExpandableSegments => is_fragmented,
            _ => false,
        };
        if self.case.fixed_part_is_too_much() && self.case.counts_parameters() && leaves_the_fixed_part(advice.lever) {
            return true;
        }
        let by_saving = || Some(self.case.least_need()?.saturating_sub(advice.saves_bytes?));
        let peak = advice.expected_peak_bytes.or_else(by_saving);
        !is_enough && peak.zip(self.case.target()).is_some_and(|(peak, target)| peak > target)
    }

    /// Behind the levers that may be enough come those that alone are not, then those that only save time; what changes
    /// the model stays last.
    pub(super) fn what_fits_first(&mut self) {
        if self.case.target().is_none() {
            return;
        }
        let is_exceeded = self.case.fixed_part_is_too_much() || self.case.is_need_by_the_model();
        let mut list = std::mem::take(&mut self.advice);
        let too_much = |advice: &Advice| self.is_too_much(advice);
        list.sort_by_key(|advice| {
            let saves_no_memory = matches!(advice.lever, Lever::EvaluationLess | Lever::CompileOff);
            match advice.same_model && advice.same_effective_batch {
                true if saves_no_memory => 2,
                // Pieces and a reserve make no room for what no step can do without.
                true if is_exceeded && advice.lever == Lever::Reserve => 2,
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

/// Whether a lever changes nothing of weights, gradients and moments.
const fn leaves_the_fixed_part(lever: Lever) -> bool {
    matches!(
        lever,
        Lever::MicroBatch
            | Lever::ChunkedLoss
            | Lever::Recompute
            | Lever::ShorterSequence
            | Lever::AttentionKernel
            | Lever::SmallerInput
            | Lever::ExpandableSegments
            | Lever::EmptyCache
            | Lever::PlainNumbers
    )
}
