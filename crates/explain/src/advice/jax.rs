//! The share of a card that JAX takes for its pool: a larger one where the pool was too small and nobody else is there, a smaller
//! one where libraries, other frameworks or other programs need room beside it.

use lowtide_oom::{DeviceKind, Engine, Place, Source};

use super::case::Case;
use super::framework::Framework;
use super::list::{ALL, List};
use crate::log::Flag;
use crate::{Cause, Lever};

/// A pool of this share has nothing left to take: contexts and libraries need the rest.
const LARGEST: f64 = 0.95;
/// What JAX takes where nobody says.
const USUAL: f64 = 0.75;

impl Case<'_> {
    /// The share that JAX was given; above one it takes host memory too.
    fn jax_share(&self) -> Option<f64> {
        let share = self.facts.flags.value(Flag::JaxShare)?.parse::<f64>().ok();
        share.filter(|share| *share > 0.0)
    }

    /// Whether JAX was told not to take its share at the start.
    fn grows_its_pool(&self) -> bool {
        self.facts.flags.value(Flag::JaxPreallocation).is_some() && !self.facts.flags.is_on(Flag::JaxPreallocation)
    }

    /// Whether somebody else needs room on the card: another program, another framework in this one, a library.
    fn needs_room_beside_jax(&self) -> bool {
        let is_library = self.oom.source != Source::Allocator;
        is_library || self.has(Cause::OtherProcess) || self.facts.flags.is_on(Flag::OtherFramework)
    }

    /// Whether the pool itself was too small: its share is known, or libraries had their room when something was computed before.
    fn jax_pool_is_small(&self) -> bool {
        let is_known = self.jax_share().is_some() || self.grows_its_pool() || self.has_run();
        let is_card = self.framework() == Framework::Jax && self.oom.device_kind != Some(DeviceKind::Tpu);
        is_card && self.oom.engine == Engine::Xla && is_known && !self.needs_room_beside_jax()
    }

    /// How JAX takes less, from what it takes now.
    pub(super) fn smaller_jax_share(&self) -> Option<String> {
        let share = self.jax_share();
        let below = share.map_or(USUAL, |share| share.min(USUAL + 0.2) - 0.2).max(0.1);
        let fraction = match share {
            Some(share) if below < share => {
                format!("XLA_PYTHON_CLIENT_MEM_FRACTION={below:.2} or less instead of {share:.2}")
            }
            Some(_) => String::new(),
            None => format!("XLA_PYTHON_CLIENT_MEM_FRACTION below {USUAL}"),
        };
        match (self.grows_its_pool(), fraction.is_empty()) {
            (true, true) => None,
            (true, false) => Some(fraction),
            (false, true) => Some("XLA_PYTHON_CLIENT_PREALLOCATE=false".to_owned()),
            (false, false) => Some(format!("XLA_PYTHON_CLIENT_PREALLOCATE=false, or {fraction}")),
        }
    }
}

impl List<'_> {
    /// What JAX takes of the card, where the log shows it.
    pub(super) fn jax_pool(&mut self) {
        let case = self.case;
        if case.jax_pool_is_small() {
            return self.larger_jax_pool();
        }
        if case.jax_share().is_none() && !case.grows_its_pool() {
            if let Some(text) = Framework::Jax.preallocation() {
                self.add(Lever::LeaveRoom, text, ALL);
            }
            return;
        }
        if let Some(less) = case.smaller_jax_share() {
            self.add(
                Lever::LeaveRoom,
                format!("Take less from the start: {less}; others and libraries need room beside it"),
                ALL,
            );
        }
    }

    /// A larger pool on a card that is otherwise empty.
    pub(super) fn larger_jax_pool(&mut self) {
        if self.case.needs_room_beside_jax() {
            return;
        }
        let share = self.case.jax_share();
        let keep = match self.case.grows_its_pool() {
            true => "; and remove XLA_PYTHON_CLIENT_PREALLOCATE=false, because a pool that grows gets fragmented",
            false => "; preallocation stays on",
        };
        let text = match share {
            Some(share) if share >= LARGEST && !self.case.grows_its_pool() => {
                let text = format!(
                    "Let the pool spill to the machine's memory: TF_FORCE_UNIFIED_MEMORY=1 with XLA_PYTHON_CLIENT_MEM_FRACTION above 1, \
                     slowly; a share of {share:.2} has nothing left to raise"
                );
                return self.add(Lever::Offload, text, ALL);
            }
            Some(share) if share >= LARGEST => {
                "Take the pool at the start: remove XLA_PYTHON_CLIENT_PREALLOCATE=false, because a pool that grows gets fragmented"
                    .to_owned()
            }
            Some(share) => format!(
                "A larger pool, where nothing else is on the card: XLA_PYTHON_CLIENT_MEM_FRACTION={LARGEST} instead of \
                 {share:.2}{keep}"
            ),
            None => format!(
                "A larger pool, where nothing else is on the card: XLA_PYTHON_CLIENT_MEM_FRACTION={LARGEST} (JAX takes {USUAL} of the \
                 card unless told){keep}"
            ),
        };
        self.add(Lever::RaiseLimit, text, ALL);
    }

    /// What JAX was given of the card, where that is what stands in the way: too little for itself, or too much beside PyTorch or
    /// TensorFlow in the same program.
    pub(super) fn share_of_jax(&mut self) {
        let case = self.case;
        // A share below the usual one is what stands in the way first.
        if case.jax_pool_is_small() && case.jax_share().is_some_and(|share| share < USUAL) {
            return self.larger_jax_pool();
        }
        let is_shared = case.oom.place == Place::Device
            && case.oom.device_kind != Some(DeviceKind::Tpu)
            && matches!(case.framework(), Framework::Torch | Framework::Tensorflow)
            && (case.jax_share().is_some() || case.facts.flags.is_on(Flag::JaxPreallocation));
        if let Some(less) = case.smaller_jax_share().filter(|_| is_shared) {
            self.add(
                Lever::LeaveRoom,
                format!("Let JAX, which shares the card, take less of it from the start: {less}"),
                ALL,
            );
        }
    }
}
