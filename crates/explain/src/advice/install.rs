//! Packages being installed or compiled: the machine's memory is taken by the installer or by many compilers at once.

use super::list::{ALL, List};
use crate::Lever;
use crate::log::Sign;

impl List<'_> {
    /// What helps an installation; whether this is one.
    pub(super) fn installation(&mut self) -> bool {
        // A notebook installs what it needs before it trains.
        if self.case.trains() || self.case.step.is_some() {
            return false;
        }
        let (builds, installs) =
            (self.case.shows(Sign::Build), self.case.shows(Sign::Install) || self.case.narrative().installs);
        if builds {
            self.add(
                Lever::FewerJobs,
                "Compile fewer files at once: MAX_JOBS=2 (PyTorch extensions, ninja), CMAKE_BUILD_PARALLEL_LEVEL=2, make -j2; \
                 one compiler of CUDA code takes several GB",
                ALL,
            );
        }
        if installs && !builds {
            self.add(
                Lever::NoInstallCache,
                "Install without pip's cache: pip install --no-cache-dir; otherwise pip holds the whole package in memory",
                ALL,
            );
        }
        if builds || installs {
            self.more_memory();
        }
        builds || installs
    }
}
