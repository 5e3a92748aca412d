//! Makes the parameters of a model and remembers them by name. `layers.rs` and each model add layers to it.

use std::collections::BTreeMap;

use lowtide_torch::tch::{Device, Kind, Tensor};

/// Parameters by name, drawn from the engine's generator.
pub(crate) struct Store {
    pub(crate) device: Device,
    parameters: BTreeMap<String, Tensor>,
}

impl Store {
    pub(crate) fn new(device: Device) -> Store {
        Store { device, parameters: BTreeMap::new() }
    }

    pub(crate) fn into_parameters(self) -> BTreeMap<String, Tensor> {
        self.parameters
    }

    /// Even between plus and minus `bound`.
    pub(crate) fn uniform(&mut self, name: String, shape: &[i64], bound: f64) -> Tensor {
        let value = (Tensor::rand(shape, (Kind::Float, self.device)) * 2.0 - 1.0) * bound;
        self.keep(name, value)
    }

    pub(crate) fn zeros(&mut self, name: String, shape: &[i64]) -> Tensor {
        let value = Tensor::zeros(shape, (Kind::Float, self.device));
        self.keep(name, value)
    }

    pub(crate) fn keep(&mut self, name: String, value: Tensor) -> Tensor {
        let value = value.set_requires_grad(true);
        self.parameters.insert(name, value.shallow_clone());
        value
    }
}
