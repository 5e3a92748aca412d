//! From YAML text to a tree of values and the line of each.
//!
//! It listens to the parser's events and keeps its own stack. The ready-made loaders call themselves for each level (a
//! megabyte of `- - - -` overflows the program's stack), copy what aliases point to, and lose whole numbers above 2^63.
//! Settings need none of that: anchors, aliases and tags are refused, and so is nesting below 32 levels.

use std::path::Path;
use std::sync::Arc;

use saphyr_parser::{Event, Parser, ScalarStyle, ScanError, Span};
use serde_json::{Map, Value};

use super::excerpt::{described, excerpt};
use super::origin::{LONGEST_KEY, Origin, Origins, current_key, join};
use super::scalar::plain;
use crate::error::SettingsError;

/// Groups and lists inside each other.
const DEEPEST: usize = 32;
/// Keys and values in a file. Each has its path in memory, so this also bounds what a hostile file can cost.
const MOST: usize = 10_000;

/// Reads `text` as one YAML document; an empty one is an empty group.
///
/// The `file` is only named in errors and origins.
pub(crate) fn parse(file: &Path, text: &str) -> Result<(Map<String, Value>, Origins), SettingsError> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut reader = Reader {
        file: file.into(),
        stack: Vec::new(),
        root: Value::Null,
        root_line: 1,
        last_line: text.lines().count(),
        values: 0,
        origins: Origins::default(),
    };
    let mut documents = 0;
    let mut parser = Parser::new_from_str(text);
    while let Some(event) = parser.next_event() {
        let (event, span) = event.map_err(|error| reader.not_yaml(&error))?;
        documents += usize::from(matches!(event, Event::DocumentStart(_)));
        if documents > 1 {
            let problem = "a second document starts here, but a file holds the settings of one run";
            return Err(reader.syntax(span.start.line(), problem, "remove the `---` and what follows it"));
        }
        reader.take(event, span)?;
    }
    reader.finish()
}

/// Parses `text` as a single value, such as a list on one line.
pub(crate) fn parse_value(text: &str) -> Result<Value, SettingsError> {
    let wrapped = format!("value: {text}");
    let (mut root, _) = parse(Path::new("value"), &wrapped)?;
    Ok(root.remove("value").unwrap_or_default())
}

/// A group or list that is still open.
enum Frame {
    /// A list and what it holds so far.
    List { path: String, items: Vec<Value> },
    /// A group, what it holds so far, and the key that waits for its value.
    Group { path: String, entries: Map<String, Value>, key: Option<String> },
}

impl Frame {
    fn list(path: String) -> Self {
        Self::List { path, items: Vec::new() }
    }

    fn group(path: String) -> Self {
        Self::Group { path, entries: Map::new(), key: None }
    }

    /// The path of the value that comes next; `None` where a key comes next.
    fn next_path(&self) -> Option<String> {
        match self {
            Self::List { path, items } => Some(format!("{path}[{}]", items.len())),
            Self::Group { path, key, .. } => key.as_deref().map(|key| join(path, key)),
        }
    }

