//! The memory that a run may use.

use lowtide_core::LineSpec;
use serde::{Deserialize, Serialize};

use super::violation::{Violation, ensure};
use crate::source::excerpt::excerpt;
use crate::{Clean, Spill};

/// The memory that a run may use: the keys under `memory`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct MemorySettings {
    /// The limit of the device, the line: a size, a percentage of what the device has, or none. Default: none.
    #[serde(rename = "limit")]
    pub line: LineSpec,
    /// The limit of host memory, likewise. Default: none.
    #[serde(rename = "host_limit")]
    pub host_line: LineSpec,
    /// Settings of the CUDA allocator, used unless the user set the allocator's own variable. Default:
    /// `expandable_segments:True`.
    pub allocator: String,
    /// When cached memory is given back although nothing failed. Default: auto.
    pub clean: Clean,
    /// Whether host memory is used for what a GPU has no room for. Never under a limit of host memory. Default: auto.
    pub spill: Spill,
    /// Whether fp32 may become bf16 (fp16 where the card has no bf16) when nothing else is enough: it changes more than
    /// rounding. Default: false.
    pub narrow: bool,
    /// Whether a run goes on after memory ran out. Off, the first such error ends it, as it would elsewhere: to see what a
    /// run needs. Default: true.
    pub recover: bool,
}

impl Default for MemorySettings {
    fn default() -> Self {
        Self {
            line: LineSpec::None,
            host_line: LineSpec::None,
            allocator: "expandable_segments:True".to_owned(),
            clean: Clean::Auto,
            spill: Spill::Auto,
            narrow: false,
            recover: true,
        }
    }
}

impl MemorySettings {
    pub(crate) fn check(&self) -> Result<(), Violation> {
        let is_one_line = !self.allocator.chars().any(char::is_control);
        let got = format!("\"{}\"", excerpt(&self.allocator));
        ensure(is_one_line, "allocator", "one line such as expandable_segments:True", got)
    }
}
