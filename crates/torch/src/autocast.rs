//! Mixed precision: operations that gain by it run in a narrower kind while the guard lives.

use tch::{Device, Kind};

use crate::attempt::raise;
use crate::ffi;

/// Autocast on this thread for one kind of device, until dropped. Unwinding ends it too.
#[must_use = "autocast ends when the guard is dropped"]
#[derive(Debug)]
pub struct Autocast {
    cuda: i32,
    before: ffi::AutocastSetting,
}

impl Autocast {
    /// Starts it. Like `tch`'s own functions it panics on an engine error. `kind` is `BFloat16` or `Half`; `Float` turns autocast off inside an outer region.
    pub fn enter(device: Device, kind: Kind) -> Autocast {
        let cuda = i32::from(matches!(device, Device::Cuda(_)));
        let enabled = i32::from(kind != Kind::Float);
        let mut before = ffi::AutocastSetting::default();
        // SAFETY: sets flags of this thread; the kind's number is the engine's own, and `before` is valid for writing.
        let status = unsafe { ffi::lt_autocast_enter(cuda, enabled, scalar_type(kind), &mut before) };
        status.check().unwrap_or_else(|error| raise(error));
        Autocast { cuda, before }
    }
}

impl Drop for Autocast {
    fn drop(&mut self) {
        // SAFETY: sets flags of this thread back to what `enter` found.
        unsafe { ffi::lt_autocast_leave(self.cuda, self.before) }
    }
}

/// The numbers of `c10::ScalarType`.
fn scalar_type(kind: Kind) -> i32 {
    match kind {
        Kind::Half => 5,
        Kind::BFloat16 => 15,
        _ => 6,
    }
}
