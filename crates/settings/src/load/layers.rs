//! The layers of settings, merged: the file below, overrides above it, the last one on top.

use std::path::Path;

use serde_json::{Map, Value};

use super::suggestion::known_values;
use crate::error::SettingsError;
use crate::source::excerpt::excerpt;
use crate::source::origin::Origins;
use crate::source::overrides::Override;
use crate::source::tree::join;
use crate::source::yaml_reader::parse;

/// Everything that somebody wrote, as one tree, with the origin of each key.
#[derive(Debug, Default)]
pub(crate) struct Layers {
    pub(crate) root: Map<String, Value>,
    pub(crate) origins: Origins,
}

impl Layers {
    /// The file's text, if there is a file, and then `overrides` in their order; later ones win.
    pub(crate) fn merge(file: Option<(&Path, &str)>, overrides: &[Override]) -> Result<Self, SettingsError> {
        let mut layers = Self::default();
        if let Some((path, text)) = file {
            (layers.root, layers.origins) = parse(path, text)?;
        }
        for one in overrides {
            layers.lay(one)?;
        }
        Ok(layers)
    }

    /// Puts one override in its place; groups on the way there come into being.
    fn lay(&mut self, one: &Override) -> Result<(), SettingsError> {
        let mut group = &mut self.root;
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
            self.origins.add(&path, one.origin.clone());
            group = inner;
        }
        self.origins.replace(&one.key, one.origin.clone());
        Ok(())
    }
}

fn through_value(one: &Override, path: &str) -> SettingsError {
    SettingsError::Override {
        origin: one.origin.clone(),
        problem: format!("`{}` holds a value, not a group of keys", excerpt(path)),
        mend: Some(format!("set `{}` as a whole", excerpt(path))),
    }
}
