//! AdamW in one pass: with a kernel of its own on a GPU, with the engine's fused one elsewhere.
//!
//! On a GPU a factor by which gradients are clipped is applied on the way ([`AdamW::takes_factor`]), and the narrow copies of
//! [`crate::NarrowWeights`] are written with the weights.
//!
//! The moments are allocated once, before the first step; a step then updates everything in place and allocates no tensor
//! memory, so it cannot run out half-way. Should the engine fail in it all the same, what was updated is remembered and
//! calling [`AdamW::step`] again finishes the same step.
//!
//! [`AdamW::spill`] moves the moments to the host. A step then takes them through a small stage on the device, slice by
//! slice, which gives the same numbers: the update of an element looks at no other.
//!
//! [`AdamW::hold`] leaves the moments of most elements to other ranks: each updates the elements whose moments it has.

use std::cell::OnceCell;
use std::ops::Range;

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
    pieces: Vec<Piece>,
}

/// What is updated of a parameter: all of it, unless other ranks hold a part of its moments.
struct Piece {
    /// Its number in the order of the groups.
    index: usize,
    parameter: Tensor,
    /// The elements, where it is not all of them.
    elements: Option<Range<i64>>,
    moments: Option<(Tensor, Tensor)>,
    /// Whether the moments lie within larger ones, which their memory is held for.
    is_uncut: bool,
}

impl Piece {
    fn part_of(&self, whole: &Tensor) -> Tensor {
        match &self.elements {
            Some(elements) => slice(whole, elements),
            None => whole.shallow_clone(),
        }
    }

    fn values(&self) -> Tensor {
        self.part_of(&self.parameter.detach())
    }

    /// The values for a call that records nothing for autograd: without a view where they are all of the parameter. The device waits
    /// for the update, and hundreds of views take as long as a part of it.
    fn values_in_place(&self) -> Tensor {
        match &self.elements {
            Some(_) => self.values(),
            None => self.parameter.shallow_clone(),
        }
    }

    fn gradient(&self) -> Option<Tensor> {
        Some(self.parameter.grad()).filter(Tensor::defined).map(|gradient| self.part_of(&gradient))
    }

    /// Lets go of all but some of its elements.
    fn keep(&mut self, elements: Range<i64>) {
        if elements == (0..length(&self.parameter)) {
            return;
        }
        if let Some((first, second)) = &mut self.moments {
            (*first, *second) = (slice(first, &elements), slice(second, &elements));
            self.is_uncut = true;
        }
        self.elements = Some(elements);
    }

    fn cut(&mut self) -> Result<()> {
        if let Some((first, second)) = &mut self.moments
            && self.is_uncut
        {
            (*first, *second) = attempt(|| (first.copy(), second.copy()))?;
            self.is_uncut = false;
        }
        Ok(())
    }
}

/// Elements of a tensor, in the order of its rows.
fn slice(whole: &Tensor, elements: &Range<i64>) -> Tensor {
    whole.view_([-1_i64]).narrow(0, elements.start, elements.end - elements.start)
}

fn length(tensor: &Tensor) -> i64 {
    i64::try_from(tensor.numel()).unwrap_or(i64::MAX)
}

fn bytes_of(tensor: &Tensor) -> u64 {
    (tensor.numel() * tensor.kind().elt_size_in_bytes()) as u64
}

