//! What every command of the engine takes.

use std::num::NonZeroU32;

use clap::Args;
use lowtide_core::DeviceChoice;

/// How the engine runs, whatever it does.
#[derive(Debug, Args)]
pub struct EngineArgs {
    /// Where to compute: auto, cpu, cuda or cuda:N. auto takes the first GPU, or the CPU where there is none.
    ///
    /// Default: auto; a resumed run stays where it was started.
    #[arg(long, value_name = "DEVICE")]
    pub device: Option<DeviceChoice>,

    /// Fix what decides the bits: orders of adding, instruction sets (AVX2) and threads (1, or --threads).
    ///
    /// Runs then end with the same weights, bit for bit, whatever processors they may use. Slower, on a GPU too. A resumed
    /// run stays as it was started; --deterministic=false ends that.
    #[arg(
        long,
        value_name = "true|false",
        hide_possible_values = true,
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true"
    )]
    pub deterministic: Option<bool>,

    /// Threads that share an operation on the CPU. Default: as many as there are processors for this process.
    #[arg(long, value_name = "N", value_parser = threads)]
    pub threads: Option<NonZeroU32>,

    /// Print what happens as lines of JSON on standard output, and nothing else there.
    #[arg(long)]
    pub json: bool,
}

/// The most threads that may be named: far beyond any machine, and few enough to be started.
const MOST_THREADS: u32 = 1024;

fn threads(text: &str) -> Result<NonZeroU32, String> {
    let number = text.parse::<NonZeroU32>().ok().filter(|number| number.get() <= MOST_THREADS);
    number.ok_or_else(|| format!("expected a number from 1 to {MOST_THREADS}"))
}
