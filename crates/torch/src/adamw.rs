//! AdamW with the engine's fused kernel.
//!
//! The moments are allocated once, before the first step; a step then updates everything in place and allocates no tensor
//! memory, so it cannot run out half-way. Should the engine fail in it all the same, what was updated is remembered and
//! calling [`AdamW::step`] again finishes the same step.
//!
//! [`AdamW::spill`] moves the moments to the host. A step then takes them through a small stage on the device, slice by
//! slice, which gives the same numbers: the update of an element looks at no other.

use tch::{Cuda, Device, Kind, Tensor};

use crate::attempt::attempt;
use crate::error::Result;
use crate::ffi;
use crate::host_moments::{moments_on_host, stage, stage_bytes};

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
    /// Steps made; a checkpoint has them beside the moments.
    pub steps: u64,
    step_tensor: Option<Tensor>,
    on_host: bool,
    /// What the moments pass through on their way from the host and back.
    stage: Option<Tensor>,
    cursor: UpdateCursor,
}

/// How far a step that did not finish has come.
#[derive(Clone, Copy, Default)]
struct UpdateCursor {
    groups: usize,
    /// Parameters of the next group, where it is updated one by one.
    parameters: usize,
    /// Elements of the next of those.
    elements: i64,
}

impl AdamW {
    /// An optimizer over groups of parameters with their weight decay. Allocates nothing yet.
    #[must_use]
    pub fn new(rule: AdamWRule, groups: Vec<(f64, Vec<Tensor>)>) -> AdamW {
        let groups = groups
            .into_iter()
            .map(|(weight_decay, parameters)| Group { weight_decay, parameters, first: Vec::new(), second: Vec::new() })
            .collect();
        let cursor = UpdateCursor::default();
        AdamW { rule, groups, steps: 0, step_tensor: None, on_host: false, stage: None, cursor }
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

    /// Moves the moments to the host, or allocates them there. A failure leaves their values as they are, wherever they
    /// are then, and the next call goes on; a call after a success changes nothing.
    pub fn spill(&mut self) -> Result<()> {
        let device = self.device();
        if !self.on_host {
            let step = match &self.step_tensor {
                Some(step) => step.shallow_clone(),
                None => attempt(|| Tensor::zeros([], (Kind::Float, device)))?,
            };
            let parameters: Vec<&Tensor> = self.groups.iter().flat_map(|group| &group.parameters).collect();
            let now: Vec<(&Tensor, &Tensor)> = self.moments().collect();
            let mut moved = moments_on_host(&parameters, &now, device)?.into_iter();
            for group in &mut self.groups {
                (group.first, group.second) = moved.by_ref().take(group.parameters.len()).unzip();
            }
            self.step_tensor = Some(step);
            self.on_host = true;
        }
        if self.stage.is_none() {
            self.stage = Some(stage(self.largest(), device)?);
        }
        Ok(())
    }

    /// Whether the moments are on the host.
    #[must_use]
    pub fn is_spilled(&self) -> bool {
        self.on_host
    }

    /// What the device holds for the update once the moments are on the host.
    #[must_use]
    pub fn stage_bytes(&self) -> u64 {
        stage_bytes(self.largest())
    }

    /// Updates every parameter that has a gradient.
    pub fn step(&mut self, learning_rate: f64) -> Result<()> {
        if self.on_host {
            self.spill()?
        } else {
            self.allocate()?
        }
        let number = self.steps + 1;
        while self.cursor.groups < self.groups.len() {
            if self.on_host {
                self.update_staged(learning_rate, number)?;
            } else {
                self.update(&self.groups[self.cursor.groups], learning_rate, number)?;
            }
            self.cursor = UpdateCursor { groups: self.cursor.groups + 1, ..UpdateCursor::default() };
        }
        if let (true, Device::Cuda(index)) = (self.on_host, self.device()) {
            // The copies back to the host do not wait by themselves, and the moments may be read from now on.
            attempt(|| Cuda::synchronize(index as i64))?;
        }
        self.cursor = UpdateCursor::default();
        self.steps = number;
        Ok(())
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
        // SAFETY: the four lists have the same length; their tensors live in `group` and `gradients` through the call.
        let status = unsafe {
            ffi::lt_adamw(
                lists[0].as_ptr(),
                lists[1].as_ptr(),
                lists[2].as_ptr(),
                lists[3].as_ptr(),
                gradients.len(),
                self.step_tensor.as_ref().expect("step() allocates first").as_ptr(),
                number as f64,
                self.shim_rule(group, learning_rate),
            )
        };
        status.check()
    }

    /// Updates the next group from where it stands, one parameter after the other.
    fn update_staged(&mut self, learning_rate: f64, number: u64) -> Result<()> {
        let group = &self.groups[self.cursor.groups];
        let rule = self.shim_rule(group, learning_rate);
        let stage = self.stage.as_ref().expect("step() spills first");
        let step = self.step_tensor.as_ref().expect("step() spills first");
        while let Some(parameter) = group.parameters.get(self.cursor.parameters) {
            let index = self.cursor.parameters;
            let gradient = parameter.grad();
            if gradient.defined() {
                // SAFETY: every tensor lives in `self` or in `gradient` through the call; `elements` is written to.
                let status = unsafe {
                    ffi::lt_adamw_staged(
                        parameter.as_ptr(),
                        gradient.as_ptr(),
                        group.first[index].as_ptr(),
                        group.second[index].as_ptr(),
                        stage.as_ptr(),
                        step.as_ptr(),
                        number as f64,
                        rule,
                        &mut self.cursor.elements,
                    )
                };
                status.check()?;
            }
            self.cursor = UpdateCursor { parameters: index + 1, elements: 0, ..self.cursor };
        }
        Ok(())
    }

    fn shim_rule(&self, group: &Group, learning_rate: f64) -> ffi::AdamwRule {
        ffi::AdamwRule {
            learning_rate,
            beta1: self.rule.beta1,
            beta2: self.rule.beta2,
            weight_decay: group.weight_decay,
            epsilon: self.rule.epsilon,
        }
    }

    /// Bytes of the largest moment.
    fn largest(&self) -> u64 {
        let bytes = |tensor: &Tensor| (tensor.numel() * tensor.kind().elt_size_in_bytes()) as u64;
        self.groups.iter().flat_map(|group| &group.parameters).map(bytes).max().unwrap_or(0)
    }

    fn device(&self) -> Device {
        self.groups.iter().flat_map(|group| &group.parameters).next().map_or(Device::Cpu, Tensor::device)
    }
}
