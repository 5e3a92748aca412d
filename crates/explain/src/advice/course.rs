//! The course that advice takes: which levers, by the memory that ran out, the cause and the phase, then sorted by what
//! fits.

use lowtide_oom::{Place, Source};

use super::case::Case;
use super::framework::Framework;
use super::list::{Fidelity, List, NOT_MODEL};
use super::serving::Server;
use crate::culprit::{FOREACH, WHOLE_FRAMES};
use crate::facts::Key;
use crate::model::Model;
use crate::patch::{Patch, single};
use crate::{Activity, Advice, Cause, Lever};

/// Advice, the patch for the first of it that has one, and what is to be said of the configuration.
pub(crate) fn advise(case: &Case<'_>) -> (Vec<Advice>, Option<Patch>, Vec<String>) {
    let mut list = List::new(*case);
    match (Server::of(case.oom.engine), case.oom.place) {
        (Some(server), _) => list.serving(server),
        (None, Place::Host) => list.host(),
        (None, Place::Device) => list.device(),
    }
    list.what_fits_first();
    let patch = list.best_patch();
    (list.advice, patch, list.notes)
}

impl List<'_> {
    fn device(&mut self) {
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

    fn evaluation(&mut self) {
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

    fn training(&mut self) {
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

    fn optimizer(&mut self) {
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

    fn loading(&mut self) {
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
    fn contributors(&mut self) {
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

    fn last_resorts(&mut self) {
        let case = self.case;
        if let Some(sequence) = case.facts.sequence().filter(|_| case.is_language_model()) {
            let half = (sequence / 2).max(1);
            let peak = case.after(|model, batch| Model { sequence: half, ..model }.peak(batch));
            self.offer(case.facts.find(Key::Sequence).and_then(|(config, setting)| single(config, setting, half)));
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

    fn host(&mut self) {
        let case = self.case;
        match case.oom.source {
            Source::SharedMemory => {
                self.add(
                    Lever::SharedMemory,
                    "Make /dev/shm larger (docker run --shm-size=8g or --ipc=host; an emptyDir of medium Memory in \
                     Kubernetes), or share \
                     tensors by file_system",
                );
                self.workers();
            }
            Source::ExitStatus => {
                self.add(
                    Lever::CheckLog,
                    "Look whether the kernel ended it: dmesg -T | grep -i 'killed process', or sacct -j JOB \
                     --format=State,MaxRSS",
                );
                self.workers();
            }
            Source::Cgroup | Source::Scheduler => {
                self.limit();
                self.workers();
            }
            Source::Allocator | Source::Heap if case.activity != Some(Activity::DataWorker) => {
                let is_loading = case.activity == Some(Activity::Loading);
                if case.facts.log.address_limit.is_some() {
                    self.process_limit();
                }
                self.add(
                    Lever::LoadInPieces,
                    "Read data and weights in pieces or memory-mapped instead of whole (mmap=True, np.memmap, \
                     streaming)",
                );
                if !is_loading {
                    self.micro_batch();
                }
                self.process_limit();
                self.workers();
            }
            _ => self.workers(),
        }
        self.data_cache();
        self.add(
            Lever::MoreMemory,
            "Run where there is more memory, or add swap so that the end comes as slowness instead",
        );
    }

    /// A limit that the process was started under refuses memory that the machine still has.
    fn process_limit(&mut self) {
        let text = "Look at the limits the process was started under (ulimit -v, which is RLIMIT_AS, and ulimit -d), \
                    and raise one that is below what the machine has";
        self.add(Lever::RaiseLimit, text);
    }

    fn data_cache(&mut self) {
        let facts = self.case.facts;
        let text = match facts.find(Key::Cache).zip(facts.number(Key::Cache)) {
            Some(((config, setting), size)) if size > 1 => {
                let smaller = size / 2;
                self.offer(single(config, setting, smaller));
                format!("Keep less data in memory: {} {smaller} instead of {size}", setting.path.join("."))
            }
            _ => "Keep less data in memory: a smaller cache, fewer prefetched batches (prefetch_factor), no pinned \
                copies"
                .to_owned(),
        };
        self.add(Lever::SmallerDataCache, text);
    }

    fn workers(&mut self) {
        let facts = self.case.facts;
        match facts.find(Key::Workers).zip(facts.number(Key::Workers)) {
            Some(((config, setting), workers)) if workers > 0 => {
                let fewer = workers / 2;
                let text = format!(
                    "Fewer data workers: {} {fewer} instead of {workers}; each holds its own copy of what it reads",
                    setting.path.join(".")
                );
                self.offer(single(config, setting, fewer));
                self.add(Lever::FewerWorkers, text);
            }
            Some(_) => {}
            None => self
                .add(Lever::FewerWorkers, "Fewer data workers (num_workers): each holds its own copy of what it reads"),
        }
    }
}
