//! Samples of memory between two steps.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use lowtide_core::{Bytes, Event, Step};
use lowtide_sensors::HostSampler;
use lowtide_settings::WatchSettings;
use lowtide_torch::host;

use super::device_memory::DeviceMemory;
use crate::error::Result;

/// Knows when the next sample is due.
pub(crate) struct Monitor {
    host: HostSampler,
    pause: Option<Duration>,
    log_every: Option<u64>,
    /// When and after which step the last one was taken.
    last: Option<(Instant, Step)>,
    /// The steps with other ranks since then.
    steps: Steps,
}

/// How long steps took, and how much of that this rank waited for others.
#[derive(Debug, Clone, Copy, Default)]
struct Steps {
    count: u32,
    seconds: f64,
    waited: f64,
}

impl Steps {
    /// On average: worked and waited.
    fn pace(self) -> Option<(f64, f64)> {
        let Self { count, seconds, waited } = self;
        (count > 0).then(|| ((seconds - waited).max(0.0) / f64::from(count), waited / f64::from(count)))
    }
}

impl Monitor {
    pub(crate) fn new(settings: &WatchSettings) -> Monitor {
        let pause = settings.seconds.map(Duration::from_secs);
        let host = HostSampler::new(PathBuf::from("/"));
        Monitor { host, pause, log_every: settings.log_every, last: None, steps: Steps::default() }
    }

    /// Notes a step that was made with other ranks.
    pub(crate) fn note(&mut self, seconds: f64, waited: f64) {
        let Steps { count, seconds: before, waited: waited_before } = self.steps;
        self.steps = Steps { count: count + 1, seconds: before + seconds, waited: waited_before + waited };
    }

    /// Whether a sample is due after this step: by the clock, or because the log is to tell of it.
    pub(crate) fn is_due(&self, step: Step) -> bool {
        let is_asked = self.log_every.is_some_and(|every| step.get().is_multiple_of(every));
        let by_clock = |pause: Duration| self.last.is_none_or(|(when, _)| when.elapsed() >= pause);
        self.last.is_none_or(|(_, last)| last != step) && (is_asked || self.pause.is_some_and(by_clock))
    }

    /// Memory as it is now.
    pub(crate) fn sample(&mut self, step: Step, memory: &DeviceMemory) -> Result<Event> {
        self.last = Some((Instant::now(), step));
        let reading = memory.reading()?;
        let device = memory.of_device();
        let host = self.host.read().ok();
        let pace = std::mem::take(&mut self.steps).pace();
        Ok(Event::Memory {
            step,
            allocated: reading.allocated,
            reserved: reading.reserved,
            retries: reading.retries,
            device_used: device.map(|device| device.total.saturating_sub(device.free)),
            device_total: device.map(|device| device.total),
            resident: host::resident().now,
            host_used: host.map(|host| Bytes(host.used_bytes)),
            host_total: host.map(|host| Bytes(host.total_bytes)),
            reserve: None,
            worked: pace.map(|(worked, _)| worked),
            waited: pace.map(|(_, waited)| waited),
        })
    }
}
