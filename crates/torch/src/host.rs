//! The CPU allocator: counts, a line, recording, and failures on demand.
//!
//! One per process, because LibTorch has one. [`install`] puts it in place of LibTorch's own; tensors made before that
//! are freed by the allocator they came from. Scratch memory of MKL and oneDNN and pinned memory do not pass through it.
//! A pair of allocate and free costs less than with LibTorch's own (`make bench`).

use std::fs;
use std::sync::{Mutex, MutexGuard};

use lowtide_core::{Bytes, Line};

use crate::error::Result;
use crate::ffi;

/// What the allocator has counted since the process started; the peak since [`reset_peak`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostStats {
    /// Bytes held by tensors now.
    pub allocated: Bytes,
    /// The most that was held at once.
    pub peak: Bytes,
    /// Allocations made.
    pub allocations: u64,
    /// Allocations refused: by the line, by the machine, or on demand.
    pub refusals: u64,
}

/// One entry of a recording ([`record`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostEvent {
    /// What happened.
    pub action: HostAction,
    /// Names the block: the same for its allocation and its free. 0 for a refusal.
    pub serial: u64,
    /// The size asked for.
    pub bytes: Bytes,
    /// Nanoseconds on a clock that only moves forward; only differences mean something.
    pub nanoseconds: i64,
}

/// What happened to a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostAction {
    /// It was handed out.
    Allocate,
    /// It was given back.
    Free,
    /// It was asked for and refused.
    Refuse,
}

/// The refusal that came last, in exact numbers (the message of the error rounds them).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Bytes asked for.
    pub requested: Bytes,
    /// Bytes held at that moment.
    pub allocated: Bytes,
    /// The line, if one was drawn.
    pub line: Option<Bytes>,
    /// Whether [`fail_nth`] asked for it.
    pub injected: bool,
}

/// Puts the allocator in place. Calling it again changes nothing.
pub fn install() {
    // SAFETY: the shim's allocator is a static object that lives as long as the process.
    unsafe { ffi::lt_host_install() }
}

/// Puts LibTorch's own allocator back, for benches that compare the two.
pub fn uninstall() {
    // SAFETY: LibTorch's default allocator is a static object too; blocks are freed by whoever made them.
    unsafe { ffi::lt_host_uninstall() }
}

/// Whether the allocator is in place.
#[must_use]
pub fn installed() -> bool {
    // SAFETY: reads a pointer.
    unsafe { ffi::lt_host_installed() != 0 }
}

/// The counts as they are now.
#[must_use]
pub fn stats() -> HostStats {
    let mut counts = ffi::HostCounts::default();
    // SAFETY: `counts` is valid for writing for the length of the call.
    unsafe { ffi::lt_host_counts(&mut counts) };
    HostStats {
        allocated: bytes(counts.allocated),
        peak: bytes(counts.peak),
        allocations: counts.allocations,
        refusals: counts.refusals,
    }
}

/// Starts the peak anew from what is held now.
pub fn reset_peak() {
    // SAFETY: touches atomics only.
    unsafe { ffi::lt_host_reset_peak() }
}

/// Resident memory of this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Resident {
    /// At this moment.
    pub now: Bytes,
    /// The most there ever was.
    pub peak: Bytes,
}

/// What the system counts as this process's own: tensors, data, libraries; zero where it does not say.
#[must_use]
pub fn resident() -> Resident {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let field = |name: &str| {
        let value = status.lines().find_map(|line| line.strip_prefix(name))?;
        value.trim().strip_suffix("kB")?.trim().parse().ok().map(|kib: u64| Bytes(kib.saturating_mul(1024)))
    };
    Resident { now: field("VmRSS:").unwrap_or_default(), peak: field("VmHWM:").unwrap_or_default() }
}

/// Resident memory less the tensors, which the allocator counts itself.
#[must_use]
pub fn resident_without_tensors() -> Bytes {
    resident().now.saturating_sub(stats().allocated)
}

