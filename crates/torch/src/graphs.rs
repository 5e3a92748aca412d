//! CUDA graphs: what a piece of work asks of the device, recorded once and asked again with one call.
//!
//! A replay allocates nothing and launches everything at once: what small kernels cost is then the device's time alone, not the
//! host's. It reads and writes the memory that was used while it was recorded, so that inputs, parameters and gradients have to
//! stay where they were; what the work allocates comes from a [`GraphPool`] and stays taken as long as a graph uses it.

use std::ffi::c_void;
use std::ptr;

use lowtide_core::Bytes;

use crate::attempt::attempt;
use crate::cuda;
use crate::error::Result;
use crate::ffi;

/// Lets this thread ask the device through a stream of its own from now on. The default stream cannot be recorded.
pub fn use_own_stream(device: usize) -> Result<()> {
    // SAFETY: no pointers cross.
    unsafe { ffi::lt_own_stream(index(device)) }.check()
}

/// Memory that graphs use in turn: it takes what the largest of them needs, once that was recorded first. Where its last graph is gone,
/// or the first could not be recorded, it has served its time.
#[derive(Debug)]
pub struct GraphPool {
    device: usize,
    number: u64,
}

impl GraphPool {
    /// An empty one.
    pub fn new(device: usize) -> Result<GraphPool> {
        let mut number = 0;
        // SAFETY: `number` is valid for writing.
        unsafe { ffi::lt_graph_pool(&mut number) }.check()?;
        Ok(GraphPool { device, number })
    }

    /// The device it lies on.
    #[must_use]
    pub fn device(&self) -> usize {
        self.device
    }

    /// Records what `work` asks of the device; nothing of it is done.
    ///
    /// The thread must have a stream of its own ([`use_own_stream`]). Everything that `work` uses for the first time, such as a
    /// kernel that has to be compiled, must have been used before. Work that waits for the device, or asks for what is computed
    /// there, cannot be recorded: that is an error of the engine's. `roof` is what allocator and driver may take together; a graph
    /// for which the driver would have to take more is refused.
    pub fn record(&self, roof: Option<Bytes>, work: impl FnOnce()) -> Result<Graph> {
        let mut handle = ptr::null_mut();
        // SAFETY: `handle` is valid for writing; on success it holds a graph that is ours.
        unsafe { ffi::lt_graph_begin(index(self.device), self.number, &mut handle) }.check()?;
        let mut recording = Recording(handle);
        attempt(work)?;
        // SAFETY: the handle is a graph that is being recorded.
        unsafe { ffi::lt_graph_end(recording.0) }.check()?;
        let free = cuda::memory(self.device)?.free;
        let left = match roof {
            Some(roof) => free.min(roof.saturating_sub(cuda::stats(self.device)?.reserved)),
            None => free,
        };
        // SAFETY: the handle is a graph that was recorded to its end.
        unsafe { ffi::lt_graph_hand_over(recording.0, left.get()) }.check()?;
        Ok(Graph(std::mem::replace(&mut recording.0, ptr::null_mut())))
    }
}

/// A recorded piece of work.
#[derive(Debug)]
pub struct Graph(*mut c_void);

impl Graph {
    /// Asks the device to do all of it.
    pub fn replay(&self) -> Result<()> {
        // SAFETY: the handle is a graph that was recorded to its end.
        unsafe { ffi::lt_graph_replay(self.0) }.check()
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        // SAFETY: the handle is ours and not used again.
        unsafe { ffi::lt_graph_free(self.0) }
    }
}

/// A graph while it is recorded, given up where it does not come to its end.
struct Recording(*mut c_void);

impl Drop for Recording {
    fn drop(&mut self) {
        if !self.0.is_null() {
            // SAFETY: the handle is ours and not used again.
            unsafe { ffi::lt_graph_abandon(self.0) }
        }
    }
}

fn index(device: usize) -> i32 {
    i32::try_from(device).expect("a device index is small")
}
