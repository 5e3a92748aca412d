//! What a message says, in types.

use lowtide_core::Bytes;
use serde::Serialize;

/// Memory ran out, as far as one message tells. What the text does not give is `None` or empty.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Oom {
    /// The program or library that wrote the message.
    pub engine: Engine,
    /// The part of it that refused, or that saw the end.
    pub source: Source,
    /// Which memory ran out.
    pub place: Place,
    /// How sure the text makes it.
    pub certainty: Certainty,
    /// The kind of device, where the text names one.
    pub device_kind: Option<DeviceKind>,
    /// Index of the device.
    pub device: Option<u32>,
    /// What was asked for, as the engine counts it (PyTorch: the segment, after rounding).
    pub requested: Option<Bytes>,
    /// Total memory of the device or machine.
    pub capacity: Option<Bytes>,
    /// Free memory of the device or machine.
    pub free: Option<Bytes>,
    /// In use on the device or machine by everyone together.
    pub used: Option<Bytes>,
    /// In use by this process, including what its allocator does not know of.
    pub in_use: Option<Bytes>,
    /// In use by this process outside the engine's allocator.
    pub outside_allocator: Option<Bytes>,
    /// Handed out by the engine's allocator.
    pub allocated: Option<Bytes>,
    /// Held by the engine's allocator, handed out or not.
    pub reserved: Option<Bytes>,
    /// Held by the engine's allocator and not handed out.
    pub reserved_unallocated: Option<Bytes>,
    /// In private pools (graphs).
    pub private_pools: Option<Bytes>,
    /// A limit set below the capacity, by the user, the scheduler or the engine.
    pub limit: Option<Bytes>,
    /// Processes the text names, with what each holds.
    pub processes: Vec<ProcessUse>,
}

/// A process named in a message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct ProcessUse {
    /// Process id, as seen by whoever wrote the message.
    pub pid: u32,
    /// Name of the program or task.
    pub name: Option<String>,
    /// What it holds; for the kernel's messages its resident memory.
    pub used: Option<Bytes>,
}

/// Which memory ran out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Place {
    /// Memory of an accelerator.
    Device,
    /// Memory of the machine, or of a container or job on it.
    Host,
}

/// How sure it is that memory ran out, from the text alone.
///
/// Ordered from the least to the most sure; written out as its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(into = "f64")]
pub enum Certainty {
    /// One explanation among several: a bare `Killed`, exit status 137.
    Slight,
    /// As likely as not: a cuDNN status that also has other causes, a warning after which the engine often goes on.
    Possible,
    /// Nearly always memory, but the text does not say so outright.
    Likely,
    /// The text says so.
    Sure,
}

impl Certainty {
    /// The certainty as a number between 0 and 1.
    #[must_use]
    pub fn number(self) -> f64 {
        match self {
            Self::Slight => 0.25,
            Self::Possible => 0.5,
            Self::Likely => 0.8,
            Self::Sure => 0.98,
        }
    }
}

impl From<Certainty> for f64 {
    fn from(certainty: Certainty) -> Self {
        certainty.number()
    }
}

/// The program or library that wrote the message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "the names say it")]
#[non_exhaustive]
pub enum Engine {
    #[serde(rename = "pytorch")]
    PyTorch,
    /// JAX, torch-xla and XLA itself.
    Xla,
    Tensorflow,
    Cupy,
    /// RAPIDS memory manager, Numba, cuDF.
    Rmm,
    Candle,
    /// Burn, CubeCL.
    Burn,
    Wgpu,
    Mlx,
    OnnxRuntime,
    /// llama.cpp, whisper.cpp and others on ggml.
    Ggml,
    Vllm,
    Sglang,
    /// Hugging Face's text-generation-inference.
    Tgi,
    Ollama,
    Paddle,
    Mxnet,
    Mindspore,
    Oneflow,
    /// NVIDIA's runtime, driver and libraries, whoever called them.
    Cuda,
    Rocm,
    /// Level Zero, SYCL, OpenCL.
    Oneapi,
    Vulkan,
    Python,
    Numpy,
    Arrow,
    Rust,
    Cpp,
    Java,
    Node,
    R,
    Matlab,
    Go,
    /// CUDA.jl and its siblings.
    Julia,
    Linux,
    Windows,
    Slurm,
    Kubernetes,
    Ray,
    Dask,
    Spark,
    Lsf,
    Pbs,
    Condor,
    /// The text does not tell.
    Unknown,
}

