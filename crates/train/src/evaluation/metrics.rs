//! Which figures an evaluation has.

use lowtide_core::Bytes;
use lowtide_settings::{EvalSettings, Origins, SettingsError};
use lowtide_torch::TorchError;

use super::figures::MissingFigures;
use crate::error::Result;
use crate::workload::{Metric, Workload};

/// The figure that is always there: what the best checkpoint and `eval.patience` go by.
pub(super) const LOSS: &str = "loss";

/// Refuses a name that the workload does not have.
pub(super) fn check(settings: &EvalSettings, workload: &dyn Workload) -> Result<()> {
    let known: Vec<&str> = [LOSS].into_iter().chain(workload.metrics().iter().map(|metric| metric.name)).collect();
    let mut names = settings.metrics.iter().flatten();
    let Some(unknown) = names.find(|name| !known.contains(&name.as_str())) else { return Ok(()) };
    let problem =
        format!("`{}` has no metric `{}`: there are {}", workload.name(), unknown.escape_debug(), known.join(", "));
    Err(SettingsError::refused("eval.metrics", problem, &Origins::default()).into())
}

/// Fresh tallies of those that are asked for and not left out.
pub(super) fn selected<'a>(
    settings: &EvalSettings,
    workload: &'a dyn Workload,
    left_out: &MissingFigures,
) -> Vec<Metric<'a>> {
    let mut metrics = workload.metrics();
    metrics.retain(|metric| {
        let is_asked = settings.metrics.as_ref().is_none_or(|names| names.iter().any(|name| name == metric.name));
        is_asked && !left_out.contains_key(metric.name)
    });
    metrics
}

/// Why memory that ran out cost a figure.
pub(super) fn reason(error: &TorchError) -> String {
    let TorchError::Oom { oom, .. } = error else { return error.to_string() };
    let known = [
        oom.requested.filter(|asked| *asked > Bytes::ZERO).map(|asked| format!("{asked} were asked for")),
        oom.allocated.map(|held| format!("{held} were in use")),
        oom.limit.map(|limit| format!("the limit is {limit}")),
    ];
    let known: Vec<String> = known.into_iter().flatten().collect();
    let colon = if known.is_empty() { "" } else { ": " };
    format!("memory ran out{colon}{}", known.join(", "))
}
