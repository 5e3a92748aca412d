//! AdamW with the engine's fused kernel.
//!
//! The moments are allocated once, before the first step; a step then updates everything in place and allocates no tensor
//! memory, so it cannot run out half-way. Should the engine fail in it all the same, the groups that were updated are
//! remembered and calling [`AdamW::step`] again finishes the same step.

use tch::{Device, Kind, Tensor};

use crate::attempt::attempt;
use crate::error::Result;
use crate::ffi;

/// The constants of the update.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AdamWRule {
    /// Decay of the mean of gradients. Default 0.9.
    pub beta1: f64,
    /// Decay of the mean of squares. Default 0.95, as for GPT-2.
    pub beta2: f64,
    /// Added to the root of the mean of squares. Default 1e-8.
    pub epsilon: f64,
}

impl Default for AdamWRule {
    fn default() -> AdamWRule {
        AdamWRule { beta1: 0.9, beta2: 0.95, epsilon: 1e-8 }
    }
}

/// Parameters that share a weight decay.
struct Group {
    weight_decay: f64,
    parameters: Vec<Tensor>,
    first: Vec<Tensor>,
    second: Vec<Tensor>,
}

/// The optimizer and its state.
pub struct AdamW {
    rule: AdamWRule,
    groups: Vec<Group>,
    steps: u64,
    step_tensor: Option<Tensor>,
    /// Groups already updated in a step that did not finish.
    updated: usize,
}

impl AdamW {
    /// An optimizer over groups of parameters with their weight decay. Allocates nothing yet.
    #[must_use]
    pub fn new(rule: AdamWRule, groups: Vec<(f64, Vec<Tensor>)>) -> AdamW {
        let groups = groups
            .into_iter()
            .map(|(weight_decay, parameters)| Group { weight_decay, parameters, first: Vec::new(), second: Vec::new() })
            .collect();
        AdamW { rule, groups, steps: 0, step_tensor: None, updated: 0 }
    }

    /// Allocates the moments, all zero. A failure leaves the optimizer as it was; a second call changes nothing.
    pub fn allocate(&mut self) -> Result<()> {
        if self.step_tensor.is_some() {
            return Ok(());
        }
        let device = self.device();
        let (step, moments) = attempt(|| {
            let zeros = |group: &Group| group.parameters.iter().map(Tensor::zeros_like).collect::<Vec<_>>();
            let moments: Vec<_> = self.groups.iter().map(|group| (zeros(group), zeros(group))).collect();
            (Tensor::zeros([], (Kind::Float, device)), moments)
        })?;
        for (group, (first, second)) in self.groups.iter_mut().zip(moments) {
            group.first = first.into_iter().map(|moment| moment.set_requires_grad(false)).collect();
            group.second = second.into_iter().map(|moment| moment.set_requires_grad(false)).collect();
        }
        self.step_tensor = Some(step);
        Ok(())
    }

    /// Updates every parameter that has a gradient.
    pub fn step(&mut self, learning_rate: f64) -> Result<()> {
        self.allocate()?;
        let number = self.steps + 1;
        while self.updated < self.groups.len() {
            self.update(&self.groups[self.updated], learning_rate, number)?;
            self.updated += 1;
        }
        self.updated = 0;
        self.steps = number;
        Ok(())
    }

    /// Steps made.
    #[must_use]
    pub fn steps(&self) -> u64 {
        self.steps
    }

    /// Says how many steps were made, when the moments are restored from a checkpoint.
    pub fn restore_steps(&mut self, steps: u64) {
        self.steps = steps;
    }

    /// The moments of each parameter, in the order of the groups; empty before [`AdamW::allocate`].
    pub fn moments(&self) -> impl Iterator<Item = (&Tensor, &Tensor)> {
        self.groups.iter().flat_map(|group| group.first.iter().zip(&group.second))
    }

    fn update(&self, group: &Group, learning_rate: f64, number: u64) -> Result<()> {
        let mut lists = [const { Vec::new() }; 4];
        let mut gradients = Vec::new();
        for (index, parameter) in group.parameters.iter().enumerate() {
            let gradient = parameter.grad();
            if !gradient.defined() {
                continue;
            }
            lists[0].push(parameter.as_ptr());
            lists[1].push(gradient.as_ptr());
            lists[2].push(group.first[index].as_ptr());
            lists[3].push(group.second[index].as_ptr());
            gradients.push(gradient);
        }
        if gradients.is_empty() {
            return Ok(());
        }
        let step = self.step_tensor.as_ref().expect("allocate ran before");
        let rule = ffi::AdamwRule {
            learning_rate,
            beta1: self.rule.beta1,
            beta2: self.rule.beta2,
            weight_decay: group.weight_decay,
            epsilon: self.rule.epsilon,
        };
        // SAFETY: the four lists have the same length; their tensors live in `group` and `gradients` through the call.
        let status = unsafe {
            ffi::lt_adamw(
                lists[0].as_ptr(),
                lists[1].as_ptr(),
                lists[2].as_ptr(),
                lists[3].as_ptr(),
                gradients.len(),
                step.as_ptr(),
                number as f64,
                rule,
            )
        };
        status.check()
    }

    fn device(&self) -> Device {
        self.groups.iter().flat_map(|group| &group.parameters).next().map_or(Device::Cpu, Tensor::device)
    }
}
