//! Flags that stand for settings.

use lowtide_settings::{LoadedSettings, Override, SettingsError};
use serde_json::Value;

use crate::args::{ScoringFlags, TrainArgs};

/// The settings that flags stand for.
pub(crate) fn overrides(args: &TrainArgs) -> Result<Vec<Override>, SettingsError> {
    let scoring = &args.scoring;
    let number = |number: u64| number.to_string();
    // A path or a pattern may look like a number or a list.
    let text = |text: &String| Value::String(text.clone()).to_string();
    let flags = [
        ("--line", "memory.line", args.line.map(|line| line.to_string())),
        ("--host-line", "memory.host_line", args.host_line.map(|line| line.to_string())),
        ("--epochs", "train.epochs", args.epochs.map(number)),
        ("--batch-size", "train.batch", args.batch_size.map(u64::from).map(number)),
        ("--preprocessed-dir", "data.folder", scoring.preprocessed_dir.as_ref().map(text)),
        ("--data-pattern", "data.pattern", scoring.data_pattern.as_ref().map(text)),
        ("--data-pattern", "data.load", scoring.data_pattern.as_ref().map(|_| "whole".to_owned())),
        ("--scores-file", "data.scores", scoring.scores_file.as_ref().map(text)),
        ("--max-cache-batches", "data.cache_batches", scoring.max_cache_batches.map(u64::from).map(number)),
    ];
    let given = flags.into_iter().filter_map(|(flag, key, value)| Some((flag, key, value?)));
    given.map(|(flag, key, value)| Override::flag(flag, key, &value)).collect()
}

/// The models that are trained, where flags say something about that.
pub(crate) fn models(args: &ScoringFlags, loaded: &LoadedSettings) -> Result<Option<Override>, SettingsError> {
    let said = [
        ("lstm", args.run_lstm, args.no_run_lstm),
        ("gnn_det", args.run_gnn_det, args.no_run_gnn_det),
        ("gvae", args.run_gvae, args.no_run_gvae),
    ];
    let Some(flag) = said.iter().find_map(|(name, run, leave)| {
        let flag = name.replace('_', "-");
        if *run { Some(format!("--run-{flag}")) } else { leave.then(|| format!("--no-run-{flag}")) }
    }) else {
        return Ok(None);
    };
    let listed = loaded.settings.model.get("run").and_then(Value::as_array);
    let is_listed = |name: &str| listed.is_none_or(|listed| listed.iter().any(|one| one.as_str() == Some(name)));
    let named = said.iter().filter(|(name, run, leave)| *run || (!leave && is_listed(name))).map(|(name, ..)| *name);
    let list = format!("[{}]", named.collect::<Vec<_>>().join(", "));
    Override::flag(&flag, "model.run", &list).map(Some)
}
