//! Resolved settings as YAML.

use std::fmt::Write;

use serde_json::{Map, Number, Value};

use crate::RunSettings;
use crate::source::scalar::plain;

/// Unquoted words that older readers of YAML take for booleans.
const OLD_BOOLEANS: [&str; 6] = ["y", "n", "yes", "no", "on", "off"];

/// The settings as YAML text, every key written out, that loads back to the same settings.
///
/// It can be read by YAML 1.1 and 1.2 alike. Numbers that are not finite are written as null; such settings do not validate.
pub fn to_yaml(settings: &RunSettings) -> String {
    let value = serde_json::to_value(settings).expect("settings are plain data");
    let mut text = String::new();
    let keys = ["workload", "seed"].into_iter().chain(RunSettings::GROUPS);
    for (key, value) in keys.filter_map(|key| Some((key, value.get(key)?))) {
        entry(&mut text, 0, key, value);
    }
    text
}

fn entry(text: &mut String, depth: usize, key: &str, value: &Value) {
    text.extend(std::iter::repeat_n("  ", depth));
    text.push_str(&word(key));
    match value {
        Value::Object(entries) if !entries.is_empty() => {
            text.push_str(":\n");
            for (key, value) in entries {
                entry(text, depth + 1, key, value);
            }
        }
        _ => {
            text.push_str(": ");
            text.push_str(&inline(value));
            text.push('\n');
        }
    }
}

/// A value on one line.
fn inline(value: &Value) -> String {
    match value {
        Value::Null | Value::Bool(_) => value.to_string(),
        Value::Number(number) => number_text(number),
        Value::String(content) => word(content),
        Value::Array(items) => format!("[{}]", items.iter().map(inline).collect::<Vec<_>>().join(", ")),
        Value::Object(entries) => format!("{{{}}}", inline_entries(entries)),
    }
}

fn inline_entries(entries: &Map<String, Value>) -> String {
    let entries: Vec<String> = entries.iter().map(|(key, value)| format!("{}: {}", word(key), inline(value))).collect();
    entries.join(", ")
}

/// The shortest text of the number; YAML 1.1 wants both a point and a sign before an exponent: `1.0e-5`.
fn number_text(number: &Number) -> String {
    let Some(float) = number.as_f64().filter(|_| number.is_f64()) else {
        return number.to_string();
    };
    let text = format!("{float:?}");
    let Some((digits, exponent)) = text.split_once('e') else {
        return text;
    };
    let point = if digits.contains('.') { "" } else { ".0" };
    let sign = if exponent.starts_with('-') { "" } else { "+" };
    format!("{digits}{point}e{sign}{exponent}")
}

/// A text as it is where that reads back as the same text, in double quotes otherwise.
fn word(content: &str) -> String {
    let is_simple = content.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_' || first == '/')
        && content.chars().all(|c| c.is_ascii_alphanumeric() || "_-./%".contains(c))
        && plain(content) == Some(Value::String(content.to_owned()))
        && !OLD_BOOLEANS.iter().any(|old| old.eq_ignore_ascii_case(content));
    if is_simple { content.to_owned() } else { quoted(content) }
}

fn quoted(content: &str) -> String {
    let mut text = String::from('"');
    for character in content.chars() {
        match character {
            '"' | '\\' => text.extend(['\\', character]),
            '\n' => text.push_str("\\n"),
            '\t' => text.push_str("\\t"),
            _ if is_printable(character) => text.push(character),
            _ => write!(text, "\\U{:08X}", u32::from(character)).expect("a text takes any text"),
        }
    }
    text.push('"');
    text
}

/// Whether YAML can hold the character as it is and no reader takes it for a line break or a mark.
fn is_printable(character: char) -> bool {
    !character.is_control() && !matches!(character, '\u{2028}' | '\u{2029}' | '\u{feff}' | '\u{fffe}' | '\u{ffff}')
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_defaults_are_a_whole_file() {
        let expect = "\
workload: gpt
seed: 1
model: {}
data: {}
train:
  batch: 32
  epochs: null
  graphs: auto
  micro_batch: auto
  precision: auto
  recompute: auto
  steps: 300
optimizer:
  beta1: 0.9
  beta2: 0.95
  clip: 1.0
  learning_rate: 0.001
  min_learning_rate: 0.0001
  warmup_steps: 20
  weight_decay: 0.1
memory:
  allocator: \"expandable_segments:True\"
  clean: auto
  host_limit: none
  limit: none
  narrow: false
  recover: true
  spill: auto
eval:
  at_start: false
  batches: 4
  clean_every: null
  crop: auto
  every: 100
  lpips: null
  metrics: null
  patience: null
  tile: null
  tile_approximate: false
save:
  every: 100
  keep: 2
watch:
  log_every: null
  seconds: 10
  tensorboard: true
ranks:
  backend: auto
  shard: auto
  timeout: 600
  uneven: false
";
        assert_eq!(to_yaml(&RunSettings::default()), expect);
    }

    #[test]
    fn quotes_only_where_needed() {
        for (value, expect) in [
            (json!("fp32"), "fp32"),
            (json!("runs/a-1.yaml"), "runs/a-1.yaml"),
            (json!("on"), "\"on\""),
            (json!("5"), "\"5\""),
            (json!("null"), "\"null\""),
            (json!(""), "\"\""),
            (json!("a: b"), "\"a: b\""),
            (json!("say \"hi\"\n\u{7}é"), "\"say \\\"hi\\\"\\n\\U00000007é\""),
            (json!(1e-7), "1.0e-7"),
            (json!(1.5e300), "1.5e+300"),
            (json!(u64::MAX), "18446744073709551615"),
            (json!([1, [], {"a b": null, "c": {}}]), "[1, [], {\"a b\": null, c: {}}]"),
        ] {
            assert_eq!(inline(&value), expect);
        }
    }
}
