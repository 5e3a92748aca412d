//! Recompute: keep a segment's inputs, run it again in backward.
//!
//! The first run makes no graph, so its activations are freed at once; the graph holds a node with the inputs and the
//! segment itself. Backward runs the segment again under the random state and the autocast state of the first run, puts
//! buffers (BatchNorm's statistics) back as the first run left them, and goes on from there. Segments may nest.
//!
//! On CUDA backward runs on a thread of the engine's, which is why a segment must be `Send + Sync`; [`Shared`] is the
//! way to hand a model's tensors to it.
//!
//! Recompute is our own graph node, not `torch::autograd::Function`: that one drops the node when no input requires a
//! gradient (a segment of token ids would not train) and runs the first pass inside C++, where a Rust panic cannot
//! unwind.

use std::any::Any;
use std::ffi::c_void;
use std::ops::Deref;
use std::panic::{self, AssertUnwindSafe, RefUnwindSafe};
use std::ptr;
use std::sync::Arc;

use tch::{Device, Tensor};

use crate::attempt::{engine_error, inside, panic_text, raise};
use crate::device::started_cuda;
use crate::error::TorchError;
use crate::ffi::{self, C_tensor};
use crate::message::PANIC_PREFIX;

/// Where a segment's inputs wait for backward.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Keep {
    /// On the device they are on.
    #[default]
    OnDevice,
    /// In pinned host memory, copied there and back on the device's stream. On the CPU the same as `OnDevice`.
    OnHost,
}

/// A value that the segments of a model share.
///
/// Tensors may be used from several threads as LibTorch sees it, but `tch` does not mark them so, because some of its
/// methods change a tensor through a shared reference. Here they are reached by one thread at a time: the thread that
/// calls backward waits while the engine's thread runs a segment. Cells are refused (they are not `RefUnwindSafe`);
/// atomics and locks are not.
#[derive(Debug)]
pub struct Shared<T>(Arc<T>);

// SAFETY: `T` may move between threads and has no cells that are not made for threads, which leaves tensors: reading them
// from several threads is what LibTorch does itself. Segments are their only users from other threads and run while the
// thread that started backward waits, so no two threads change a value at once. The reference count is atomic.
unsafe impl<T: Send + RefUnwindSafe> Send for Shared<T> {}
// SAFETY: as above.
unsafe impl<T: Send + RefUnwindSafe> Sync for Shared<T> {}

impl<T> Shared<T> {
    /// Takes the value over.
    pub fn new(value: T) -> Shared<T> {
        Shared(Arc::new(value))
    }
}

impl<T> Clone for Shared<T> {
    fn clone(&self) -> Shared<T> {
        Shared(Arc::clone(&self.0))
    }
}

impl<T> Deref for Shared<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

type Run = Arc<dyn Fn(&[Tensor]) -> Vec<Tensor> + Send + Sync>;

/// A stretch of a model: tensors in, tensors out, and the buffers it updates on the way.
#[derive(Clone)]
pub struct Segment {
    run: Run,
    join: Option<Run>,
    buffers: Shared<Vec<Tensor>>,
}

impl Segment {
    /// A segment that updates no buffers. It must do the same when it is run again on the same inputs.
    pub fn new(run: impl Fn(&[Tensor]) -> Vec<Tensor> + Send + Sync + 'static) -> Segment {
        Segment { run: Arc::new(run), join: None, buffers: Shared::new(Vec::new()) }
    }

    /// What becomes of its inputs where they are kept for backward: the same in less memory, such as a sum for its parts, which the
    /// segment takes as well.
    #[must_use]
    pub fn joining(mut self, join: impl Fn(&[Tensor]) -> Vec<Tensor> + Send + Sync + 'static) -> Segment {
        self.join = Some(Arc::new(join));
        self
    }

