//! NVIDIA cards, by the library of their driver.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use nvml_wrapper::Nvml;
use nvml_wrapper::enum_wrappers::device::TemperatureSensor;
use nvml_wrapper::enums::device::UsedGpuMemory;
use nvml_wrapper::error::NvmlError;
use serde::{Deserialize, Serialize};

use crate::files::Files;
use crate::{CardProcesses, Cause, GpuProcess, Missing, Reading, process};

const LIBRARY: &str = "libnvidia-ml.so.1";

/// All cards, or why there are none.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Gpus {
    /// The cards, by index.
    pub cards: Vec<Gpu>,
    /// Why the list is empty, where it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub missing: Option<Missing>,
}

/// One card.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Gpu {
    /// Its place in the driver's list, which CUDA's own order may differ from.
    pub index: u32,
    /// What the driver calls it.
    pub name: String,
    /// The name that stays the same over restarts.
    pub uuid: String,
    /// Its memory.
    pub memory: Reading<GpuMemory>,
    /// Share of the last moments in which a kernel ran, in percent.
    pub utilisation_percent: Reading<u32>,
    /// The temperature when the last [`Detail`](crate::Detail) was taken, in degrees Celsius.
    pub temperature_celsius: Reading<u32>,
}

/// The memory of a card, in bytes. Used, free and the driver's part make up the total.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct GpuMemory {
    /// All there is.
    pub total_bytes: u64,
    /// Held by processes.
    pub used_bytes: u64,
    /// To be had.
    pub free_bytes: u64,
    /// Held by the driver for itself.
    pub driver_bytes: u64,
}

/// The driver's library, open, and what does not change about its cards.
#[derive(Debug)]
pub(crate) enum Cards {
    Open { nvml: Box<Nvml>, cards: Vec<Card> },
    None(Missing),
}

#[derive(Debug)]
pub(crate) struct Card {
    index: u32,
    name: String,
    uuid: String,
    temperature: Reading<u32>,
}

impl Cards {
    /// Opens the library: the driver's own, or the one that is named.
    pub(crate) fn open(library: Option<&PathBuf>) -> Self {
        let path = library.map_or(Path::new(LIBRARY), PathBuf::as_path);
        let nvml = match Nvml::builder().lib_path(path.as_os_str()).init() {
            Ok(nvml) => nvml,
            Err(error) => return Self::None(opening(path, &error)),
        };
        let count = match nvml.device_count() {
            Ok(0) => return Self::None(Missing::new(Cause::Absent, "the driver knows no card")),
            Ok(count) => count,
            Err(error) => return Self::None(failed("number of cards", &error)),
        };
        let cards = (0..count).map(|index| Card::open(&nvml, index)).collect();
        Self::Open { nvml: Box::new(nvml), cards }
    }

    pub(crate) fn read(&self) -> Gpus {
        match self {
            Self::Open { nvml, cards } => {
                Gpus { cards: cards.iter().map(|card| card.read(nvml)).collect(), missing: None }
            }
            Self::None(missing) => Gpus { cards: Vec::new(), missing: Some(missing.clone()) },
        }
    }

    /// Temperatures and the processes on every card; `owners` says of processes which watched one they are or are below.
    pub(crate) fn read_slow(
        &mut self,
        files: &mut Files,
        owners: &BTreeMap<u32, u32>,
        watched: Option<u32>,
    ) -> Vec<CardProcesses> {
        let Self::Open { nvml, cards } = self else { return Vec::new() };
        for card in cards.iter_mut() {
            card.temperature = temperature(nvml, card.index);
        }
        cards
            .iter()
            .map(|card| CardProcesses {
                index: card.index,
                processes: processes(nvml, card.index, files, owners, watched).into(),
            })
            .collect()
    }
}

impl Card {
    fn open(nvml: &Nvml, index: u32) -> Self {
        let device = nvml.device_by_index(index);
        let text = |value: Option<Result<String, NvmlError>>| value.and_then(Result::ok).unwrap_or_default();
        Self {
            index,
            name: text(device.as_ref().ok().map(|device| device.name())),
            uuid: text(device.as_ref().ok().map(|device| device.uuid())),
            temperature: temperature(nvml, index),
        }
    }

