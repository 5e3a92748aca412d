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
    /// One whose words are not known here, or none at all.
    Other,
}

/// The framework that an engine's words are of; none where they are of a driver, a system or a scheduler, whoever called it.
const fn framework_of(engine: Engine) -> Option<Framework> {
    match engine {
        Engine::PyTorch | Engine::Vllm | Engine::Sglang | Engine::Tgi => Some(Framework::Torch),
        Engine::Tensorflow => Some(Framework::Tensorflow),
        Engine::Xla => Some(Framework::Jax),
        Engine::Cuda
        | Engine::Rocm
        | Engine::Oneapi
        | Engine::Python
        | Engine::Numpy
        | Engine::Arrow
        | Engine::Cpp
        | Engine::Linux
        | Engine::Windows
        | Engine::Slurm
        | Engine::Kubernetes
        | Engine::Ray
        | Engine::Lsf
        | Engine::Pbs
        | Engine::Condor
        | Engine::Unknown => None,
        _ => Some(Framework::Other),
    }
}

/// Whether an engine is a part of programs whose other parts may be PyTorch's.
const fn is_beside_torch(engine: Engine) -> bool {
    matches!(engine, Engine::Rmm | Engine::Rust | Engine::Vulkan | Engine::Dask | Engine::Spark)
}

/// Folders of Python's libraries that bring an engine of their own.
const OTHERS: &[&str] = &["paddle", "mxnet", "mindspore", "oneflow", "chainer", "theano", "cupy", "tinygrad"];

impl Case<'_> {
    /// Whether Caffe or MXNet asked: the driver's word is about a layer's tensors.
    fn is_caffe_or_mxnet(&self) -> bool {
        let words = ["syncedmem", "cudaSuccess (2 vs. 0)", "Out of memory: failed to allocate", "mxnet"];
        words.iter().any(|words| self.message.contains(words))
    }

    /// Whether a file of the stack lies in the folder of a library.
    fn passes_library(&self, names: &[&str]) -> bool {
        self.frames.iter().any(|frame| {
            let mut folders = frame.file.split(['/', '\\']);
            folders.any(|folder| names.contains(&folder))
        })
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
        if self.is_caffe_or_mxnet() || self.shows(Sign::OtherLanguage) {
            return Framework::Other;
        }
        let passes_torch = || self.frames.iter().any(|frame| frame.file.contains("torch"));
        // DeepSpeed trains for nobody else.
        let is_torch = || self.shows(Sign::Torch) || self.shows(Sign::DeepSpeed) || passes_torch();
        match framework_of(self.oom.engine) {
            // PyTorch has a way to XLA too.
            Some(Framework::Jax) if passes_torch() || self.shows(Sign::Torch) && !self.shows(Sign::Jax) => {
                Framework::Torch
            }
            Some(Framework::Other) if is_beside_torch(self.oom.engine) && is_torch() => Framework::Torch,
            Some(framework) => framework,
            None if is_torch() => Framework::Torch,
            None => self.framework_of_caller(),
        }
    }

    /// Who called a driver or a system, in a program that shows nothing of PyTorch.
    fn framework_of_caller(&self) -> Framework {
        if self.passes_library(OTHERS) {
            return Framework::Other;
        }
        if self.shows(Sign::Tensorflow) && !self.passes_library(&["jax"]) {
            return Framework::Tensorflow;
        }
        if self.shows(Sign::Jax) {
            return Framework::Jax;
        }
        // A device's error that no family knows, and nobody wrote in Python, is of a program without calls of PyTorch.
        let is_python = || self.frames.iter().any(|frame| frame.file.ends_with(".py"));
        let is_unknown = self.oom.engine == Engine::Unknown && self.oom.place == Place::Device;
        let is_ggml = self.shows(Sign::Ggml) || self.shows(Sign::Ollama);
        // PyTorch is what is mostly used.
        if is_ggml || is_unknown && !is_python() { Framework::Other } else { Framework::Torch }
    }
}

impl Case<'_> {
    /// Whether PyTorch's calls may be of use: nobody knows what a post in somebody's own words is of.
    pub(super) fn may_be_torch(&self) -> bool {
        match self.framework() {
            Framework::Torch => true,
            Framework::Other => self.oom.engine == Engine::Unknown,
            Framework::Tensorflow | Framework::Jax => false,
        }
    }

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
            Self::Torch => {
                " (gradient_checkpointing_enable() of Transformers, torch.utils.checkpoint around each block)"
            }
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

    /// How the optimizer's states go to the machine's memory, where there is a call for it.
    pub(super) const fn spill(self) -> Option<&'static str> {
        match self {
            Self::Torch => Some(
                " (DeepSpeed offload_optimizer, FSDP CPUOffloadPolicy), or saved activations (torch.autograd.graph.save_on_cpu)",
            ),
            Self::Jax => Some(
                " (a sharding with memory_kind='pinned_host'), or saved activations (a jax.checkpoint policy that offloads)",
            ),
            Self::Tensorflow | Self::Other => None,
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

    /// How a rank takes the card that is its own, where there is a call for it.
    pub(super) const fn own_card(self) -> Option<&'static str> {
        match self {
            Self::Torch => Some("torch.cuda.set_device(local_rank) before its first CUDA call"),
            Self::Tensorflow => {
                Some("tf.config.set_visible_devices(gpus[local_rank], 'GPU') before anything is computed")
            }
            Self::Jax => Some("jax.distributed.initialize(local_device_ids=local_rank) before anything else of JAX"),
            Self::Other => None,
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
