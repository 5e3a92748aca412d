//! A settings file while it is being read: groups and lists grow from the outside in.

use serde_json::{Map, Value};

/// The most characters a key may have; longer than any that exists, shorter than what YAML can write on one line.
pub(crate) const LONGEST_KEY: usize = 200;

/// A group or list that is still open.
pub(crate) enum Frame {
    /// A list and what it holds so far.
    List { path: String, items: Vec<Value> },
    /// A group, what it holds so far, and the key that waits for its value.
    Group { path: String, entries: Map<String, Value>, key: Option<String> },
}

impl Frame {
    pub(crate) fn list(path: String) -> Self {
        Self::List { path, items: Vec::new() }
    }

    pub(crate) fn group(path: String) -> Self {
        Self::Group { path, entries: Map::new(), key: None }
    }

    /// The path of the value that comes next; `None` where a key comes next.
    pub(crate) fn next_path(&self) -> Option<String> {
        match self {
            Self::List { path, items } => Some(format!("{path}[{}]", items.len())),
            Self::Group { path, key, .. } => key.as_deref().map(|key| join(path, key)),
        }
    }

    /// Puts the next value in; a group takes it only after its key.
    pub(crate) fn put(&mut self, value: Value) {
        match self {
            Self::List { items, .. } => items.push(value),
            Self::Group { entries, key, .. } => {
                if let Some(key) = key.take() {
                    entries.insert(key, value);
                }
            }
        }
    }

    /// The finished value.
    pub(crate) fn close(self) -> Value {
        match self {
            Self::List { items, .. } => Value::Array(items),
            Self::Group { entries, .. } => Value::Object(entries),
        }
    }
}

/// The path of `key` inside the group at `path`; the whole settings have the empty path.
pub(crate) fn join(path: &str, key: &str) -> String {
    if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") }
}

/// What a value is, in words for a message.
pub(crate) fn described(value: &Value) -> String {
    match value {
        Value::Null => "nothing (null)".to_owned(),
        Value::Bool(_) | Value::Number(_) => value.to_string(),
        Value::String(text) => format!("\"{}\"", super::excerpt::excerpt(text)),
        Value::Array(_) => "a list".to_owned(),
        Value::Object(_) => "a group of keys".to_owned(),
    }
}
