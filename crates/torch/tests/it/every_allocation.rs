//! Every single allocation of a training step is failed once.

use lowtide_core::Bytes;
use lowtide_torch::host::HostAction;
use lowtide_torch::tch::{Device, Kind, Tensor};
use lowtide_torch::{AdamW, AdamWRule, TorchError, attempt, gradients, host, rng};

use crate::kit::alone;
use crate::model::{Model, Shape};

/// Where in the step an allocation lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Forward,
    Backward,
    Optimizer,
}

struct Setup {
    model: Model,
    optimizer: AdamW,
    ids: Tensor,
    recompute: bool,
}

impl Setup {
    fn new(recompute: bool) -> Setup {
        rng::seed(Device::Cpu, 3).unwrap();
        let shape = Shape { blocks: 4, width: 32, heads: 4, tokens: 16, vocabulary: 50, dropout: 0.1 };
        let model = Model::new(&shape, Device::Cpu);
        let groups = vec![(0.1, model.parameters.iter().map(Tensor::shallow_clone).collect())];
        let mut optimizer = AdamW::new(AdamWRule::default(), groups);
        optimizer.allocate().unwrap();
        let ids = Tensor::randint(50, [4, 16], (Kind::Int64, Device::Cpu));
        Setup { model, optimizer, ids, recompute }
    }

    /// Forward, backward, clip and update, from the same random state each time.
    fn step(&mut self, phase: &mut Phase) -> Result<(), TorchError> {
        *phase = Phase::Forward;
        let loss = attempt(|| self.model.loss(&self.ids, self.recompute))?;
        *phase = Phase::Backward;
        attempt(|| loss.backward())?;
        *phase = Phase::Optimizer;
        let all = gradients::of(&self.model.parameters);
        attempt(|| gradients::clip(&all, 1.0))??;
        self.optimizer.step(0.0)
    }

    /// The gradients of a step that nothing disturbs.
    fn clean_gradients(&mut self, random: &rng::RngState) -> Vec<Tensor> {
        rng::set_state(Device::Cpu, random).unwrap();
        self.step(&mut Phase::Forward.clone()).unwrap();
        let found = copies(&self.model);
        gradients::release(&self.model.parameters);
        found
    }
}

#[test]
fn every_allocation_fails_once_and_nothing_is_left_behind() {
    let _alone = alone();
    for recompute in [false, true] {
        check(recompute);
    }
}

#[expect(clippy::print_stdout, reason = "figures for whoever asks with --nocapture")]
fn check(recompute: bool) {
    let mut setup = Setup::new(recompute);
    let random = rng::state(Device::Cpu).unwrap();
    let wanted = setup.clean_gradients(&random);

    rng::set_state(Device::Cpu, &random).unwrap();
    let (stepped, events) = host::record(|| setup.step(&mut Phase::Forward.clone()));
    stepped.unwrap();
    let sizes: Vec<Bytes> =
        events.iter().filter(|event| event.action == HostAction::Allocate).map(|event| event.bytes).collect();
    let allocations = sizes.len() as u64;
    gradients::release(&setup.model.parameters);
    assert!(allocations >= 200, "the step makes only {allocations} allocations");

    let level = host::stats().allocated;
    let mut failed = [0; 3];
    for nth in 1..=allocations {
        rng::set_state(Device::Cpu, &random).unwrap();
        let mut phase = Phase::Forward;
        host::fail_nth(nth, 1);
        let error = setup.step(&mut phase).expect_err("the allocation was failed");
        host::fail_nth(1, 0);
        gradients::release(&setup.model.parameters);
        let TorchError::Oom { oom, .. } = &error else {
            panic!("allocation {nth} in {phase:?} is not an out-of-memory error: {error:?}");
        };
        assert_eq!(oom.requested, Some(sizes[nth as usize - 1]), "another allocation than the recorded one failed");
        assert!(host::last_refusal().unwrap().injected);
        assert_eq!(host::stats().allocated, level, "allocation {nth} in {phase:?} left memory behind");
        failed[phase as usize] += 1;

        let found = setup.clean_gradients(&random);
        assert_eq!(found.len(), setup.model.parameters.len());
        for (found, wanted) in found.iter().zip(&wanted) {
            assert!(found.equal(wanted), "after allocation {nth} in {phase:?} the gradients differ");
        }
    }
    println!("recompute {recompute}: {allocations} allocations failed; forward, backward, optimizer: {failed:?}");
    assert!(failed.iter().all(|count| *count > 0), "a phase was never reached: {failed:?}");
}

fn copies(model: &Model) -> Vec<Tensor> {
    gradients::of(&model.parameters).iter().map(Tensor::copy).collect()
}
