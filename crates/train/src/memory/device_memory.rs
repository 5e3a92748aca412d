//! The lines of a run, drawn under the allocators, and what the allocators say.
//!
//! The line on a GPU is what the driver sees: the allocator's limit is the line less the context (measured after one of
//! each kind of kernel ran) less 20 MiB where expandable segments are on. Memory of other processes counts as context,
//! because the driver does not tell them apart without NVML.

use std::cell::Cell;
use std::time::Instant;

use lowtide_core::{Bytes, Event, Line, LineSpec, Step};
use lowtide_settings::{MemorySettings, Origins, SettingsError};
use lowtide_torch::cuda::{self, AllocatorReading, AllocatorSettings, CudaMemory, EXPANDABLE_SLACK};
use lowtide_torch::tch::Device;
use lowtide_torch::{DeviceFacts, TorchError, host};

use crate::error::{Holder, Result, TrainError};

/// Room for kernels that are loaded only when a run first uses them, after the context was measured.
const LATE_KERNELS: Bytes = Bytes::from_mib(64);

/// What CUDA graphs hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct GraphMemory {
    /// What the allocator has taken for what they allocate.
    pub(crate) pool: Bytes,
    /// Gradients that stay where they are.
    pub(crate) gradients: Bytes,
    /// What the driver has taken for the graphs themselves, beside the allocator.
    pub(crate) driver: Bytes,
}

/// A device with its line.
///
/// On the CPU the line bounds the memory of tensors. On a GPU it is what the driver sees, so the allocator gets what
/// remains after the context. The host line bounds the resident memory of the process, so tensors on the host get what
/// remains after what else was resident at the start and what data may take.
#[derive(Debug)]
pub(crate) struct DeviceMemory {
    device: Device,
    /// The line as resolved: what was asked for.
    pub(crate) line: Line,
    /// The host line as resolved.
    pub(crate) host_line: Line,
    /// What the device's allocator may hold.
    pub(crate) limit: Line,
    host_limit: Line,
    /// What the device has, less the context.
    whole: Line,
    /// What CUDA graphs hold at present. The allocator takes their memory for free blocks.
    graphs: Cell<GraphMemory>,
}

impl DeviceMemory {
    /// Resolves the lines, without drawing them yet; `data` is what the workload's data may take on the host.
    pub(crate) fn resolve(
        settings: &MemorySettings,
        facts: &DeviceFacts,
        allocator: &AllocatorSettings,
        data: Bytes,
    ) -> Result<Self> {
        let line = resolved(settings.line, facts.total, "memory.limit")?;
        let host_line = resolved(settings.host_line, facts.host_total, "memory.host_limit")?;
        let host_limit = below(host_line, Holder::Program, host::resident_without_tensors().saturating_add(data))?;
        let limit = match facts.device {
            Device::Cuda(_) => {
                let slack = if allocator.expandable() { EXPANDABLE_SLACK } else { Bytes::ZERO };
                below(line, Holder::Context, facts.context.saturating_add(slack).saturating_add(LATE_KERNELS))?
            }
            _ => {
                let drawn = [line, host_limit].into_iter().filter(|line| *line != Line::NONE);
                drawn.min_by_key(|line| line.limit()).unwrap_or_default()
            }
        };
        let whole = Line::at(facts.total.saturating_sub(facts.context)).unwrap_or(Line::NONE);
        Ok(DeviceMemory { device: facts.device, line, host_line, limit, host_limit, whole, graphs: Cell::default() })
    }

    /// The name of the device in events and files.
    pub(crate) fn device_name(&self) -> String {
        match self.device {
            Device::Cuda(index) => format!("cuda:{index}"),
            _ => "cpu".to_owned(),
        }
    }

    /// Whether the device keeps released blocks for later.
    pub(crate) fn is_cached(&self) -> bool {
        self.device.is_cuda()
    }

