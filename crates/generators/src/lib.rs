//! Made-up training data: each sample is a pure function of a seed and a number.
//!
//! **What it does.** It makes the samples that workloads train on where they are given no files, and writes the same
//! samples as files like those that people have: films as folders of PNG frames, traces as batches of `torch.save` or pickles.
//!
//! **What it leaves out.** It knows no model and links no LibTorch, so that data is made without the engine. Which samples
//! a step takes is the workload's.
//!
//! **Where to start reading.** [`films`] and [`traces`], one for each workload that has such data.

pub mod films;
mod random;
pub mod traces;

pub use random::{Normal, Random};
