//! Which levers a device has, by cause and phase, in order.

use super::framework::Framework;
use super::list::{Fidelity, List, NOT_MODEL};
use crate::culprit::{FOREACH, WHOLE_FRAMES};
use crate::facts::Key;
use crate::log::Activity;
use crate::patch::single;
use crate::verdict::{Cause, Lever};

impl List<'_> {
    pub(super) fn device(&mut self) {
        let case = self.case;
        match case.judgement.cause {
            Cause::Fragmentation => self.expandable(),
            Cause::OtherProcess => self.other_process(),
            Cause::Limit => self.limit(),
            Cause::OutsideAllocator => self.outside(),
            Cause::Need | Cause::HostMemory => {}
        }
        match case.activity {
            Some(Activity::Evaluation) => self.evaluation(),
            Some(Activity::Optimizer) => self.optimizer(),
            Some(Activity::Loading) => self.loading(),
            _ => self.training(),
        }
        self.last_resorts();
    }

    pub(super) fn evaluation(&mut self) {
        let frames = self.case.culprit.is_some_and(|culprit| culprit.name == WHOLE_FRAMES)
            || self.case.facts.number(Key::Crop).is_some();
        if frames {
            self.crop();
        }
        if self.case.facts.find(Key::EvalBatch).is_some() || !self.case.facts.is_nanogpt() {
            self.evaluation_batch();
        }
        if self.case.facts.is_nanogpt() {
            self.micro_batch();
        }
        if self.case.is_language_model() {
            self.chunked_loss();
        }
        if self.case.has(Cause::Fragmentation) {
            self.expandable();
            self.empty_cache();
        }
        self.contributors();
        self.evaluate_less();
        self.compile_off();
        self.precision();
    }

    fn empty_cache(&mut self) {
        if self.case.framework() != Framework::Torch {
            return;
        }
        self.add(
            Lever::EmptyCache,
            "Give cached memory back before an evaluation and every few batches of it: gc.collect(), then \
             torch.cuda.empty_cache(); delete its outputs as soon as they are numbers",
        );
    }

    pub(super) fn training(&mut self) {
        self.micro_batch();
        if self.case.is_language_model() {
            self.chunked_loss();
        }
        self.recompute();
        self.contributors();
        self.compile_off();
        self.precision();
        self.spill();
    }

    pub(super) fn optimizer(&mut self) {
        self.contributors();
        if self.case.culprit.is_some_and(|culprit| culprit.name == FOREACH) {
            self.no_temporaries();
        }
        self.spill();
        self.no_temporaries();
        self.micro_batch();
        self.recompute();
        self.precision();
    }

    fn no_temporaries(&mut self) {
        if self.case.framework() != Framework::Torch {
            return;
        }
        self.add(
            Lever::LeaveRoom,
            "Update without whole-model temporaries: fused=True (or foreach=False) for the optimizer",
        );
    }

    pub(super) fn loading(&mut self) {
        self.contributors();
        self.add(
            Lever::LoadInPieces,
            format!(
                "Load weights to the host first{}, move them once, and delete the checkpoint before the optimizer is \
                 made",
                self.case.framework().to_host()
            ),
        );
        self.precision();
        self.spill();
    }

    /// What contributed is worth mending where it is large.
    pub(super) fn contributors(&mut self) {
        if self.case.has(Cause::Fragmentation) {
            self.expandable();
        }
        if self.case.has(Cause::OtherProcess) {
            self.other_process();
        }
        if self.case.has(Cause::Limit) {
            self.limit();
        }
    }

    pub(super) fn last_resorts(&mut self) {
        let case = self.case;
        if let Some(sequence) = case.facts.sequence().filter(|_| case.is_language_model()) {
            let half = (sequence / 2).max(1);
            let peak = case.after(|model, batch| model.with_sequence(half).peak(batch));
            let patch = case.facts.find(Key::Sequence).and_then(|(config, setting)| single(config, setting, half));
            self.offer(patch);
            self.push(
                Lever::ShorterSequence,
                format!("Shorter sequences: {half} instead of {sequence}; the model sees less context"),
                peak,
                Fidelity { batch: false, model: false, numbers: false },
            );
        }
        let text = match case.facts.number(Key::HiddenChannels) {
            Some(channels) => {
                format!("A smaller model, last of all: {} hidden channels instead of {channels}", (channels / 2).max(1))
            }
            None => "A smaller model, last of all".to_owned(),
        };
        self.push(Lever::SmallerModel, text, None, NOT_MODEL);
    }
}
