//! Values given on the command line.

use serde_json::Value;

use super::excerpt::{described, excerpt};
use super::origin::{LONGEST_KEY, Origin, current_key};
use super::scalar::plain;
use super::yaml_reader::parse_value;
use crate::error::SettingsError;

/// One value that goes over what the file says.
#[derive(Debug, Clone, PartialEq)]
pub struct Override {
    pub(crate) key: String,
    pub(crate) value: Value,
    pub(crate) origin: Origin,
}

impl Override {
    /// From what was typed after `--set`: `train.steps=5`, `eval.every=null`, `model.widths=[64, 128]`.
    ///
    /// The value is a number, `true`, `false` or `null` where it reads like one, a list or quoted text where it starts like
    /// one, and text otherwise.
    ///
    /// # Errors
    ///
    /// [`SettingsError::Override`] where there is no `=`, the key is empty, or the value is a broken list or a group.
    pub fn set(text: &str) -> Result<Self, SettingsError> {
        let origin = Origin::Set { text: text.into() };
        let Some((key, value)) = text.split_once('=') else {
            let mend = format!("write --set {}=VALUE", excerpt(text));
            return Err(wrong(origin, "there is no `=` and no value", &mend));
        };
        Self::new(origin, key, value)
    }

    /// From a flag of its own: `Override::flag("--limit", "memory.limit", "3.5GiB")`.
    ///
    /// # Errors
    ///
    /// As [`Override::set`].
    pub fn flag(name: &str, key: &str, value: &str) -> Result<Self, SettingsError> {
        Self::new(Origin::Flag { text: format!("{name} {value}").into() }, key, value)
    }

    fn new(origin: Origin, key: &str, text: &str) -> Result<Self, SettingsError> {
        let key = key.trim();
        if key.is_empty() {
            return Err(wrong(origin, "the key is empty", "write --set KEY=VALUE, such as --set train.steps=500"));
        }
        if key.split('.').any(|part| part.trim() != part || part.is_empty() || part.chars().count() > LONGEST_KEY) {
            let problem = format!("`{}` is not a key", excerpt(key));
            return Err(wrong(origin, &problem, "write words with one dot between them, such as train.steps"));
        }
        match value(text.trim()) {
            Ok(value) => Ok(Self { key: current_key(key).to_owned(), value, origin }),
            Err((problem, mend)) => Err(wrong(origin, &problem, mend)),
        }
    }
}

/// The value that `text` stands for, or what is wrong with it and the mend.
fn value(text: &str) -> Result<Value, (String, &'static str)> {
    let finite = "write a finite number, or null where the setting can be off";
    if !text.starts_with(['[', '{', '"', '\'']) {
        return plain(text).ok_or_else(|| (format!("`{text}` is not a number that a setting can have"), finite));
    }
    match parse_value(text) {
        Ok(value @ (Value::Array(_) | Value::String(_))) => Ok(value),
        Ok(value @ Value::Object(_)) => {
            Err((format!("the value is {}", described(&value)), "set its keys one by one, each with its own --set"))
        }
        Ok(_) | Err(_) => {
            Err(("the list or quoted text does not end well".to_owned(), "write a list as [1, 2], a text as \"text\""))
        }
    }
}

fn wrong(origin: Origin, problem: &str, mend: &str) -> SettingsError {
    SettingsError::Override { origin, problem: problem.to_owned(), mend: Some(mend.to_owned()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[track_caller]
    fn check(text: &str, key: &str, expect: Value) {
        let read = Override::set(text).unwrap();
        assert_eq!((read.key.as_str(), read.value), (key, expect));
    }

    #[test]
    fn reads_values_as_they_look() {
        check("train.steps=5", "train.steps", json!(5));
        check(" seed = 7 ", "seed", json!(7));
        check("memory.limit=3.5GiB", "memory.limit", json!("3.5GiB"));
        check("memory.line=3.5GiB", "memory.limit", json!("3.5GiB"));
        check("memory.allocator=expandable_segments:True", "memory.allocator", json!("expandable_segments:True"));
        check("eval.every=null", "eval.every", json!(null));
        check("a=", "a", json!(null));
        check("a=b=c", "a", json!("b=c"));
        check("a=b: c # d", "a", json!("b: c # d"));
        check("a='5'", "a", json!("5"));
        check("a=[1, x, [true]]", "a", json!([1, "x", [true]]));
        check("a=[]", "a", json!([]));
    }
}