    /// Names the tensors that the segment updates in place, such as BatchNorm's running mean and variance.
    #[must_use]
    pub fn with_buffers(mut self, buffers: &[Tensor]) -> Segment {
        self.buffers = Shared::new(buffers.iter().map(Tensor::shallow_clone).collect());
        self
    }

    /// Runs it as it is, keeping all activations.
    #[must_use]
    pub fn run(&self, inputs: &[Tensor]) -> Vec<Tensor> {
        (self.run)(inputs)
    }
}

/// Runs a segment so that only its inputs are kept for backward.
///
/// Like `tch`'s own functions it panics on an engine error, which [`crate::attempt`] turns into a value. Where gradients
/// are off it just runs the segment.
#[must_use]
pub fn recompute(segment: &Segment, inputs: &[Tensor], keep: Keep) -> Vec<Tensor> {
    if !grad_enabled() {
        return segment.run(inputs);
    }
    let joined = segment.join.as_ref().map(|join| join(inputs));
    let inputs = joined.as_deref().unwrap_or(inputs);
    let first = FirstRun::begin(cuda_index(inputs));
    let outputs = {
        let _no_grad = tch::no_grad_guard();
        segment.run(inputs)
    };
    first.attach(segment, inputs, outputs, keep)
}

fn grad_enabled() -> bool {
    // SAFETY: reads a flag of this thread.
    unsafe { ffi::lt_grad_enabled() != 0 }
}

fn cuda_index(inputs: &[Tensor]) -> i32 {
    let index = inputs.iter().find_map(|input| match input.device() {
        Device::Cuda(index) => i32::try_from(index).ok(),
        _ => None,
    });
    // A segment may start on the CPU and work on the GPU.
    index.unwrap_or_else(started_cuda)
}

/// The surroundings of a first run, given back to the shim in every case.
struct FirstRun(*mut c_void);

impl FirstRun {
    fn begin(cuda_device: i32) -> FirstRun {
        let mut mark = ptr::null_mut();
        // SAFETY: `mark` is valid for writing; on success it holds an object that `attach` or `abandon` takes back.
        let status = unsafe { ffi::lt_recompute_begin(cuda_device, &mut mark) };
        status.check().unwrap_or_else(|error| raise(error));
        FirstRun(mark)
    }

    /// The mark, from now on the caller's.
    fn take_mark(&mut self) -> *mut c_void {
        std::mem::replace(&mut self.0, ptr::null_mut())
    }

    fn attach(mut self, segment: &Segment, inputs: &[Tensor], mut outputs: Vec<Tensor>, keep: Keep) -> Vec<Tensor> {
        let mark = self.take_mark();
        let input_pointers = ffi::pointers(inputs);
        let output_pointers: Vec<*mut C_tensor> = outputs.iter_mut().map(Tensor::as_mut_ptr).collect();
        let buffer_pointers = ffi::pointers(&segment.buffers);
        let closure = Box::into_raw(Box::new(Arc::clone(&segment.run)));
        // SAFETY: all lists are as long as said and live through the call; the shim takes over `mark` and `closure`
        // whatever happens, calls `run_segment` with that closure only, and drops it once through `drop_segment`.
        let status = unsafe {
            ffi::lt_recompute_attach(
                mark,
                input_pointers.as_ptr(),
                input_pointers.len(),
                output_pointers.as_ptr(),
                output_pointers.len(),
                buffer_pointers.as_ptr(),
                buffer_pointers.len(),
                i32::from(keep == Keep::OnHost),
                closure.cast(),
                run_segment,
                drop_segment,
            )
        };
        status.check().unwrap_or_else(|error| raise(error));
        outputs
    }
}

impl Drop for FirstRun {
    fn drop(&mut self) {
        if !self.0.is_null() {
            // SAFETY: the mark came from `lt_recompute_begin` and was not given away.
            unsafe { ffi::lt_recompute_abandon(self.0) }
        }
    }
}

