//! What training and evaluating take over the settings in a file.

use clap::Args;
use lowtide_core::LineSpec;
use lowtide_settings::{Override, SettingsError};

/// Values that go over those of the configuration.
#[derive(Debug, Args)]
pub struct SettingArgs {
    /// Set one configuration key, such as train.steps=50 or eval.batches=20. May be given several times.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub set: Vec<String>,

    /// The memory limit of the device: a size (3.5GiB), a percentage of the device (90%), or none (memory.limit).
    ///
    /// On a GPU it is what the driver sees, everything included; on the CPU it is the memory of tensors.
    #[arg(long = "limit", alias = "line", value_name = "SIZE")]
    pub line: Option<LineSpec>,

    /// The memory limit of the host: bounds the resident memory of the process. A size, a percentage, or none
    /// (memory.host_limit).
    #[arg(long = "host-limit", alias = "host-line", value_name = "SIZE")]
    pub host_line: Option<LineSpec>,
}

impl SettingArgs {
    /// What was typed after `--set`, then what these flags and `flags` stand for: each a flag, its key, and its value where it
    /// was given.
    pub(crate) fn overrides<'a>(
        &self,
        flags: impl IntoIterator<Item = (&'a str, &'a str, Option<String>)>,
    ) -> Result<Vec<Override>, SettingsError> {
        let limits = [
            ("--limit", "memory.limit", self.line.map(|line| line.to_string())),
            ("--host-limit", "memory.host_limit", self.host_line.map(|line| line.to_string())),
        ];
        let set = self.set.iter().map(|text| Override::set(text));
        let flags = limits.into_iter().chain(flags);
        let flags = flags.filter_map(|(flag, key, value)| Some(Override::flag(flag, key, &value?)));
        set.chain(flags).collect()
    }
}
