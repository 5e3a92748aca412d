//! A turn for each test: allocator, random state and settings are the process's.

use std::sync::MutexGuard;

use lowtide_core::Line;
use lowtide_torch::tch::{self, Device};
use lowtide_torch::{host, rng};

/// The process for one test, as it was at the start: our allocator without a line or failures, one thread, one seed.
pub(crate) fn alone() -> MutexGuard<'static, ()> {
    let guard = lowtide_testkit::alone();
    host::install();
    host::set_line(Line::NONE);
    host::fail_nth(1, 0);
    // The tensors are small: a second thread would only make them wait on a busy machine.
    tch::set_num_threads(1);
    rng::seed(Device::Cpu, 11).unwrap();
    guard
}
