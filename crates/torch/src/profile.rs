//! Where time goes: LibTorch's profiler, and spans with names for what it notes.

use std::ffi::{CStr, CString, c_void};
use std::path::Path;
use std::ptr;

use tch::Device;

use crate::error::{Result, TorchError};
use crate::ffi;

/// Notes what this thread asks of the engine, until it ends. There is one at a time.
#[derive(Debug)]
#[must_use]
pub struct Profiler {
    is_open: bool,
}

impl Profiler {
    /// Begins to take note, of a GPU too where the work is there.
    pub fn begin(device: Device) -> Result<Profiler> {
        // SAFETY: no pointers cross.
        unsafe { ffi::lt_profile_begin(device.is_cuda().into()) }.check()?;
        Ok(Profiler { is_open: true })
    }

    /// Ends, and writes what was noted as a Chrome trace.
    pub fn end(mut self, path: &Path) -> Result<()> {
        self.is_open = false;
        let text = CString::new(path.as_os_str().as_encoded_bytes())
            .map_err(|_| TorchError::Engine(format!("{} has a zero byte in its name", path.display())))?;
        // SAFETY: the text lives through the call.
        unsafe { ffi::lt_profile_end(text.as_ptr()) }.check()
    }
}

impl Drop for Profiler {
    fn drop(&mut self) {
        if self.is_open {
            // SAFETY: null is allowed, for nothing to be written. An error has nobody to hear of it.
            let _ = unsafe { ffi::lt_profile_end(ptr::null()) }.check();
        }
    }
}

/// The names of the kernels that stand for the beginning and the end of a span, where it was recorded in a graph.
#[must_use]
pub fn mark_names(span: &CStr) -> [String; 2] {
    let plain = |byte: &u8| if byte.is_ascii_alphanumeric() { char::from(*byte) } else { '_' };
    let name: String = span.to_bytes().iter().map(plain).collect();
    [format!("{name}_begins"), format!("{name}_ends")]
}

/// Marks the spans of a name in the graphs that are recorded from now on: with empty kernels, called as [`mark_names`] says. What is
/// replayed has no other trace of who asked for it.
pub fn mark_spans(device: usize, span: &CStr) -> Result<()> {
    let Ok(device) = i32::try_from(device) else { return Ok(()) };
    let [begins, ends] = mark_names(span).map(|name| CString::new(name).expect("letters, digits and underscores"));
    // SAFETY: the texts live through the call, which copies them.
    unsafe { ffi::lt_mark_spans(device, span.as_ptr(), begins.as_ptr(), ends.as_ptr()) }.check()
}

/// Does `work` under a name by which a [`Profiler`] on this thread tells it apart. Without one it costs next to nothing.
pub fn span<T>(name: &CStr, work: impl FnOnce() -> T) -> T {
    struct End(*mut c_void);
    impl Drop for End {
        fn drop(&mut self) {
            // SAFETY: it is ours, and null is allowed.
            unsafe { ffi::lt_span_end(self.0) }
        }
    }
    // SAFETY: the name lives through the call, which copies it.
    let _end = End(unsafe { ffi::lt_span_begin(name.as_ptr()) });
    work()
}
