//! Out-of-memory errors on demand, so that people can test what their runs do when memory runs out.

use std::cell::RefCell;

use lowtide_core::{Injection, Phase, Step};
use lowtide_torch::tch::Device;
use lowtide_torch::{TorchError, host};

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
    /// Those that `rank` was told to meet.
    pub(crate) fn new(device: Device, rank: u32, injections: &[Injection]) -> Injector {
        let own = injections.iter().filter(|told| told.rank == rank);
        let pending = own.map(|told| Pending { injection: *told, allocations_left: told.alloc });
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

    #[test]
    fn it_fires_in_the_first_such_phase_at_or_after_its_step() {
        let told = "step=3,phase=forward,times=2".parse().unwrap();
        for device in [Device::Cpu, Device::Cuda(0)] {
            let injector = Injector::new(device, 0, &[told]);
            let fails = |step, phase| injector.during(Step(step), phase, || Ok::<_, TorchError>(())).is_err();
            assert!(!fails(2, Phase::Forward));
            assert!(!fails(5, Phase::Backward));
            assert!(fails(5, Phase::Forward));
            assert!(fails(5, Phase::Forward));
            assert!(!fails(5, Phase::Forward));
            let of_another = Injector::new(device, 1, &[told]);
            assert!(of_another.during(Step(5), Phase::Forward, || Ok::<_, TorchError>(())).is_ok());
        }
    }
}