/// Called by the engine in backward. No unwinding may pass this border.
extern "C" fn run_segment(closure: *const c_void, inputs: *const *mut C_tensor, count: usize, run: *mut c_void) {
    let result = panic::catch_unwind(AssertUnwindSafe(|| {
        // SAFETY: `closure` is the box made in `attach`, still alive; `inputs` holds `count` tensors that live through
        // the call, and each is cloned before use.
        let (segment, inputs) = unsafe {
            let pointers = if count == 0 { &[] } else { std::slice::from_raw_parts(inputs, count) };
            let inputs: Vec<Tensor> = pointers.iter().map(|input| Tensor::clone_from_ptr(*input)).collect();
            (&*closure.cast::<Run>(), inputs)
        };
        inside(|| segment(&inputs))
    }));
    // An output that cannot be handed over is an error of the run like any other.
    let handed = result.map_err(|payload| run_error(payload.as_ref())).and_then(|outputs| {
        // SAFETY: the shim copies the handle.
        outputs.iter().try_for_each(|output| unsafe { ffi::lt_run_output(run, output.as_ptr()) }.check())
    });
    if let Err(error) = handed {
        let (kind, message) = match error {
            error @ TorchError::Oom { .. } => (ffi::OUT_OF_MEMORY, error.to_string()),
            TorchError::Panic(text) => (ffi::ERROR, format!("{PANIC_PREFIX}{text}")),
            error => (ffi::ERROR, error.to_string()),
        };
        // SAFETY: the shim copies the text.
        unsafe { ffi::lt_run_failed(run, kind, message.as_ptr().cast(), message.len()) }
    }
}

/// What a panic of the segment was: an error of the engine, or a panic that cannot go on as one.
fn run_error(payload: &(dyn Any + Send)) -> TorchError {
    engine_error(payload).unwrap_or_else(|| TorchError::Panic(panic_text(payload)))
}

extern "C" fn drop_segment(closure: *mut c_void) {
    // SAFETY: the shim calls this once, with the box made in `attach`.
    let closure = unsafe { Box::from_raw(closure.cast::<Run>()) };
    // A panic in the drop of what the closure holds must not unwind into C++.
    let _ = panic::catch_unwind(AssertUnwindSafe(|| drop(closure)));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attempt;
    use tch::Kind;

    /// Words that no string can hold: taking them over throws in C++.
    extern "C" fn fail_beyond_all_words(
        _closure: *const c_void,
        _inputs: *const *mut C_tensor,
        _count: usize,
        run: *mut c_void,
    ) {
        // SAFETY: the shim refuses the length before it reads the text.
        unsafe { ffi::lt_run_failed(run, ffi::ERROR, c"words".as_ptr(), usize::MAX) }
    }

    #[test]
    fn words_that_cannot_be_taken_over_are_still_an_error() {
        let segment = Segment::new(|inputs: &[Tensor]| vec![inputs[0].shallow_clone()]);
        let input = Tensor::ones([2], (Kind::Float, Device::Cpu)).set_requires_grad(true);
        let mut outputs = [&input * 2.0];
        let mut first = FirstRun::begin(ffi::CPU);
        let inputs = [input];
        let (input_pointers, closure) = (ffi::pointers(&inputs), Box::into_raw(Box::new(Arc::clone(&segment.run))));
        let output_pointers: Vec<*mut C_tensor> = outputs.iter_mut().map(Tensor::as_mut_ptr).collect();
        // SAFETY: as in `attach`; the callback ignores the closure.
        let status = unsafe {
            ffi::lt_recompute_attach(
                first.take_mark(),
                input_pointers.as_ptr(),
                1,
                output_pointers.as_ptr(),
                1,
                ptr::null(),
                0,
                0,
                closure.cast(),
                fail_beyond_all_words,
                drop_segment,
            )
        };
        status.check().unwrap();
        let error = attempt(|| outputs[0].sum(Kind::Float).backward()).unwrap_err();
        assert!(matches!(error, TorchError::Engine(_)), "{error:?}");
    }
}
