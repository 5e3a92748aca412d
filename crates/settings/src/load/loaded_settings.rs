//! From text and overrides to settings.

use std::path::Path;

use serde_json::{Map, Value};

use super::conversion::typed;
use super::layers::Layers;
use crate::error::SettingsError;
use crate::groups::run::RunSettings;
use crate::source::origin::Origins;
use crate::source::overrides::Override;
use crate::source::tree::described;

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
        let Layers { mut root, origins } = Layers::merge(file, overrides)?;
        check_groups(&mut root, &origins)?;
        let settings: Self = typed(&Value::Object(root), "", &origins)?;
        settings.validate(&origins)?;
        Ok(LoadedSettings { settings, origins })
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
