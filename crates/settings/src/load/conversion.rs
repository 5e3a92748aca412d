//! From a tree of values to a struct, with errors that name the key, the place and the mend.

use serde::de::DeserializeOwned;
use serde_json::Value;
use serde_path_to_error::{Path, Segment};

use super::suggestion::nearest;
use crate::SettingsError;
use crate::source::excerpt::described;
use crate::source::origin::{Origin, Origins, join};

/// Reads `value` as a `T`.
///
/// `path` is where the value stands in the settings (`model`, or empty for the whole), and `origins` is
/// [`LoadedSettings::origins`](crate::LoadedSettings). For good messages `T` has `#[serde(deny_unknown_fields)]`, and neither it nor what it
/// holds uses `flatten` or `untagged`, which lose the place of an error.
///
/// # Errors
///
/// [`SettingsError::UnknownKey`], [`SettingsError::MissingKey`], [`SettingsError::Value`], or [`SettingsError::Refused`]
/// with the words of a type that has its own.
///
/// # Examples
///
/// ```
/// # use lowtide_settings::{Override, RunSettings, typed};
/// #[derive(Debug, serde::Deserialize)]
/// #[serde(deny_unknown_fields)]
/// struct Model {
///     width: u32,
/// }
/// let loaded = RunSettings::load(None, &[Override::set("model.widht=64")?])?;
/// let error = typed::<Model>(&loaded.settings.model, "model", &loaded.origins).unwrap_err();
/// assert_eq!(error.to_string(), "--set model.widht=64: unknown key `model.widht`");
/// assert_eq!(error.hint().as_deref(), Some("did you mean `model.width`?"));
/// # Ok::<(), lowtide_settings::SettingsError>(())
/// ```
pub fn typed<T: DeserializeOwned>(value: &Value, path: &str, origins: &Origins) -> Result<T, SettingsError> {
    serde_path_to_error::deserialize(value).map_err(|error| {
        let whole = whole_path(path, error.path());
        let found = found(value, error.path());
        explain(&error.inner().to_string(), whole, found, origins)
    })
}

/// Turns serde's text into a typed error; `path` is where it happened, `found` what stands there.
fn explain(text: &str, path: String, found: Option<&Value>, origins: &Origins) -> SettingsError {
    let origin = origins.of(&path).cloned();
    if let Some(rest) = text.strip_prefix("unknown field `") {
        let known = listed(rest);
        let (parent, name) = path.rsplit_once('.').unwrap_or(("", &path));
        let near = nearest(name, parent, &known);
        return SettingsError::UnknownKey { origin, near, known, path };
    }
    if let Some(name) = text.strip_prefix("missing field `").and_then(|rest| rest.strip_suffix('`')) {
        let origin = origin.filter(|origin| matches!(origin, Origin::Line { .. }));
        return SettingsError::MissingKey { origin, path: join(&path, name) };
    }
    let expected = ["invalid type: ", "invalid value: ", "invalid length ", "unknown variant "]
        .into_iter()
        .find(|start| text.starts_with(start))
        .and_then(|_| text.rsplit_once(", expected "));
    let (Some((_, expected)), Some(found)) = (expected, found) else {
        return SettingsError::Refused { origin, path, problem: lowtide_core::printable(text) };
    };
    let expected = words(expected, found);
    let mend = mend(&expected, found);
    SettingsError::Value { origin, path, expected, got: described(found), mend }
}

/// The keys in serde's list of what it expected.
fn listed(text: &str) -> Vec<String> {
    let Some((_, list)) = text.rsplit_once(", expected ") else {
        return Vec::new();
    };
    list.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

/// Serde's name of what it expected, in words for people.
fn words(expected: &str, found: &Value) -> String {
    let below_zero = found.as_i64().is_some_and(|number| number < 0);
    let too_large = |limit: u64| found.as_u64().is_some_and(|number| number > limit);
    let text = match expected {
        "u64" | "u32" | "u16" | "u8" | "usize" if below_zero => "a whole number of 0 or more",
        "u32" if too_large(u32::MAX.into()) => "a whole number up to 4294967295",
        "u16" if too_large(u16::MAX.into()) => "a whole number up to 65535",
        "u8" if too_large(u8::MAX.into()) => "a whole number up to 255",
        "u64" | "u32" | "u16" | "u8" | "usize" | "i64" | "i32" | "i16" | "i8" | "isize" => "a whole number",
        "f64" | "f32" => "a number",
        "a boolean" => "true or false",
        "a string" | "string" => "text",
        "a sequence" => "a list",
        "a map" => "a group of keys",
        other if other.starts_with("a nonzero ") => "a whole number of 1 or more",
        other if other.starts_with("struct ") => "a group of keys",
        other => other,
    };
    text.replace('`', "")
}

/// The mend where a value is right except for its quotes.
fn mend(expected: &str, found: &Value) -> Option<String> {
    match found {
        Value::String(text) if expected.contains("number") && text.parse::<f64>().is_ok_and(f64::is_finite) => {
            Some(format!("write {text} without quotes"))
        }
        Value::Number(_) | Value::Bool(_) if expected == "text" => Some(format!("write it in quotes: \"{found}\"")),
        _ => None,
    }
}

/// The path inside the whole settings.
fn whole_path(start: &str, path: &Path) -> String {
    let mut whole = start.to_owned();
    for segment in path {
        whole = match segment {
            Segment::Map { key } | Segment::Enum { variant: key } => join(&whole, key),
            Segment::Seq { index } => format!("{whole}[{index}]"),
            Segment::Unknown => whole,
        };
    }
    whole
}

/// What stands at `path` in `value`.
fn found<'a>(value: &'a Value, path: &Path) -> Option<&'a Value> {
    path.iter().try_fold(value, |value, segment| match segment {
        Segment::Map { key } => value.get(key),
        Segment::Seq { index } => value.get(index),
        Segment::Enum { variant } => Some(value.get(variant).unwrap_or(value)),
        Segment::Unknown => None,
    })
}
