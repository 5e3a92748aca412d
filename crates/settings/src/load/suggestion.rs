//! Which key was probably meant.

use std::sync::LazyLock;

use serde_json::Value;
use strsim::damerau_levenshtein;

use crate::RunSettings;
use crate::source::origin::join;

/// The whole paths of all keys of a run that hold a value, not a group.
pub(crate) fn known_values() -> &'static [String] {
    static KNOWN: LazyLock<Vec<String>> = LazyLock::new(|| {
        let mut paths = Vec::new();
        let defaults = serde_json::to_value(RunSettings::default()).expect("settings are plain data");
        collect(&defaults, "", &mut paths);
        paths
    });
    &KNOWN
}

fn collect(value: &Value, path: &str, paths: &mut Vec<String>) {
    match value {
        Value::Object(entries) => {
            for (key, value) in entries {
                collect(value, &join(path, key), paths);
            }
        }
        _ => paths.push(path.to_owned()),
    }
}

/// Whole paths of the keys that somebody who wrote `name` in the group `parent` probably meant, likeliest first.
///
/// `level` has the keys of that group. A slip of one letter comes first, then the same name in another group, then keys of
/// this group that are near or that `name` abbreviates or extends (`lr`, `batch_size`), then near ones in other groups. What
/// follows a colon does not count: `limit:3GiB` lacks a blank.
pub(crate) fn nearest(name: &str, parent: &str, level: &[String]) -> Vec<String> {
    let name = name.split_once(':').map_or(name, |(before, _)| before);
    let name = name.to_lowercase().replace('-', "_");
    let here = |fits: &dyn Fn(&str) -> bool| -> Vec<String> {
        level.iter().filter(|key| fits(key)).map(|key| join(parent, key)).collect()
    };
    let elsewhere = |fits: &dyn Fn(&str) -> bool| -> Vec<String> {
        let others = known_values().iter().filter(|path| split(path).0 != parent);
        others.filter(|path| fits(split(path).1)).cloned().collect()
    };
    let distance = |key: &str| damerau_levenshtein(&name, key);
    let slip = here(&|key| distance(key) <= 1 && name.len() > 1);
    if !slip.is_empty() {
        return slip;
    }
    let same = elsewhere(&|key| key == name);
    if !same.is_empty() {
        return same;
    }
    let closest = level.iter().map(|key| distance(key)).min().unwrap_or(usize::MAX);
    let near = here(&|key| distance(key) == closest && closest <= key.len().min(name.len()) / 3);
    if !near.is_empty() {
        return near;
    }
    let related = here(&|key| is_related(&name, key));
    if !related.is_empty() {
        return related;
    }
    let far = elsewhere(&|key| is_related(&name, key) || distance(key) <= key.len().min(name.len()) / 3);
    if far.len() > 3 { Vec::new() } else { far }
}

/// The group and the name of a path.
fn split(path: &str) -> (&str, &str) {
    path.rsplit_once('.').unwrap_or(("", path))
}

/// Whether one is the other with words added, or its first letters.
fn is_related(name: &str, key: &str) -> bool {
    let initials: String = key.split('_').filter_map(|word| word.chars().next()).collect();
    let words_of = |long: &str, short: &str| {
        short.len() >= 3
            && (long.strip_prefix(short).is_some_and(|rest| rest.starts_with('_'))
                || long.strip_suffix(short).is_some_and(|rest| rest.ends_with('_')))
    };
    (initials.len() >= 2 && initials == name) || words_of(name, key) || words_of(key, name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(name: &str, parent: &str, expect: &[&str]) {
        let defaults = serde_json::to_value(RunSettings::default()).unwrap();
        let group = if parent.is_empty() { &defaults } else { &defaults[parent] };
        let level: Vec<String> = group.as_object().unwrap().keys().cloned().collect();
        assert_eq!(nearest(name, parent, &level), expect, "{parent}.{name}");
    }

    #[test]
    fn finds_what_was_meant() {
        check("stepz", "train", &["train.steps"]);
        check("tsep", "train", &[]);
        check("Steps", "train", &["train.steps"]);
        check("micro-batch", "train", &["train.micro_batch"]);
        check("batch_size", "train", &["train.batch"]);
        check("lr", "optimizer", &["optimizer.learning_rate"]);
        check("lr", "train", &["optimizer.learning_rate"]);
        check("learning_rate", "train", &["optimizer.learning_rate"]);
        check("steps", "", &["train.steps"]);
        check("stpes", "", &["train.steps"]);
        check("every", "train", &["eval.every", "save.every"]);
        check("trian", "", &["train"]);
        check("precison", "", &["train.precision"]);
        check("limit:3GiB", "memory", &["memory.limit"]);
        check("x", "", &[]);
        check("zebra", "", &[]);
    }
}
