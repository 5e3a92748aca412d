//! The loss head against the plain way, on the CPU. (`gpu.rs` has the same for the kernel.)

use std::num::NonZeroU32;

use lowtide_torch::tch::{Device, Kind, Reduction, Tensor, no_grad_guard};
use lowtide_torch::{Autocast, attempt, host, linear_cross_entropy, rng};

use crate::kit::alone;

const CPU: (Kind, Device) = (Kind::Float, Device::Cpu);

fn chunks(count: u32) -> NonZeroU32 {
    NonZeroU32::new(count).unwrap()
}

struct Case {
    hidden: Tensor,
    weight: Tensor,
    targets: Tensor,
}

fn case(rows: i64, vocabulary: i64) -> Case {
    rng::seed(Device::Cpu, 2).unwrap();
    Case {
        hidden: Tensor::randn([rows, 16], CPU).set_requires_grad(true),
        weight: Tensor::randn([vocabulary, 16], CPU).set_requires_grad(true),
        targets: Tensor::randint(vocabulary, [rows], (Kind::Int64, Device::Cpu)),
    }
}

impl Case {
    fn plain(&self) -> Tensor {
        let logits = self.hidden.linear::<Tensor>(&self.weight, None);
        logits.cross_entropy_loss::<Tensor>(&self.targets, None, Reduction::Sum, -100, 0.0)
    }

    /// Loss and both gradients of a third of it.
    fn run(&self, loss: impl FnOnce() -> Tensor) -> [Tensor; 3] {
        lowtide_torch::gradients::release(&[self.hidden.shallow_clone(), self.weight.shallow_clone()]);
        let loss = loss();
        (&loss / 3.0).backward();
        [loss.detach(), self.hidden.grad().copy(), self.weight.grad().copy()]
    }

    fn check(&self, count: u32, bound: f64) {
        let wanted = self.run(|| self.plain());
        let found = self.run(|| linear_cross_entropy(&self.hidden, &self.weight, &self.targets, chunks(count)));
        for (wanted, found) in wanted.iter().zip(&found) {
            let error = ((wanted - found).norm() / wanted.norm()).double_value(&[]);
            assert!(error < bound, "in {count} chunks: relative error {error}");
        }
    }
}

#[test]
fn loss_and_gradients_are_those_of_the_plain_way() {
    let _alone = alone();
    for count in [1, 2, 3, 7, 40, 1000] {
        case(40, 33).check(count, 1e-5);
    }
}

#[test]
fn targets_that_do_not_count() {
    let _alone = alone();
    let case = case(12, 20);
    let _ = case.targets.get(3).fill_(-100);
    let _ = case.targets.get(11).fill_(-100);
    case.check(1, 1e-5);
    case.check(5, 1e-5);
    let none = Tensor::full([12], -100, (Kind::Int64, Device::Cpu));
    let loss = linear_cross_entropy(&case.hidden, &case.weight, &none, chunks(2));
    assert_eq!(loss.double_value(&[]), 0.0);
}

#[test]
fn under_autocast_it_narrows_the_products_only() {
    let _alone = alone();
    let case = case(40, 33);
    let wanted = case.run(|| case.plain());
    let found = case.run(|| {
        let _narrow = Autocast::enter(Device::Cpu, Kind::BFloat16);
        linear_cross_entropy(&case.hidden, &case.weight, &case.targets, chunks(2))
    });
    assert_eq!(found[0].kind(), Kind::Float);
    for (wanted, found) in wanted.iter().zip(&found) {
        let error = ((wanted - found).norm() / wanted.norm()).double_value(&[]);
        assert!(error > 0.0 && error < 0.02, "bf16 keeps 8 bits: {error}");
    }
}

#[test]
fn without_gradients_only_the_loss() {
    let _alone = alone();
    let case = case(10, 12);
    let _no_grad = no_grad_guard();
    let loss = linear_cross_entropy(&case.hidden, &case.weight, &case.targets, chunks(1));
    assert!(!loss.requires_grad());
    assert!((loss.double_value(&[]) - case.plain().double_value(&[])).abs() < 1e-3);
}

#[test]
fn only_one_side_needs_a_gradient() {
    let _alone = alone();
    let case = case(10, 12);
    let frozen = case.weight.detach();
    linear_cross_entropy(&case.hidden, &frozen, &case.targets, chunks(3)).backward();
    assert!(case.hidden.grad().defined() && !frozen.grad().defined());
}

#[test]
fn chunks_hold_less_and_an_error_is_an_error() {
    let _alone = alone();
    let case = case(512, 4096);
    let peak = |count| {
        host::reset_peak();
        let before = host::stats().allocated;
        let loss = linear_cross_entropy(&case.hidden, &case.weight, &case.targets, chunks(count));
        drop(loss);
        host::stats().peak.saturating_sub(before).get()
    };
    let (whole, pieces) = (peak(1), peak(16));
    assert!(pieces * 4 < whole, "{pieces} against {whole}");
    let wrong = attempt(|| linear_cross_entropy(&case.hidden, &case.hidden.narrow(1, 0, 3), &case.targets, chunks(1)));
    assert!(wrong.is_err());
}

/// The sum over many rows passes fp16's largest number, and the head must not.
#[test]
fn many_rows_stay_finite_in_fp16() {
    let _alone = alone();
    let case = case(4000, 32);
    let targets = Tensor::zeros([4000], (Kind::Int64, Device::Cpu));
    let case = Case { targets, hidden: (case.hidden.detach() + 3.0).set_requires_grad(true), ..case };
    let wanted = case.run(|| case.plain());
    let found = case.run(|| {
        let _narrow = Autocast::enter(Device::Cpu, Kind::Half);
        linear_cross_entropy(&case.hidden, &case.weight, &case.targets, chunks(1))
    });
    for (wanted, found) in wanted.iter().zip(&found) {
        let error = ((wanted - found).norm() / wanted.norm()).double_value(&[]);
        assert!(error < 0.01, "{error}");
    }
}

#[test]
fn wrong_inputs_and_a_second_backward_are_errors() {
    let _alone = alone();
    let case = case(6, 8);
    let narrow_targets = case.targets.to_kind(Kind::Int);
    assert!(attempt(|| linear_cross_entropy(&case.hidden, &case.weight, &narrow_targets, chunks(1))).is_err());
    let few = case.targets.narrow(0, 0, 5);
    assert!(attempt(|| linear_cross_entropy(&case.hidden, &case.weight, &few, chunks(1))).is_err());
    let loss = linear_cross_entropy(&case.hidden, &case.weight, &case.targets, chunks(1));
    loss.backward();
    assert!(attempt(|| loss.backward()).is_err());
}
