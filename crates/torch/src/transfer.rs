//! Between host and device without waiting for what the device does meanwhile.

use std::cell::Cell;
use std::ffi::c_void;
use std::ptr;

use tch::{Device, Tensor};

use crate::attempt::raise;
use crate::error::Result;
use crate::ffi;

thread_local! {
    /// Whether this thread's tensors go to the device ahead of the work for which they are.
    static IS_AHEAD: Cell<bool> = const { Cell::new(false) };
}

/// What `work` returns, with its [`upload`]s on a stream of their own: a copy is done beside what was asked of the device before,
/// and what is asked of it later waits for the copy.
///
/// The allocator keeps the memory of such tensors apart, and gives it back to them when the device is done with them: for what is
/// small beside the rest.
pub fn ahead<T>(work: impl FnOnce() -> T) -> T {
    /// Also after a panic.
    struct Back(bool);
    impl Drop for Back {
        fn drop(&mut self) {
            IS_AHEAD.set(self.0);
        }
    }
    let _back = Back(IS_AHEAD.replace(true));
    work()
}

/// The tensor on a device. Where that is a GPU, the host goes on at once: the copy waits for its turn in the stream, unless it goes
/// [`ahead`].
///
/// Panics on an engine error like `tch`'s own functions.
pub fn upload(tensor: &Tensor, device: Device) -> Tensor {
    let Some(index) = (match device {
        Device::Cuda(index) => i32::try_from(index).ok(),
        _ => None,
    }) else {
        return tensor.to_device(device);
    };
    let mut out = ptr::null_mut();
    // SAFETY: the tensor lives through the call; on success `out` holds a tensor that is ours.
    let result = unsafe {
        ffi::lt_upload(tensor.as_ptr(), index, IS_AHEAD.get().into(), &mut out).check().map(|()| Tensor::from_ptr(out))
    };
    result.unwrap_or_else(|error| raise(error))
}

/// A number on its way from the device to the host.
#[derive(Debug)]
pub struct Later {
    handle: *mut c_void,
}

impl Later {
    /// Begins to read the one number of a tensor.
    pub fn read(tensor: &Tensor) -> Result<Later> {
        let mut handle = ptr::null_mut();
        // SAFETY: the tensor lives through the call; on success the handle is ours until it is freed.
        unsafe { ffi::lt_read_begin(tensor.as_ptr(), &mut handle) }.check()?;
        Ok(Later { handle })
    }

    /// Waits until it is there; not for what was asked of the device since.
    pub fn get(self) -> Result<f64> {
        let mut value = 0.0;
        // SAFETY: the handle is ours and was not freed yet.
        unsafe { ffi::lt_read_end(self.handle, &mut value) }.check()?;
        Ok(value)
    }
}

impl Drop for Later {
    fn drop(&mut self) {
        // SAFETY: the handle is ours, and nothing uses it after this.
        unsafe { ffi::lt_read_free(self.handle) }
    }
}
