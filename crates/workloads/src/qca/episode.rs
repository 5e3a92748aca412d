//! An episode as a chain of segments of a few applications each.

use lowtide_torch::tch::Tensor;
use lowtide_torch::{Segment, Shared};

use super::operator::Operator;
use super::settings::ModelSettings;

/// The chain: from start states (n, c, y, x) to the states at the end, then the memory where there is one.
///
/// With symmetry the end holds 2 n states: those from the start states, then those from the turned start states.
pub(crate) fn segments(settings: &ModelSettings, operator: &Shared<Operator>) -> Vec<Segment> {
    let mut left = settings.qca_steps;
    let mut segments = Vec::new();
    while left > 0 {
        let steps = left.min(settings.segment_steps);
        segments.push(if segments.is_empty() { first(settings, operator, steps) } else { next(operator, steps) });
        left -= steps;
    }
    segments
}

fn first(settings: &ModelSettings, operator: &Shared<Operator>, steps: u32) -> Segment {
    let operator = operator.clone();
    let symmetry = settings.symmetry;
    Segment::new(move |inputs| {
        let states = if symmetry { with_turned(&inputs[0]) } else { inputs[0].shallow_clone() };
        apply(&operator, operator.begin(&states), steps)
    })
}

fn next(operator: &Shared<Operator>, steps: u32) -> Segment {
    let operator = operator.clone();
    Segment::new(move |inputs| apply(&operator, inputs.iter().map(Tensor::shallow_clone).collect(), steps))
}

fn apply(operator: &Operator, carried: Vec<Tensor>, steps: u32) -> Vec<Tensor> {
    (0..steps).fold(carried, |carried, _| operator.step(&carried))
}

fn with_turned(states: &Tensor) -> Tensor {
    Tensor::cat(&[states, &turned(states)], 0)
}

/// The states, turned by 90 degrees about the middle of the grid.
pub(crate) fn turned(states: &Tensor) -> Tensor {
    states.rot90(1, [2, 3])
}
