//! LibTorch for Lowtide: the engine, with a memory line drawn under it.
//!
//! Start with [`start`], which opens the engine (and CUDA where there is a driver), then [`attempt`], through which every
//! engine call goes that may run out of memory. [`host`] is the CPU allocator with its line, [`cuda`] the control of
//! CUDA's allocator, [`recompute`] trades time for memory, [`GraphPool`] records work as CUDA graphs, [`linear_cross_entropy`] holds logits in
//! pieces, [`LayerNorm`], [`add`], [`gelu`] and [`heads`] are one pass over memory each, [`AdamW`], [`GradScaler`], [`Autocast`], [`rng`] and
//! [`gradients`] are what a training step needs beside `tch`; [`upload`], [`ahead`] and [`Later`] let it go on without waiting. [`Profiler`] notes where time goes. [`numerics`] is what decides the bits on the host. [`Ranks`] are several
//! processes that train together.
//!
//! This is the only crate with C++ and with `unsafe`. It knows nothing of training loops, configurations or files (but
//! for the snapshot it is told to write), and it prints nothing.

mod adamw;
mod attempt;
mod autocast;
pub mod cuda;
mod device;
mod error;
mod ffi;
mod fused;
mod gradient_buckets;
pub mod gradients;
mod graphs;
pub mod host;
mod host_moments;
mod loss;
mod message;
mod nccl;
pub mod numerics;
mod profile;
mod ranks;
mod recompute;
pub mod rng;
mod scaler;
mod settings;
mod transfer;

pub use adamw::{AdamW, AdamWRule};
pub use attempt::{attempt, refuse_input};
pub use autocast::Autocast;
pub use device::{DeviceFacts, start, start_for};
pub use error::{Result, TorchError};
pub use fused::{LayerNorm, NarrowWeights, Product, add, embed, fused_kernels_problem, gelu, heads, linear};
pub use gradient_buckets::GradientBuckets;
pub use graphs::{Graph, GraphPool, use_own_stream};
pub use loss::{LOSS_HEAD, linear_cross_entropy, loss_kernel_problem};
pub use profile::{Profiler, mark_names, mark_spans, span};
pub use ranks::{MeetingPoint, Ranks, RanksError};
pub use recompute::{Keep, Segment, Shared, recompute};
pub use scaler::{GradScaler, GradientRange, ScalerRule};
pub use settings::{MatmulPrecision, set_deterministic, set_matmul_precision};

pub use transfer::{Later, ahead, upload};

pub use lowtide_core::DeviceChoice;
pub use tch;