/// The part that refused the memory, or that saw the end of the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Source {
    /// The engine's own allocator.
    Allocator,
    /// The device's runtime or driver, outside the engine's allocator.
    Runtime,
    /// cuBLAS or rocBLAS.
    Blas,
    /// cuDNN or MIOpen.
    Dnn,
    /// NCCL or RCCL.
    Collectives,
    /// A server's own reckoning before it begins.
    Startup,
    /// The process's own heap: `malloc`, `mmap`, `fork`.
    Heap,
    /// Memory shared between processes (`/dev/shm`).
    SharedMemory,
    /// A data worker died.
    DataWorker,
    /// The kernel's killer, for the whole machine.
    Kernel,
    /// The kernel's killer, for a control group (container, job).
    Cgroup,
    /// A scheduler or cluster watched a limit.
    Scheduler,
    /// Only how the process ended.
    ExitStatus,
}

/// The kind of device named by the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "the names say it")]
#[non_exhaustive]
pub enum DeviceKind {
    Cuda,
    Hip,
    Xpu,
    Mps,
    Npu,
    Musa,
    Mlu,
    Tpu,
    Cpu,
    /// A device of a name not listed here.
    Other,
}

impl Oom {
    pub(crate) fn device(engine: Engine, source: Source) -> Self {
        Self::new(engine, source, Place::Device)
    }

    pub(crate) fn host(engine: Engine, source: Source) -> Self {
        Self::new(engine, source, Place::Host)
    }

    fn new(engine: Engine, source: Source, place: Place) -> Self {
        Self {
            engine,
            source,
            place,
            certainty: Certainty::Sure,
            device_kind: None,
            device: None,
            requested: None,
            capacity: None,
            free: None,
            used: None,
            in_use: None,
            outside_allocator: None,
            allocated: None,
            reserved: None,
            reserved_unallocated: None,
            private_pools: None,
            limit: None,
            processes: Vec::new(),
        }
    }

    /// Held by the allocator and not handed out: as the text gives it, or worked out from reserved and allocated.
    #[must_use]
    pub fn reserved_unallocated_or_derived(&self) -> Option<Bytes> {
        self.reserved_unallocated.or_else(|| {
            let rest = self.reserved?.get().checked_sub(self.allocated?.get())?;
            Some(Bytes(rest))
        })
    }

    /// Adds figures that another reading of the same message has.
    pub(crate) fn add(&mut self, other: Self) {
        let pairs = [
            (&mut self.requested, other.requested),
            (&mut self.capacity, other.capacity),
            (&mut self.free, other.free),
            (&mut self.in_use, other.in_use),
            (&mut self.allocated, other.allocated),
            (&mut self.reserved, other.reserved),
            (&mut self.reserved_unallocated, other.reserved_unallocated),
            (&mut self.private_pools, other.private_pools),
            (&mut self.limit, other.limit),
        ];
        for (ours, theirs) in pairs {
            *ours = ours.or(theirs);
        }
        self.device = self.device.or(other.device);
        if other.processes.len() > self.processes.len() {
            self.processes = other.processes;
        }
    }

    /// Drops figures no device can have, so that one broken counter does not spoil the rest.
    pub(crate) fn without_impossible_figures(mut self) -> Self {
        if self.place == Place::Host {
            return self;
        }
        let figures = [
            &mut self.capacity,
            &mut self.free,
            &mut self.used,
            &mut self.in_use,
            &mut self.outside_allocator,
            &mut self.allocated,
            &mut self.reserved,
            &mut self.reserved_unallocated,
            &mut self.private_pools,
            &mut self.limit,
        ];
        for figure in figures {
            *figure = figure.filter(|bytes| bytes.get() <= LARGEST_DEVICE);
        }
        for process in &mut self.processes {
            process.used = process.used.filter(|bytes| bytes.get() <= LARGEST_DEVICE);
        }
        self
    }
}

/// 64 TiB, far above any device; a request may be larger than this, what is held may not.
const LARGEST_DEVICE: u64 = 64 << 40;
