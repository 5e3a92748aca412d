//! DeepSpeed's configurations, whose `train_batch_size` is the batch of all devices and steps together.

use lowtide_config::{Config, Setting, Syntax};

/// What DeepSpeed fills in by itself.
pub(crate) const AUTO: &str = "auto";

const MARKS: [&str; 4] =
    ["zero_optimization", "train_micro_batch_size_per_gpu", "steps_per_print", "wall_clock_breakdown"];

/// Whether a configuration is DeepSpeed's.
#[must_use]
pub fn is_deepspeed(config: &Config) -> bool {
    let is_mark = |setting: &Setting| setting.path.first().is_some_and(|name| MARKS.contains(&&**name));
    config.syntax == Syntax::Json && config.settings.iter().any(is_mark)
}

/// DeepSpeed's `train_batch_size`.
#[must_use]
pub fn whole_batch(config: &Config) -> Option<&Setting> {
    let is_whole = |setting: &&Setting| setting.path == ["train_batch_size"] && setting.value != AUTO;
    config.settings.iter().find(is_whole).filter(|_| is_deepspeed(config))
}

/// DeepSpeed's numbers for one device that are plain ones.
pub(crate) fn fixed_numbers(config: &Config) -> impl Iterator<Item = &Setting> {
    const NAMES: [&str; 2] = ["train_micro_batch_size_per_gpu", "gradient_accumulation_steps"];
    let is_it = |setting: &&Setting| NAMES.iter().any(|name| setting.path == [*name]) && setting.value != AUTO;
    config.settings.iter().filter(is_it)
}
