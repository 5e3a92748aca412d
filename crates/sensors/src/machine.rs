//! The memory of the whole machine.

use serde::{Deserialize, Serialize};

use crate::files::{Files, kilobytes};
use crate::{Missing, Reading};

const MEMORY: &str = "proc/meminfo";
const PRESSURE: &str = "proc/pressure/memory";

/// The memory of the whole machine, in bytes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    /// Memory that the kernel manages (`MemTotal`).
    pub total_bytes: u64,
    /// What a new program could have without swapping (`MemAvailable`).
    pub available_bytes: u64,
    /// Swap there is.
    pub swap_total_bytes: u64,
    /// Swap that is taken.
    pub swap_used_bytes: u64,
    /// How much work waits for memory; missing on kernels without pressure stall information.
    pub pressure: Reading<Pressure>,
}

/// Pressure stall information of memory.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Pressure {
    /// Time in which some task waited for memory.
    pub some: Stall,
    /// Time in which every task waited for memory.
    pub full: Stall,
}

/// How long tasks waited.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Stall {
    /// Share of the last ten seconds, in percent.
    pub last_10s_percent: f64,
    /// Share of the last minute, in percent.
    pub last_60s_percent: f64,
    /// All of it since the machine started, in microseconds.
    pub total_microseconds: u64,
}

impl Machine {
    /// The memory that is not available.
    pub const fn used_bytes(&self) -> u64 {
        self.total_bytes.saturating_sub(self.available_bytes)
    }

    pub(crate) fn read(files: &mut Files) -> Result<Self, Missing> {
        let [total, available, swap_total, swap_free] = memory(&files.read(MEMORY)?)?;
        Ok(Self {
            total_bytes: total,
            available_bytes: available,
            swap_total_bytes: swap_total,
            swap_used_bytes: swap_total.saturating_sub(swap_free),
            pressure: files.read(PRESSURE).and_then(|text| pressure(&text)).into(),
        })
    }
}

fn memory(text: &str) -> Result<[u64; 4], Missing> {
    const NAMES: [&str; 4] = ["MemTotal", "MemAvailable", "SwapTotal", "SwapFree"];
    let mut found = [None; 4];
    for line in text.lines() {
        let Some((name, value)) = line.split_once(':') else { continue };
        let Some(index) = NAMES.iter().position(|wanted| *wanted == name) else { continue };
        found[index] = kilobytes(value);
        if found.iter().all(Option::is_some) {
            break;
        }
    }
    let figure = |index: usize| {
        found[index].ok_or_else(|| Missing::malformed(MEMORY, &format!("{} is no number of kB", NAMES[index])))
    };
    // A kernel without swap has no lines about it.
    Ok([figure(0)?, figure(1)?, found[2].unwrap_or(0), found[3].unwrap_or(0)])
}

fn pressure(text: &str) -> Result<Pressure, Missing> {
    let stall = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name))?;
        let field = |key: &str| line.split_whitespace().find_map(|word| word.strip_prefix(key));
        Some(Stall {
            last_10s_percent: field("avg10=")?.parse().ok().filter(|share: &f64| share.is_finite())?,
            last_60s_percent: field("avg60=")?.parse().ok().filter(|share: &f64| share.is_finite())?,
            total_microseconds: field("total=")?.parse().ok()?,
        })
    };
    stall("some ")
        .zip(stall("full "))
        .map(|(some, full)| Pressure { some, full })
        .ok_or_else(|| Missing::malformed(PRESSURE, "not of the form `some avg10=0.00 avg60=0.00 ... total=0`"))
}