    /// Puts the next value in; a group takes it only after its key.
    fn put(&mut self, value: Value) {
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
    fn close(self) -> Value {
        match self {
            Self::List { items, .. } => Value::Array(items),
            Self::Group { entries, .. } => Value::Object(entries),
        }
    }
}

struct Reader {
    file: Arc<Path>,
    stack: Vec<Frame>,
    root: Value,
    root_line: usize,
    last_line: usize,
    values: usize,
    origins: Origins,
}

impl Reader {
    fn take(&mut self, event: Event<'_>, span: Span) -> Result<(), SettingsError> {
        let line = span.start.line();
        self.values += usize::from(!matches!(event, Event::SequenceEnd | Event::MappingEnd));
        if self.values > MOST {
            let problem =
                format!("more than {MOST} keys and values stand before this line, which is too many for settings");
            return Err(self.syntax(line, &problem, "give the path of a data file instead of the data"));
        }
        match event {
            Event::Alias(_) => Err(self.anchored(line)),
            Event::Scalar(_, _, anchor, tag) | Event::SequenceStart(anchor, tag) | Event::MappingStart(anchor, tag)
                if anchor > 0 || tag.is_some() =>
            {
                Err(if anchor > 0 { self.anchored(line) } else { self.tagged(line) })
            }
            Event::Scalar(text, style, ..) => self.scalar(&text, style, line),
            Event::SequenceStart(..) => self.open(Frame::list, line),
            Event::MappingStart(..) => self.open(Frame::group, line),
            Event::SequenceEnd | Event::MappingEnd => {
                if let Some(frame) = self.stack.pop() {
                    self.put(frame.close());
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn scalar(&mut self, text: &str, style: ScalarStyle, line: usize) -> Result<(), SettingsError> {
        let value = match style {
            ScalarStyle::Plain => plain(text),
            _ => Some(Value::String(text.to_owned())),
        };
        let Some(value) = value else {
            let problem = format!("`{}` is not a number that a setting can have", excerpt(text));
            return Err(self.syntax(line, &problem, "write a finite number, or null where the setting can be off"));
        };
        if let Some(Frame::Group { key: None, .. }) = self.stack.last() {
            return self.key(value, line);
        }
        self.note(line);
        self.put(value);
        Ok(())
    }

    /// Takes a key: a text, with no dot in it, that its group does not have yet.
    fn key(&mut self, value: Value, line: usize) -> Result<(), SettingsError> {
        let Value::String(name) = value else {
            let problem = format!("{} is used as a key, but keys are words", described(&value));
            return Err(self.syntax(
                line,
                &problem,
                "write `key: value`, with quotes around the key if it is a number",
            ));
        };
        if name.is_empty() || name.chars().count() > LONGEST_KEY {
            let problem = format!("a key has between 1 and {LONGEST_KEY} characters");
            return Err(self.syntax(line, &problem, "write `key: value`"));
        }
        if let Some((group, rest)) = name.split_once('.') {
            let problem = format!("the key `{}` has a dot in it", excerpt(&name));
            let mend = format!("write `{}:` and, indented below it, `{}:`", excerpt(group), excerpt(rest));
            return Err(self.syntax(line, &problem, &mend));
        }
        let Some(Frame::Group { path, entries, key }) = self.stack.last_mut() else {
            return Ok(());
        };
        let written = join(path, &name);
        let path = current_key(&written).to_owned();
        let name = if path == written { name } else { path[path.rfind('.').map_or(0, |dot| dot + 1)..].to_owned() };
        if !entries.contains_key(&name) {
            *key = Some(name);
            self.origins.add(&path, self.origin(line));
            return Ok(());
        }
        let first = match self.origins.of(&path) {
            Some(Origin::Line { line, .. }) => format!(" (first at line {line})"),
            _ => String::new(),
        };
        let problem = format!("the key `{}` is written twice{first}", excerpt(&path));
        Err(self.syntax(line, &problem, "remove one of the two"))
    }

    fn open(&mut self, frame: fn(String) -> Frame, line: usize) -> Result<(), SettingsError> {
        if let Some(Frame::Group { key: None, .. }) = self.stack.last() {
            return Err(self.syntax(
                line,
                "a list or group is used as a key, but keys are words",
                "write `key: value`",
            ));
        }
        if self.stack.len() == DEEPEST {
            return Err(self.too_deep(line));
        }
        self.note(line);
        let path = self.stack.last().and_then(Frame::next_path).unwrap_or_default();
        self.stack.push(frame(path));
        Ok(())
    }

    /// Notes the line of a value that has no key of its own: an item of a list, or the root.
    fn note(&mut self, line: usize) {
        match self.stack.last() {
            None => self.root_line = line,
            Some(frame @ Frame::List { .. }) => {
                let path = frame.next_path().unwrap_or_default();
                self.origins.add(&path, self.origin(line));
            }
            Some(Frame::Group { .. }) => {}
        }
    }

    fn put(&mut self, value: Value) {
        match self.stack.last_mut() {
            Some(frame) => frame.put(value),
            None => self.root = value,
        }
    }

    fn finish(self) -> Result<(Map<String, Value>, Origins), SettingsError> {
        match &self.root {
            Value::Null => Ok((Map::new(), self.origins)),
            Value::Object(entries) => Ok((entries.clone(), self.origins)),
            other => {
                let problem = format!("expected a group of keys, got {}", described(other));
                Err(self.syntax(self.root_line, &problem, "write keys such as `train:` at the left edge"))
            }
        }
    }

    fn syntax(&self, line: usize, problem: &str, mend: &str) -> SettingsError {
        SettingsError::Syntax { origin: self.origin(line), problem: problem.to_owned(), mend: Some(mend.to_owned()) }
    }

    /// The origin at `line`; the parser puts what is missing at the end one line below the last.
    fn origin(&self, line: usize) -> Origin {
        let line = line.clamp(1, self.last_line.max(1));
        Origin::Line { file: Arc::clone(&self.file), line: u32::try_from(line).unwrap_or(u32::MAX) }
    }

    fn anchored(&self, line: usize) -> SettingsError {
        self.syntax(line, "anchors (`&name`) and aliases (`*name`) are not read in settings", "write the value out")
    }

    fn tagged(&self, line: usize) -> SettingsError {
        self.syntax(line, "tags (`!name`) are not read in settings", "write the value without its tag")
    }

    fn too_deep(&self, line: usize) -> SettingsError {
        let problem = format!("groups and lists are nested more than {DEEPEST} levels deep");
        self.syntax(line, &problem, "no setting lies that deep: look for a bracket or dash too many")
    }

    fn not_yaml(&self, error: &ScanError) -> SettingsError {
        let info = error.info();
        if info == "recursion limit exceeded" {
            return self.too_deep(error.marker().line());
        }
        let mend = if info.contains("tab") {
            "indent with spaces, not with tabs"
        } else if info.contains("quoted") {
            "look for a quote that is not closed, or a backslash inside double quotes"
        } else if info.contains("flow") || info.contains("bracket") {
            "look for a bracket or comma that is missing"
        } else {
            "write `key: value` with a blank after the colon, and indent the keys of a group alike"
        };
        self.syntax(error.marker().line(), &format!("this is not YAML: {}", excerpt(info)), mend)
    }
}
