//! A run on several ranks: they meet, and make sure that all of them are to do the same.

use std::path::PathBuf;
use std::time::Duration;

use lowtide_core::{LineSpec, counted};
use lowtide_settings::{LoadedSettings, RanksSettings, RunSettings, to_yaml};
use lowtide_torch::Ranks;
use lowtide_train::{Bundle, Result, Team, TrainError};
use serde_json::Value;

use crate::launch::Launch;
use crate::session::Session;

/// What ranks do meanwhile.
const MEETING: &str = "reading the settings";
/// Differences that are told; more are counted.
const MOST_DIFFERENCES: usize = 3;

/// Meets all other ranks, waiting as long as the settings say where they can be read.
pub(crate) fn meet(launch: &Launch, settings: Option<&RunSettings>) -> Result<Team> {
    let timeout = settings.map_or(RanksSettings::default().timeout, |settings| settings.ranks.timeout);
    Ok(Team::of(Ranks::join(&launch.meeting(Duration::from_secs(timeout)))?))
}

/// The settings of this rank, which are to be those of the first; a rank that has none of its own takes them. Whatever is wrong on
/// one rank is told on all.
pub(crate) fn common_settings(
    team: &Team,
    own: Result<Option<(LoadedSettings, PathBuf, String)>>,
    load: impl Fn(&PathBuf, &str) -> Result<LoadedSettings>,
) -> Result<LoadedSettings> {
    let own = team.settle(MEETING, own)?;
    let source = own.as_ref().map(|(_, path, text)| (path.clone(), text.clone()));
    let (path, text) = team.of_first(MEETING, source)?;
    let loaded = match own {
        Some((loaded, ..)) => Ok(loaded),
        None => load(&path, &text),
    };
    let loaded = team.settle(MEETING, loaded)?;
    let first = team.of_first(MEETING, Some(common_value(&loaded.settings)))?;
    let compared = match differences(&common_value(&loaded.settings), &first) {
        differences if differences.is_empty() => Ok(()),
        differences => Err(TrainError::OtherSettings { differences: shortened(differences) }),
    };
    team.settle(MEETING, compared)?;
    Ok(loaded)
}

/// Builds the workload as the first rank did: what that chose by itself, such as how far its data is shuffled, holds for all.
pub(crate) fn build(team: &Team, session: &Session<'_>, loaded: &LoadedSettings) -> Result<Bundle> {
    const BUILDING: &str = "building the model";
    if team.is_alone() {
        return session.build(loaded);
    }
    let first = if team.is_first() { session.build(loaded).map(Some) } else { Ok(None) };
    let first = team.settle(BUILDING, first)?;
    let text = team.of_first(BUILDING, first.as_ref().map(|bundle| to_yaml(&bundle.settings)))?;
    let built = match first {
        Some(bundle) => Ok(bundle),
        None => RunSettings::load(Some((&PathBuf::from("rank 0"), &text)), &[]).map_err(TrainError::from).and_then(
            |first| session.build(&LoadedSettings { settings: with_own_limits(first.settings, loaded), ..first }),
        ),
    };
    team.settle(BUILDING, built)
}

/// What all ranks have in common: not the limits of memory, where their memory may be another on each.
fn common_value(settings: &RunSettings) -> Value {
    let mut settings = settings.clone();
    if settings.ranks.uneven {
        (settings.memory.line, settings.memory.host_line) = (LineSpec::None, LineSpec::None);
    }
    serde_json::to_value(settings).expect("settings are plain data")
}

/// The settings of the first rank with this one's own limits of memory.
fn with_own_limits(mut first: RunSettings, own: &LoadedSettings) -> RunSettings {
    (first.memory.line, first.memory.host_line) = (own.settings.memory.line, own.settings.memory.host_line);
    first
}

/// `train.steps is 5 here and 4 there`, for every key.
fn differences(here: &Value, there: &Value) -> Vec<String> {
    let mut found = Vec::new();
    compare("", here, there, &mut found);
    found
}

fn compare(path: &str, here: &Value, there: &Value, found: &mut Vec<String>) {
    let (Some(ours), Some(theirs)) = (here.as_object(), there.as_object()) else {
        if here != there {
            found.push(format!("{path} is {here} here and {there} there"));
        }
        return;
    };
    let mut keys: Vec<&String> = ours.keys().chain(theirs.keys().filter(|key| !ours.contains_key(*key))).collect();
    keys.sort_unstable();
    for key in keys {
        let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
        let of = |group: &serde_json::Map<String, Value>| group.get(key).cloned().unwrap_or(Value::Null);
        compare(&path, &of(ours), &of(theirs), found);
    }
}

fn shortened(mut differences: Vec<String>) -> String {
    let more = differences.len().saturating_sub(MOST_DIFFERENCES);
    differences.truncate(MOST_DIFFERENCES);
    if more > 0 {
        differences.push(format!("and {} more", counted(more as u64, "key")));
    }
    differences.join(", ")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn settings_that_differ_are_named() {
        let here = json!({"seed": 1, "train": {"steps": 4, "batch": 8}, "model": {"n_layer": 2}});
        let there = json!({"seed": 1, "train": {"steps": 5, "batch": 8}, "model": {}});
        assert_eq!(differences(&here, &here), Vec::<String>::new());
        let words = ["model.n_layer is 2 here and null there", "train.steps is 4 here and 5 there"];
        assert_eq!(differences(&here, &there), words);
        let many = (0..5).map(|number| number.to_string()).collect();
        assert_eq!(shortened(many), "0, 1, 2, and 2 keys more");
    }
}
