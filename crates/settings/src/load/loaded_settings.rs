//! From text and overrides to settings.

use std::path::Path;

use serde_json::{Map, Value};

use super::conversion::typed;
use super::suggestion::known_values;
use crate::source::excerpt::{described, excerpt};
use crate::source::origin::join;
use crate::source::yaml_reader::parse;
use crate::{Origins, Override, RunSettings, SettingsError};

/// The settings of a run, and where each of them came from.
#[derive(Debug, Clone, PartialEq)]
pub struct LoadedSettings {
    /// What the run does.
    pub settings: RunSettings,
    /// Where its keys were written; [`typed`] wants them for `model` and `data`.
    pub origins: Origins,
}

impl RunSettings {
    /// The settings that a file's name and text (if there is a file) and overrides give together.
    ///
    /// Later overrides win over earlier ones, and all of them over the file. What nobody wrote has its default; a group with
    /// nothing in it is as good as none. The file is not opened: see [`read`](crate::read).
    ///
    /// # Errors
    ///
    /// The first thing found to be wrong, of any kind but [`SettingsError::Unreadable`].
    pub fn load(file: Option<(&Path, &str)>, overrides: &[Override]) -> Result<LoadedSettings, SettingsError> {
        let (mut root, mut origins) = match file {
            Some((path, text)) => parse(path, text)?,
            None => Default::default(),
        };
        for one in overrides {
            lay(one, &mut root, &mut origins)?;
        }
        check_groups(&mut root, &origins)?;
        let settings: Self = typed(&Value::Object(root), "", &origins)?;
        settings.validate(&origins)?;
        Ok(LoadedSettings { settings, origins })
    }
}

/// Puts one override in its place; groups on the way there come into being.
fn lay(one: &Override, root: &mut Map<String, Value>, origins: &mut Origins) -> Result<(), SettingsError> {
    let mut group = root;
    let mut path = String::new();
    let mut parts = one.key.split('.').peekable();
    while let Some(part) = parts.next() {
        path = join(&path, part);
        if parts.peek().is_none() {
            group.insert(part.to_owned(), one.value.clone());
            break;
        }
        let held = group.entry(part).or_insert(Value::Null);
        if held.is_null() && !known_values().contains(&path) {
            *held = Value::Object(Map::new());
        }
        let Value::Object(inner) = held else {
            return Err(through_value(one, &path));
        };
        origins.add(&path, one.origin.clone());
        group = inner;
    }
    origins.replace(&one.key, one.origin.clone());
    Ok(())
}

fn through_value(one: &Override, path: &str) -> SettingsError {
    SettingsError::Override {
        origin: one.origin.clone(),
        problem: format!("`{}` holds a value, not a group of keys", excerpt(path)),
        mend: Some(format!("set `{}` as a whole", excerpt(path))),
    }
}

/// Refuses groups that are no groups; serde would read a list as the values of a group's keys in their order.
///
/// A group whose keys are all commented out, which YAML reads as null, is removed.
fn check_groups(root: &mut Map<String, Value>, origins: &Origins) -> Result<(), SettingsError> {
    for path in RunSettings::GROUPS {
        match root.get(path) {
            None | Some(Value::Object(_)) => {}
            Some(Value::Null) => drop(root.remove(path)),
            Some(other) => {
                return Err(SettingsError::Value {
                    origin: origins.of(path).cloned(),
                    path: path.to_owned(),
                    expected: "a group of keys".to_owned(),
                    got: described(other),
                    mend: group_mend(other).map(str::to_owned),
                });
            }
        }
    }
    Ok(())
}

/// The mend of what was probably meant as a group.
fn group_mend(value: &Value) -> Option<&'static str> {
    match value {
        Value::String(text) if text.contains(':') => Some("write a blank after the colon"),
        Value::Array(_) => Some("write the keys of a group without dashes and brackets"),
        _ => None,
    }
}
