//! The settings that flags and `--set` stand for.

use std::path::Path;

use lowtide_settings::{LoadedSettings, Override, RunSettings, SettingsError};
use serde_json::Value;

use crate::eval::EvalArgs;
use crate::train::{ScoringFlags, TrainArgs};

impl TrainArgs {
    /// The settings of a run: those of a file with this text, with what was typed over them.
    ///
    /// # Errors
    ///
    /// A mistake in either, with its place.
    pub fn settings(&self, path: &Path, text: &str) -> Result<LoadedSettings, SettingsError> {
        let mut overrides = self.overrides()?;
        let load = |overrides: &[Override]| RunSettings::load(Some((path, text)), overrides);
        let loaded = load(&overrides)?;
        match models(&self.scoring, &loaded)? {
            None => Ok(loaded),
            Some(models) => {
                overrides.push(models);
                load(&overrides)
            }
        }
    }

    /// What was typed after `--set`, then what flags stand for.
    ///
    /// # Errors
    ///
    /// A `--set` that is none.
    pub fn overrides(&self) -> Result<Vec<Override>, SettingsError> {
        let scoring = &self.scoring;
        let number = |number: u64| number.to_string();
        // A path or a pattern may look like a number or a list.
        let text = |text: &String| Value::String(text.clone()).to_string();
        let flags = [
            ("--epochs", "train.epochs", self.epochs.map(number)),
            ("--batch-size", "train.batch", self.batch_size.map(u64::from).map(number)),
            ("--preprocessed-dir", "data.folder", scoring.preprocessed_dir.as_ref().map(text)),
            ("--data-pattern", "data.pattern", scoring.data_pattern.as_ref().map(text)),
            ("--data-pattern", "data.load", scoring.data_pattern.as_ref().map(|_| "whole".to_owned())),
            ("--scores-file", "data.scores", scoring.scores_file.as_ref().map(text)),
            ("--max-cache-batches", "data.cache_batches", scoring.max_cache_batches.map(u64::from).map(number)),
        ];
        self.settings.overrides(flags)
    }
}

impl EvalArgs {
    /// What was typed after `--set`, then what flags stand for.
    ///
    /// # Errors
    ///
    /// A `--set` that is none.
    pub fn overrides(&self) -> Result<Vec<Override>, SettingsError> {
        self.settings.overrides([])
    }
}

/// The models that are trained, where flags say something about that.
fn models(args: &ScoringFlags, loaded: &LoadedSettings) -> Result<Option<Override>, SettingsError> {
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