    /// What may be taken from a device that caches blocks, where there is one.
    pub(crate) fn cached_room(&self) -> Option<Bytes> {
        self.roof().limit().filter(|_| self.is_cached())
    }

    /// The limit, or the whole device where there is none.
    pub(crate) fn roof(&self) -> Line {
        if self.limit.limit().is_some() { self.limit } else { self.whole }
    }

    /// Draws the lines under the allocators.
    pub(crate) fn draw(&self) -> Result<()> {
        match self.device {
            Device::Cuda(index) => {
                host::set_line(self.host_limit);
                if let Some(limit) = self.limit.limit() {
                    cuda::set_limit(index, limit.saturating_sub(self.graphs.get().driver))?;
                }
            }
            _ => host::set_line(self.limit),
        }
        Ok(())
    }

    /// Counts what CUDA graphs hold from now on.
    pub(crate) fn note_graphs(&self, held: GraphMemory) -> Result<()> {
        let before = self.graphs.replace(held);
        if before.driver == held.driver { Ok(()) } else { self.draw() }
    }

    /// What the device's allocator says now, with what graphs use of it.
    pub(crate) fn reading(&self) -> Result<AllocatorReading> {
        match self.device {
            Device::Cuda(index) => {
                let (reading, pool) = (cuda::stats(index)?, self.graphs.get().pool);
                let allocated = reading.allocated.saturating_add(pool);
                Ok(AllocatorReading {
                    allocated,
                    allocated_peak: reading.allocated_peak.saturating_add(pool),
                    ..reading
                })
            }
            _ => {
                let stats = host::stats();
                Ok(AllocatorReading {
                    allocated: stats.allocated,
                    allocated_peak: stats.peak,
                    reserved: stats.allocated,
                    reserved_peak: stats.peak,
                    retries: 0,
                    ooms: stats.refusals,
                })
            }
        }
    }

    /// What a step holds whatever its micro-batch is: what is held now, and the gradients, which are there from its second
    /// piece on.
    pub(crate) fn resting(&self, gradients: Bytes) -> Result<Bytes> {
        let GraphMemory { pool, gradients: there, .. } = self.graphs.get();
        let held = self.reading()?.allocated.saturating_sub(pool);
        Ok(held.saturating_add(gradients.saturating_sub(there)))
    }

    /// Free and total memory as the driver tells, all programs together; the CPU has no driver.
    pub(crate) fn of_device(&self) -> Option<CudaMemory> {
        match self.device {
            Device::Cuda(index) => cuda::memory(index).ok(),
            _ => None,
        }
    }

    pub(crate) fn reset_peaks(&self) -> Result<()> {
        match self.device {
            Device::Cuda(index) => Ok(cuda::reset_peaks(index)?),
            _ => {
                host::reset_peak();
                Ok(())
            }
        }
    }

    /// Releases cached blocks and says what that gave and cost. The CPU allocator caches nothing.
    pub(crate) fn release_cache(&self, step: Step) -> Result<Event, TorchError> {
        let begun = Instant::now();
        let freed = match self.device {
            Device::Cuda(index) => {
                let before = cuda::stats(index)?.reserved;
                cuda::empty_cache()?;
                before.saturating_sub(cuda::stats(index)?.reserved)
            }
            _ => Bytes::ZERO,
        };
        Ok(Event::Cleaned { step, freed, seconds: begun.elapsed().as_secs_f64() })
    }
}

fn resolved(spec: LineSpec, total: Bytes, key: &'static str) -> Result<Line> {
    spec.resolve(total)
        .map_err(|error| TrainError::Settings(SettingsError::refused(key, error.to_string(), &Origins::default())))
}

/// The line less what is taken already.
fn below(line: Line, holder: Holder, taken: Bytes) -> Result<Line> {
    match line.limit() {
        None => Ok(Line::NONE),
        Some(line) if line <= taken => Err(TrainError::LineTooSmall { holder, needed: taken, line }),
        Some(limit) => Ok(Line::at(limit.saturating_sub(taken)).expect("there is something left")),
    }
}
