//! Out-of-memory errors on demand, so that people can test what their runs do when memory runs out.

use std::cell::RefCell;
use std::str::FromStr;

use lowtide_core::{Phase, Step};
use lowtide_torch::tch::Device;
use lowtide_torch::{TorchError, host};

/// An error that a run is told to meet: written `step=3,phase=backward,times=2,alloc=5`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Injection {
    /// The first step that may fail, counted from 1. Evaluations and checkpoints belong to the step before them.
    pub step: Step,
    /// What fails: forward, backward, optimizer, eval, save, or load, which comes before a resumed run's first step.
    pub phase: Phase,
    /// Tries that fail, one after the other. Default 1.
    pub times: u64,
    /// The allocation that fails, counted from the start of the phase on the CPU. Default 1.
    ///
    /// A phase that makes fewer is done, and the count goes on in the next one like it. On a GPU, whose allocations are
    /// not counted, the phase fails at its start.
    pub alloc: u64,
}

/// A text that is no [`Injection`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InjectionError {
    /// A part is not `key=value` with a known key.
    #[error("`{0}` is not one of step=N, phase=PHASE, times=N and alloc=N")]
    Part(String),
    /// A key is there twice.
    #[error("`{0}` is given twice")]
    Twice(String),
    /// A number is not one.
    #[error("{key} must be a whole number from 1 on, not `{text}`")]
    Number {
        /// The key.
        key: &'static str,
        /// What was typed.
        text: String,
    },
    /// A phase that cannot be made to fail.
    #[error("`{0}` is not a phase: write forward, backward, optimizer, eval, save or load")]
    Phase(String),
    /// What cannot be left out.
    #[error("{0} is missing: write for example step=3,phase=backward")]
    Missing(&'static str),
}

impl FromStr for Injection {
    type Err = InjectionError;

    fn from_str(text: &str) -> Result<Injection, InjectionError> {
        let (mut step, mut phase, mut times, mut alloc) = (None, None, None, None);
        for part in text.split(',') {
            let unknown = || InjectionError::Part(part.to_owned());
            let (key, value) = part.split_once('=').ok_or_else(unknown)?;
            let again = match key.trim() {
                "step" => step.replace(number("step", value)?).is_some(),
                "phase" => phase.replace(injectable(value)?).is_some(),
                "times" => times.replace(number("times", value)?).is_some(),
                "alloc" => alloc.replace(number("alloc", value)?).is_some(),
                _ => return Err(unknown()),
            };
            if again {
                return Err(InjectionError::Twice(key.trim().to_owned()));
            }
        }
        Ok(Injection {
            step: Step(step.ok_or(InjectionError::Missing("step"))?),
            phase: phase.ok_or(InjectionError::Missing("phase"))?,
            times: times.unwrap_or(1),
            alloc: alloc.unwrap_or(1),
        })
    }
}

fn number(key: &'static str, text: &str) -> Result<u64, InjectionError> {
    let wrong = || InjectionError::Number { key, text: text.to_owned() };
    text.trim().parse().ok().filter(|number| *number > 0).ok_or_else(wrong)
}

fn injectable(text: &str) -> Result<Phase, InjectionError> {
    text.parse().map_err(|_| InjectionError::Phase(text.to_owned()))
}

/// Makes the phases of a run fail as it was told.
#[derive(Debug)]
pub(crate) struct Injector {
    device: Device,
    pending: RefCell<Vec<Pending>>,
}

#[derive(Clone, Copy, Debug)]
struct Pending {
    /// With the tries that are left to fail.
    injection: Injection,
    /// Allocations until the one that fails, itself included.
    allocations_left: u64,
}

impl Injector {
    pub(crate) fn new(device: Device, injections: &[Injection]) -> Injector {
        let pending = injections.iter().map(|told| Pending { injection: *told, allocations_left: told.alloc });
        Injector { device, pending: RefCell::new(pending.collect()) }
    }

