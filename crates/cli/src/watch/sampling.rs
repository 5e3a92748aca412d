//! Samples of the machine for those who watch.

use std::time::Instant;

use lowtide_sensors::{Detail, Due, Options, Sample, Sampler, Schedule};

/// Seconds between two samples.
const FAST: f64 = 0.5;
/// Seconds between two looks at what takes long.
const SLOW: f64 = 10.0;

/// Takes samples when they are due.
#[derive(Debug)]
pub(crate) struct Sampling {
    begun: Instant,
    schedule: Schedule,
    /// Opened by the first sample, because the driver's library takes some tenths of a second.
    sampler: Option<Sampler>,
    processes: Vec<u32>,
}

impl Sampling {
    pub(crate) fn new() -> Self {
        Self { begun: Instant::now(), schedule: Schedule::new(0.0, FAST, SLOW), sampler: None, processes: Vec::new() }
    }

    /// A sample that tells of these processes, where one is due, and what takes long where that is. The first one is told of
    /// at length.
    pub(crate) fn take(&mut self, processes: Vec<u32>) -> Option<(Sample, Option<Detail>)> {
        let now = self.begun.elapsed().as_secs_f64();
        let (first, before) = (processes.first().copied(), self.processes.first().copied());
        if first != before {
            // Children and shares of the process before are of no use.
            self.schedule = Schedule::new(now, FAST, SLOW);
        }
        let due = self.schedule.due(now);
        if due == Due::Nothing {
            return None;
        }
        let sampler = self.sampler.get_or_insert_with(|| sampler(first));
        if self.processes != processes {
            if first != before {
                sampler.watch(first);
            }
            sampler.watch_besides(processes.get(1..).unwrap_or_default());
            self.processes = processes;
        }
        let start = Instant::now();
        let detail = match due {
            Due::Both => Some(sampler.slow(now)),
            Due::Lists => Some(sampler.lists(now)),
            Due::Fast | Due::Nothing => None,
        };
        if due == Due::Both {
            self.schedule.shares_took(now, start.elapsed().as_secs_f64());
        }
        Some((sampler.fast(now), detail))
    }
}

fn sampler(process: Option<u32>) -> Sampler {
    // The page of `lowtide train --watch` is a child of the run that it shows.
    Sampler::new(Options { process, leave_out: Some(std::process::id()), ..Options::default() })
}

/// A process as the system shows it at this moment.
pub(crate) fn look_at(pid: u32) -> Sample {
    // Cards are of no interest here, and their library takes long to open.
    let nvml = Some("/dev/null".into());
    Sampler::new(Options { process: Some(pid), nvml, ..Options::default() }).fast(0.0)
}