    fn read(&self, nvml: &Nvml) -> Gpu {
        // Finding the handle is a look into a table of the library's; kept, it would borrow from the library.
        let device = nvml.device_by_index(self.index).map_err(|error| failed("card", &error));
        let memory = device.as_ref().map_err(Clone::clone).and_then(|device| {
            let info = device.memory_info().map_err(|error| failed("memory", &error))?;
            Ok(GpuMemory {
                total_bytes: info.total,
                used_bytes: info.used,
                free_bytes: info.free,
                driver_bytes: info.reserved,
            })
        });
        let utilisation = device.as_ref().map_err(Clone::clone).and_then(|device| {
            device.utilization_rates().map(|rates| rates.gpu).map_err(|error| failed("utilisation", &error))
        });
        Gpu {
            index: self.index,
            name: self.name.clone(),
            uuid: self.uuid.clone(),
            memory: memory.into(),
            utilisation_percent: utilisation.into(),
            temperature_celsius: self.temperature.clone(),
        }
    }
}

fn temperature(nvml: &Nvml, index: u32) -> Reading<u32> {
    nvml.device_by_index(index)
        .and_then(|device| device.temperature(TemperatureSensor::Gpu))
        .map_err(|error| failed("temperature", &error))
        .into()
}

/// The processes on a card, largest first. One that computes and draws is in both lists of the driver, once here.
fn processes(
    nvml: &Nvml,
    index: u32,
    files: &mut Files,
    owners: &BTreeMap<u32, u32>,
    watched: Option<u32>,
) -> Result<Vec<GpuProcess>, Missing> {
    let device = nvml.device_by_index(index).map_err(|error| failed("card", &error))?;
    let mut listed = device.running_compute_processes().map_err(|error| failed("processes", &error))?;
    // Cards for computing alone do not know this list.
    listed.extend(device.running_graphics_processes().unwrap_or_default());
    let mut found: Vec<GpuProcess> = Vec::with_capacity(listed.len());
    let everywhere = process::numbers_are_the_machines(files);
    for process in listed {
        let memory_bytes = match process.used_gpu_memory {
            UsedGpuMemory::Used(bytes) => Reading::Known(bytes),
            UsedGpuMemory::Unavailable => {
                Reading::Missing(Missing::new(Cause::Denied, "the driver does not tell a process's memory here"))
            }
        };
        match found.iter_mut().find(|other| other.pid == process.pid) {
            Some(other) if other.memory_bytes.known() < memory_bytes.known() => other.memory_bytes = memory_bytes,
            Some(_) => {}
            None => {
                // Inside a container the number may be that of a process outside, and another one's here.
                let same = everywhere || process::maps_driver(files, process.pid);
                let name = if same { process::name(files, process.pid) } else { Err(outside(process.pid)) };
                let of = owners.get(&process.pid).copied().filter(|_| same);
                let watched = of.is_some() && of == watched;
                found.push(GpuProcess { pid: process.pid, name: name.into(), memory_bytes, watched, of });
            }
        }
    }
    found.sort_by(|one, other| other.memory_bytes.known().cmp(&one.memory_bytes.known()).then(one.pid.cmp(&other.pid)));
    Ok(found)
}

fn outside(pid: u32) -> Missing {
    Missing::new(Cause::Absent, format!("process {pid} is not one of this container"))
}

fn opening(path: &Path, error: &NvmlError) -> Missing {
    match error {
        NvmlError::LibloadingError(_) => {
            Missing::new(Cause::Absent, format!("{} cannot be loaded: no NVIDIA driver", path.display()))
        }
        NvmlError::DriverNotLoaded => Missing::new(Cause::Absent, "the NVIDIA driver is not loaded"),
        NvmlError::NoPermission => Missing::new(Cause::Denied, "this user may not talk to the NVIDIA driver"),
        other => Missing::new(Cause::Failed, format!("{}: {other}", path.display())),
    }
}

fn failed(what: &str, error: &NvmlError) -> Missing {
    let cause = match error {
        NvmlError::NotSupported | NvmlError::FailedToLoadSymbol(_) => Cause::Absent,
        NvmlError::NoPermission => Cause::Denied,
        _ => Cause::Failed,
    };
    Missing::new(cause, format!("{what}: {error}"))
}
