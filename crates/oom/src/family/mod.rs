//! The families of messages, one file each.

mod arrays;
mod batch;
mod caching_allocator;
mod cluster;
mod cpu_allocator;
mod cuda;
mod cupy;
mod errno;
mod exit;
mod ggml;
mod julia;
mod kernel;
mod language;
mod library;
mod metal;
mod onnx;
mod order;
mod other_frameworks;
mod paddle;
mod plain;
mod rmm;
mod runtime;
mod rust_gpu;
mod slurm;
mod tensorflow;
mod worker;
mod xla;

pub(crate) use order::read;
