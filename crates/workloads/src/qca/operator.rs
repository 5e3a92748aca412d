//! One step of the automaton.
//!
//! A U-Net with h, 2h, 4h and 8h channels: two convolutions at each level on the way down, a transposed and a plain one on
//! the way up, and a 1 x 1 output. It adds a small change to the state and scales the sum back to the state's norm. The
//! state is real: `d_state` real parts, then `d_state` imaginary parts. Shapes: n states, c channels, y and x cells.
//!
//! Without a memory an episode carries the state alone; with one it carries the state, then what the memory shows (h) and
//! what it holds (c), both at an eighth of the grid.

use std::collections::BTreeMap;

use lowtide_torch::tch::{Device, Kind, Tensor};

use super::settings::{HALVINGS, ModelSettings, OperatorName};
use crate::layers::{Conv, Double, Output, Store};

/// How much of the output is added to the state.
const CHANGE: f64 = 0.1;

/// The learned operator.
pub struct Operator {
    down: [Pair; 4],
    double: [Double; 3],
    up: [Conv; 3],
    output: Output,
    memory: Option<ConvLstm>,
}

/// Two convolutions, each with its SiLU.
struct Pair(Conv, Conv);

/// A memory at the bottleneck: what it shows goes up in place of what came down.
struct ConvLstm {
    gates: Conv,
    width: i64,
}

impl Operator {
    /// A fresh operator, drawn from the engine's generator, with its parameters by name. Its output is zero.
    #[must_use]
    pub fn new(settings: &ModelSettings, device: Device) -> (Operator, BTreeMap<String, Tensor>) {
        let mut store = Store::new(device);
        let (c, h) = (settings.channels(), i64::from(settings.hidden_channels));
        let down = [
            Pair::new(&mut store, "e1", c, h),
            Pair::new(&mut store, "e2", h, 2 * h),
            Pair::new(&mut store, "e3", 2 * h, 4 * h),
            Pair::new(&mut store, "e4", 4 * h, 8 * h),
        ];
        let double = [
            store.double("u3", 8 * h, 4 * h),
            store.double("u2", 4 * h, 2 * h),
            store.double("u1", 2 * h, h), //
        ];
        let up = [
            store.conv("d3.0", 8 * h, 4 * h),
            store.conv("d2.0", 4 * h, 2 * h),
            store.conv("d1.0", 2 * h, h), //
        ];
        let output = store.output("out", h, c);
        let memory = match settings.operator {
            OperatorName::UnetUnitary => None,
            OperatorName::UnetConvlstm => Some(ConvLstm::new(&mut store, 8 * h)),
        };
        (Operator { down, double, up, output, memory }, store.into_parameters())
    }

    /// What an episode carries at its start: the states, and an empty memory where the operator has one.
    #[must_use]
    pub fn begin(&self, state: &Tensor) -> Vec<Tensor> {
        let mut carried = vec![state.shallow_clone()];
        if let Some(memory) = &self.memory {
            carried.extend(memory.empty(state));
        }
        carried
    }

    /// One application: what the episode carries before it, to what it carries after it.
    #[must_use]
    pub fn step(&self, carried: &[Tensor]) -> Vec<Tensor> {
        let state = &carried[0];
        let mut levels = vec![self.down[0].apply(state)];
        for pair in &self.down[1..] {
            let above = levels.last().expect("the first level is there");
            levels.push(pair.apply(&halve(above)));
        }
        let bottom = levels.pop().expect("there are four levels");
        let (mut y, rest) = match &self.memory {
            Some(memory) => memory.apply(&bottom, &carried[1], &carried[2]),
            None => (bottom, Vec::new()),
        };
        for (double, conv) in self.double.iter().zip(&self.up) {
            let level = levels.pop().expect("a level for each doubling");
            y = conv.apply(&Tensor::cat(&[double.apply(&y), level], 1)).silu();
        }
        let changed = state + self.output.apply(&y) * CHANGE;
        let mut after = vec![keep_norm(&changed, state)];
        after.extend(rest);
        after
    }
}

impl Pair {
    fn new(store: &mut Store, name: &str, input: i64, output: i64) -> Pair {
        let first = store.conv(&format!("{name}.0"), input, output);
        Pair(first, store.conv(&format!("{name}.2"), output, output))
    }

    fn apply(&self, x: &Tensor) -> Tensor {
        self.1.apply(&self.0.apply(x).silu()).silu()
    }
}

impl ConvLstm {
    fn new(store: &mut Store, width: i64) -> ConvLstm {
        ConvLstm { gates: store.conv("memory.gates", 2 * width, 4 * width), width }
    }

    fn empty(&self, state: &Tensor) -> [Tensor; 2] {
        let (n, _, y, x) = state.size4().expect("a state has four dimensions");
        let shape = [n, self.width, y >> HALVINGS, x >> HALVINGS];
        let zeros = || Tensor::zeros(shape, (Kind::Float, state.device()));
        [zeros(), zeros()]
    }

    /// What it shows now, and the new (h, c) to carry, both in 32 bits.
    fn apply(&self, x: &Tensor, shown: &Tensor, held: &Tensor) -> (Tensor, Vec<Tensor>) {
        let gates = self.gates.apply(&Tensor::cat(&[x, shown], 1)).to_kind(Kind::Float);
        let [write, forget, show, value] = <[Tensor; 4]>::try_from(gates.chunk(4, 1)).expect("four gates");
        let held = forget.sigmoid() * held + write.sigmoid() * value.tanh();
        let shown = show.sigmoid() * held.tanh();
        (shown.shallow_clone(), vec![shown, held])
    }
}

fn halve(x: &Tensor) -> Tensor {
    x.max_pool2d(2, 2, 0, 1, false)
}

/// `changed`, scaled so that each state has the norm that it has in `state`.
fn keep_norm(changed: &Tensor, state: &Tensor) -> Tensor {
    (changed * (norm(state) / norm(changed))).to_kind(state.kind())
}

fn norm(states: &Tensor) -> Tensor {
    let squares = states.to_kind(Kind::Float).square();
    squares.sum_dim_intlist([1i64, 2, 3].as_slice(), true, None).sqrt()
}