    /// Does the work of one phase of `step`, or fails it where that was asked for.
    pub(crate) fn during<T, E: From<TorchError>>(
        &self,
        step: Step,
        phase: Phase,
        work: impl FnOnce() -> Result<T, E>,
    ) -> Result<T, E> {
        let due = self.pending.borrow().iter().position(|pending| pending.is_due(step, phase));
        let Some(due) = due else { return work() };
        let allocations = self.pending.borrow()[due].allocations_left;
        if allocations == 1 || self.device != Device::Cpu {
            self.pending.borrow_mut()[due].note_failure();
            return Err(injected(self.device).into());
        }
        let before = host::stats();
        host::fail_nth(allocations, 1);
        let done = work();
        host::fail_nth(1, 0);
        let after = host::stats();
        let pending = &mut self.pending.borrow_mut()[due];
        if done.is_err() && after.refusals > before.refusals {
            pending.note_failure();
        } else {
            let made = after.allocations - before.allocations;
            pending.allocations_left = allocations.saturating_sub(made).max(1);
        }
        done
    }
}

impl Pending {
    fn is_due(&self, step: Step, phase: Phase) -> bool {
        self.injection.times > 0 && self.injection.phase == phase && step >= self.injection.step
    }

    fn note_failure(&mut self) {
        self.injection.times -= 1;
        self.allocations_left = self.injection.alloc;
    }
}

/// The error that the allocator of this device would have raised.
fn injected(device: Device) -> TorchError {
    let name = if device == Device::Cpu { "CPU" } else { "CUDA" };
    let message = format!("{name} out of memory. Tried to allocate 0 bytes. This failure was injected for a test.");
    let oom = lowtide_oom::read(&message).expect("this is how the allocators say it");
    TorchError::Oom { oom: Box::new(oom), message }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn refused(text: &str, expect: &str) {
        assert_eq!(text.parse::<Injection>().unwrap_err().to_string(), expect);
    }

    #[test]
    fn what_is_left_out_is_one() {
        let told: Injection = "step=3,phase=backward".parse().unwrap();
        assert_eq!(told, Injection { step: Step(3), phase: Phase::Backward, times: 1, alloc: 1 });
        let told: Injection = "alloc=5, times=2, phase=save, step=1".parse().unwrap();
        assert_eq!(told, Injection { step: Step(1), phase: Phase::Save, times: 2, alloc: 5 });
    }

    #[test]
    fn bad_texts_are_refused() {
        refused("", "`` is not one of step=N, phase=PHASE, times=N and alloc=N");
        refused("step=3,fase=save", "`fase=save` is not one of step=N, phase=PHASE, times=N and alloc=N");
        refused("step=0,phase=save", "step must be a whole number from 1 on, not `0`");
        refused("step=1,phase=save,times=-1", "times must be a whole number from 1 on, not `-1`");
        refused("step=1,step=2,phase=save", "`step` is given twice");
        refused("step=1", "phase is missing: write for example step=3,phase=backward");
        refused("phase=save", "step is missing: write for example step=3,phase=backward");
        let mend = "write forward, backward, optimizer, eval, save or load";
        refused("step=1,phase=lunch", &format!("`lunch` is not a phase: {mend}"));
    }

    #[test]
    fn it_fires_in_the_first_such_phase_at_or_after_its_step() {
        let told = "step=3,phase=forward,times=2".parse().unwrap();
        for device in [Device::Cpu, Device::Cuda(0)] {
            let injector = Injector::new(device, &[told]);
            let fails = |step, phase| injector.during(Step(step), phase, || Ok::<_, TorchError>(())).is_err();
            assert!(!fails(2, Phase::Forward));
            assert!(!fails(5, Phase::Backward));
            assert!(fails(5, Phase::Forward));
            assert!(fails(5, Phase::Forward));
            assert!(!fails(5, Phase::Forward));
        }
    }
}
