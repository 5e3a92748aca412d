//! What the same lever is called in each framework.

use lowtide_oom::{Engine, Place};

use super::case::Case;
use crate::log::Sign;

/// Whose words advice is given in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Framework {
    Torch,
    Tensorflow,
    Jax,
    /// One whose words are not known here.
    Other,
}

impl Case<'_> {
    /// Whether Caffe or MXNet asked: the driver's word is about a layer's tensors.
    fn is_caffe_or_mxnet(&self) -> bool {
        let words = ["syncedmem", "cudaSuccess (2 vs. 0)", "Out of memory: failed to allocate", "mxnet"];
        words.iter().any(|words| self.message.contains(words))
    }

    /// What may be kept from step to step, in the words of the framework.
    pub(crate) fn kept(&self) -> &'static str {
        match self.framework() {
            Framework::Torch => "a sum of losses with their graphs instead of loss.item(), outputs in a list",
            Framework::Jax => "losses as arrays on the device instead of float(loss), outputs in a list",
            Framework::Tensorflow => "a sum of losses as tensors instead of float(loss), outputs in a list",
            Framework::Other => "outputs in a list",
        }
    }

    pub(super) fn framework(&self) -> Framework {
        if self.is_caffe_or_mxnet() {
            return Framework::Other;
        }
        if self.shows(Sign::OtherLanguage) {
            return Framework::Other;
        }
        let is_torch = || self.frames.iter().any(|frame| frame.file.contains("torch"));
        // A driver or a system says nothing of who called it.
        let passes_jax = || self.frames.iter().any(|frame| frame.file.replace('\\', "/").contains("/jax/"));
        let is_open =
            matches!(self.oom.engine, Engine::Cuda | Engine::Rocm | Engine::Unknown | Engine::Linux | Engine::Python);
        if is_open && !self.shows(Sign::Torch) && !is_torch() {
            if self.shows(Sign::Tensorflow) && !passes_jax() {
                return Framework::Tensorflow;
            }
            if self.shows(Sign::Jax) {
                return Framework::Jax;
            }
        }
        let is_python = || self.frames.iter().any(|frame| frame.file.ends_with(".py"));
        // A device's error that no family knows, and nobody wrote in Python, is of a program without calls of PyTorch.
        let is_unknown = self.oom.engine == Engine::Unknown && self.oom.place == Place::Device;
        if is_unknown && !self.shows(Sign::Torch) && !is_python() {
            return Framework::Other;
        }
        match self.oom.engine {
            Engine::Tensorflow => Framework::Tensorflow,
            // PyTorch has a way to XLA too.
            Engine::Xla if !is_torch() && (!self.shows(Sign::Torch) || self.shows(Sign::Jax)) => Framework::Jax,
            Engine::Rmm if !is_torch() && !self.shows(Sign::Torch) => Framework::Other,
            Engine::Candle
            | Engine::Burn
            | Engine::Wgpu
            | Engine::Mlx
            | Engine::Cupy
            | Engine::Paddle
            | Engine::Mxnet
            | Engine::Mindspore
            | Engine::Oneflow
            | Engine::Julia => Framework::Other,
            _ => Framework::Torch,
        }
    }
}

impl Case<'_> {
    /// How this process leaves room on the device, from what it takes now.
    pub(super) fn leave_room(&self) -> String {
        let framework = self.framework();
        let less = self.smaller_jax_share().filter(|_| framework == Framework::Jax);
        less.map_or_else(|| framework.leave_room().to_owned(), |less| format!("take less from the start: {less}"))
    }
}

impl Framework {
    /// How activations are recomputed.
    pub(super) const fn recompute(self) -> &'static str {
        match self {
            Self::Torch => " (torch.utils.checkpoint around each block, gradient_checkpointing)",
            Self::Tensorflow => " (tf.recompute_grad around each block)",
            Self::Jax => " (jax.checkpoint, also called jax.remat, around each block)",
            Self::Other => " (checkpointing of each block)",
        }
    }

    /// How to compute in half precision.
    pub(super) const fn precision(self, no_bf16: bool) -> &'static str {
        match (self, no_bf16) {
            (Self::Torch, true) => "fp16 with a GradScaler (the card has no bf16) under torch.autocast",
            (Self::Torch, false) => "bf16 (fp16 with a GradScaler where the card has no bf16) under torch.autocast",
            (Self::Tensorflow, true) => "fp16: tf.keras.mixed_precision.set_global_policy('mixed_float16')",
            (Self::Tensorflow, false) => {
                "bf16: tf.keras.mixed_precision.set_global_policy('mixed_bfloat16'), or 'mixed_float16' where the \
                 card has no bf16"
            }
            (Self::Jax | Self::Other, true) => "fp16 with a scaled loss, by a policy of mixed precision",
            (Self::Jax, false) => {
                "bf16 (jnp.bfloat16 for activations, or a policy of mixed precision; fp16 with a scaled loss where \
                 the card has no bf16)"
            }
            (Self::Other, false) => "bf16 (fp16 with a scaled loss where the card has no bf16)",
        }
    }

    /// How saved activations go to the machine's memory, where there is a call for it.
    pub(super) const fn spill(self) -> &'static str {
        match self {
            Self::Torch => ", or saved activations (save_on_cpu)",
            Self::Jax => ", or saved activations (a jax.checkpoint policy that offloads)",
            Self::Tensorflow | Self::Other => "",
        }
    }

    /// How a process leaves room on the device for others and for libraries.
    const fn leave_room(self) -> &'static str {
        match self {
            Self::Torch => "call set_per_process_memory_fraction(0.9) early",
            Self::Tensorflow => {
                "let it grow instead of taking the whole card: tf.config.experimental.set_memory_growth(gpu, True) \
                 (TF_FORCE_GPU_ALLOW_GROWTH=true), or a memory_limit"
            }
            Self::Jax => {
                "take less from the start: XLA_PYTHON_CLIENT_PREALLOCATE=false, or XLA_PYTHON_CLIENT_MEM_FRACTION below 0.75"
            }
            Self::Other => "give the engine's allocator less than the whole device",
        }
    }

    /// How a framework that takes nearly the whole device at its start is told to take less, or to use the host's memory.
    pub(super) const fn preallocation(self) -> Option<&'static str> {
        match self {
            Self::Tensorflow => Some(
                "Let it grow instead of taking the whole card at the start: tf.config.experimental.set_memory_growth(gpu, \
                 True), or TF_FORCE_GPU_ALLOW_GROWTH=true; then nvidia-smi shows what it needs",
            ),
            Self::Jax => Some(
                "Take less from the start: a lower XLA_PYTHON_CLIENT_MEM_FRACTION (libraries need room beside it), or \
                 XLA_PYTHON_CLIENT_PREALLOCATE=false; TF_FORCE_UNIFIED_MEMORY=1 with a fraction above 1 uses the host's \
                 memory too, slowly",
            ),
            Self::Torch | Self::Other => None,
        }
    }

    /// How weights are loaded to the host first.
    pub(super) const fn to_host(self) -> &'static str {
        match self {
            Self::Torch => " (map_location='cpu', low_cpu_mem_usage)",
            _ => "",
        }
    }
}