/// Makes every large block go back to the system as soon as it is freed, for processes whose resident memory is bounded.
/// Costs page faults where large tensors come and go.
pub fn keep_little() {
    // SAFETY: sets parameters of the C library, which locks them itself.
    unsafe { ffi::lt_host_keep_little() }
}

/// Gives back to the system what was freed and is still held.
pub fn trim() {
    // SAFETY: the C library locks its own lists.
    unsafe { ffi::lt_host_trim() }
}

/// Draws the line, or takes it away. What is already held stays, even above the new line.
pub fn set_line(line: Line) {
    let bytes = line.limit().map_or(-1, |limit| i64::try_from(limit.get()).unwrap_or(i64::MAX));
    // SAFETY: touches an atomic only.
    unsafe { ffi::lt_host_set_line(bytes) }
}

/// Refuses the `nth` allocation from now on, counting from 1, and the `times - 1` that follow it.
///
/// `times` of 0 takes an earlier request back.
pub fn fail_nth(nth: u64, times: u64) {
    // SAFETY: the shim guards its state with a mutex.
    unsafe { ffi::lt_host_inject(nth.saturating_sub(1), times) }
}

/// The last refusal, if there was one.
#[must_use]
pub fn last_refusal() -> Option<Refusal> {
    let mut refusal = ffi::HostRefusal::default();
    // SAFETY: `refusal` is valid for writing for the length of the call.
    let any = unsafe { ffi::lt_host_last_refusal(&mut refusal) };
    (any != 0).then(|| Refusal {
        requested: Bytes(refusal.requested),
        allocated: Bytes(refusal.allocated),
        line: u64::try_from(refusal.line).ok().map(Bytes),
        injected: refusal.injected != 0,
    })
}

/// Records every allocation and free while `body` runs, on any thread, and returns them in order.
///
/// Only one recording runs at a time; a second one waits. It ends when `body` panics, too.
pub fn record<T>(body: impl FnOnce() -> T) -> (T, Vec<HostEvent>) {
    let recording = Recording::start();
    let value = body();
    (value, recording.finish())
}

/// Asks the allocator in force for a block and gives it back: the pair that benches time.
pub fn touch_pair(bytes: Bytes) -> Result<()> {
    // SAFETY: the block is freed inside the call.
    unsafe { ffi::lt_host_touch_pair(usize::try_from(bytes.get()).unwrap_or(usize::MAX)) }.check()
}

static RECORDING: Mutex<()> = Mutex::new(());

struct Recording {
    _alone: MutexGuard<'static, ()>,
}

impl Recording {
    fn start() -> Recording {
        let alone = RECORDING.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        // SAFETY: the shim guards its list with a mutex.
        unsafe { ffi::lt_host_record_start() };
        Recording { _alone: alone }
    }

    fn finish(self) -> Vec<HostEvent> {
        // SAFETY: nothing is written to the list between these calls: recording is off and `_alone` keeps others out;
        // `entries` has room for as many as the shim said.
        let entries = unsafe {
            let count = ffi::lt_host_record_stop();
            let mut entries = vec![ffi::HostEntry::default(); count];
            ffi::lt_host_record_take(entries.as_mut_ptr(), count);
            entries
        };
        entries.iter().map(event).collect()
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        // SAFETY: stopping twice is harmless.
        unsafe { ffi::lt_host_record_stop() };
    }
}

fn event(entry: &ffi::HostEntry) -> HostEvent {
    let action = match entry.action {
        0 => HostAction::Allocate,
        1 => HostAction::Free,
        _ => HostAction::Refuse,
    };
    HostEvent { action, serial: entry.serial, bytes: Bytes(entry.bytes), nanoseconds: entry.nanoseconds }
}

fn bytes(value: i64) -> Bytes {
    Bytes(u64::try_from(value).unwrap_or(0))
}