/// The optimizer and its state.
pub struct AdamW {
    rule: AdamWRule,
    device: Device,
    groups: Vec<Group>,
    /// Steps made; a checkpoint has them beside the moments.
    pub steps: u64,
    step_tensor: Option<Tensor>,
    on_host: bool,
    /// What the moments pass through on their way from the host and back.
    stage: Option<Tensor>,
    cursor: UpdateCursor,
    /// Whether there is a kernel of our own; looked up once.
    by_kernel: OnceCell<bool>,
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
        let device = groups.iter().flat_map(|(_, parameters)| parameters).next().map_or(Device::Cpu, Tensor::device);
        let mut count = 0..;
        let mut piece = |parameter| Piece {
            index: count.next().expect("there is no end to them"),
            parameter,
            elements: None,
            moments: None,
            is_uncut: false,
        };
        let groups = groups.into_iter().map(|(weight_decay, parameters)| {
            let pieces = parameters.into_iter().map(&mut piece).collect();
            Group { weight_decay, pieces }
        });
        let (groups, cursor) = (groups.collect(), UpdateCursor::default());
        let (steps, step_tensor, on_host, stage, by_kernel) = (0, None, false, None, OnceCell::new());
        AdamW { rule, device, groups, steps, step_tensor, on_host, stage, cursor, by_kernel }
    }

    /// Allocates the moments, all zero. A failure leaves the optimizer as it was; a second call changes nothing.
    pub fn allocate(&mut self) -> Result<()> {
        if self.step_tensor.is_some() {
            return Ok(());
        }
        let (step, moments) = attempt(|| {
            let zeros = |piece: &Piece| (piece.values().zeros_like(), piece.values().zeros_like());
            let moments: Vec<_> = self.pieces().map(zeros).collect();
            (Tensor::zeros([], (Kind::Float, self.device)), moments)
        })?;
        self.put(moments);
        self.step_tensor = Some(step);
        Ok(())
    }

    /// Holds the moments of these elements of each parameter and of no others, given its number in the order of the groups; only
    /// those are updated from now on. The moments of all others are forgotten. Parameters and gradients are contiguous.
    ///
    /// This allocates nothing. Memory that the moments of a cut parameter share with forgotten ones is free after
    /// [`AdamW::cut`].
    pub fn hold(&mut self, elements: impl Fn(usize) -> Range<i64>) {
        for group in &mut self.groups {
            group.pieces.retain_mut(|piece| {
                let elements = elements(piece.index);
                let is_held = !elements.is_empty();
                if is_held {
                    piece.keep(elements);
                }
                is_held
            });
        }
    }

    /// Whether [`AdamW::cut`] has something to do.
    #[must_use]
    pub fn is_uncut(&self) -> bool {
        self.pieces().any(|piece| piece.is_uncut)
    }

    /// Gives moments memory of their own where they share it with forgotten ones. What fails can be tried again.
    pub fn cut(&mut self) -> Result<()> {
        if self.on_host && self.is_uncut() {
            // Those on the host lie in one piece of memory.
            return self.move_to_host();
        }
        self.groups.iter_mut().flat_map(|group| &mut group.pieces).try_for_each(Piece::cut)
    }

    /// Which elements of which parameters are held, in the order of [`AdamW::moments`]; `None` is all of them.
    pub fn held(&self) -> impl Iterator<Item = (usize, Option<&Range<i64>>)> {
        self.pieces().map(|piece| (piece.index, piece.elements.as_ref()))
    }

    /// What the moments take.
    #[must_use]
    pub fn moment_bytes(&self) -> u64 {
        2 * self.pieces().map(|piece| bytes_of(&piece.values())).sum::<u64>()
    }

    /// Moves the moments to the host, or allocates them there. A failure leaves their values as they are, wherever they
    /// are then, and the next call goes on; a call after a success changes nothing.
    pub fn spill(&mut self) -> Result<()> {
        if !self.on_host {
            let step = match &self.step_tensor {
                Some(step) => step.shallow_clone(),
                None => attempt(|| Tensor::zeros([], (Kind::Float, self.device)))?,
            };
            self.move_to_host()?;
            self.step_tensor = Some(step);
            self.on_host = true;
        }
        if self.stage.is_none() {
            self.stage = Some(stage(self.largest(), self.device)?);
        }
        Ok(())
    }

    fn move_to_host(&mut self) -> Result<()> {
        let values: Vec<Tensor> = self.pieces().map(Piece::values).collect();
        let now: Vec<(&Tensor, &Tensor)> = self.moments().collect();
        let moved = moments_on_host(&values, &now, self.device)?;
        self.put(moved);
        Ok(())
    }

    /// Takes these moments, in the order of [`AdamW::moments`].
    fn put(&mut self, moments: Vec<(Tensor, Tensor)>) {
        let pieces = self.groups.iter_mut().flat_map(|group| &mut group.pieces);
        for (piece, moments) in pieces.zip(moments) {
            (piece.moments, piece.is_uncut) = (Some(moments), false);
        }
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

    /// Whether [`AdamW::step_by`] takes a factor; elsewhere gradients are scaled before.
    #[must_use]
    pub fn takes_factor(&self) -> bool {
        *self.by_kernel.get_or_init(|| {
            if !self.device.is_cuda() {
                return false;
            }
            let parameters: Vec<_> = self.pieces().map(|piece| piece.parameter.as_ptr()).collect();
            let mut has_kernel = 0;
            // SAFETY: the list is as long as it says; its tensors live in `self` through the call.
            let status = unsafe { ffi::lt_has_update_kernel(parameters.as_ptr(), parameters.len(), &mut has_kernel) };
            status.check().is_ok() && has_kernel != 0
        })
    }

    /// Updates every parameter that has a gradient.
    pub fn step(&mut self, learning_rate: f64) -> Result<()> {
        self.step_by(learning_rate, None)
    }

    /// The same with gradients that are multiplied by `factor`, a scalar on their device, on the way: they stay as they are. A step
    /// that failed is finished with the same factor.
    pub fn step_by(&mut self, learning_rate: f64, factor: Option<&Tensor>) -> Result<()> {
        if self.on_host {
            self.spill()?
        } else {
            self.allocate()?
        }
        let number = self.steps + 1;
        while self.cursor.groups < self.groups.len() {
            if self.on_host {
                self.update_staged(learning_rate, number, factor)?;
            } else {
                self.update(&self.groups[self.cursor.groups], learning_rate, number, factor)?;
            }
            self.cursor = UpdateCursor { groups: self.cursor.groups + 1, ..UpdateCursor::default() };
        }
        if let (true, Device::Cuda(index)) = (self.on_host, self.device) {
            // The copies back to the host do not wait by themselves, and the moments may be read from now on.
            attempt(|| Cuda::synchronize(index as i64))?;
        }
        self.cursor = UpdateCursor::default();
        self.steps = number;
        Ok(())
    }

    /// The moments that are held, in the order of the groups; empty before [`AdamW::allocate`].
    pub fn moments(&self) -> impl Iterator<Item = (&Tensor, &Tensor)> {
        self.pieces().filter_map(|piece| piece.moments.as_ref()).map(|(first, second)| (first, second))
    }

    fn pieces(&self) -> impl Iterator<Item = &Piece> {
        self.groups.iter().flat_map(|group| &group.pieces)
    }

    fn update(&self, group: &Group, learning_rate: f64, number: u64, factor: Option<&Tensor>) -> Result<()> {
        let mut lists = [const { Vec::new() }; 5];
        let updated = |piece: &Piece| Some((piece.values_in_place(), piece.gradient()?));
        let updated: Vec<_> = attempt(|| group.pieces.iter().map(updated).collect())?;
        for (piece, (values, gradient)) in
            group.pieces.iter().zip(&updated).filter_map(|(piece, updated)| Some((piece, updated.as_ref()?)))
        {
            let (first, second) = piece.moments.as_ref().expect("step() allocates first");
            let tensors = [&piece.parameter, values, gradient, first, second];
            lists.iter_mut().zip(tensors).for_each(|(list, tensor)| list.push(tensor.as_ptr()));
        }
        if lists[0].is_empty() {
            return Ok(());
        }
        // SAFETY: the five lists have the same length; their tensors live in `group` and `updated` through the call.
        let status = unsafe {
            ffi::lt_adamw(
                lists[0].as_ptr(),
                lists[1].as_ptr(),
                lists[2].as_ptr(),
                lists[3].as_ptr(),
                lists[4].as_ptr(),
                lists[0].len(),
                self.step_tensor.as_ref().expect("step() allocates first").as_ptr(),
                number as f64,
                self.shim_rule(group, learning_rate),
                i32::from(self.takes_factor()),
                ffi::pointer(factor),
            )
        };
        status.check()
    }

    /// Updates the next group from where it stands, one parameter after the other.
    fn update_staged(&mut self, learning_rate: f64, number: u64, factor: Option<&Tensor>) -> Result<()> {
        let by_kernel = i32::from(self.takes_factor());
        let group = &self.groups[self.cursor.groups];
        let rule = self.shim_rule(group, learning_rate);
        let stage = self.stage.as_ref().expect("step() spills first");
        let step = self.step_tensor.as_ref().expect("step() spills first");
        while let Some(piece) = group.pieces.get(self.cursor.parameters) {
            let index = self.cursor.parameters;
            let (values, gradient) = attempt(|| (piece.values(), piece.gradient()))?;
            if let Some(gradient) = gradient {
                let (first, second) = piece.moments.as_ref().expect("step() spills first");
                // SAFETY: every tensor lives in `self` or beside it through the call; `elements` is written to.
                let status = unsafe {
                    ffi::lt_adamw_staged(
                        values.as_ptr(),
                        gradient.as_ptr(),
                        first.as_ptr(),
                        second.as_ptr(),
                        stage.as_ptr(),
                        step.as_ptr(),
                        number as f64,
                        rule,
                        by_kernel,
                        ffi::pointer(factor),
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
        self.pieces().map(|piece| bytes_of(&piece.values())).max().unwrap_or(0)
    }
}
