//! A log whose lines are JSON objects, as structured loggers and collectors write it: the text that they carry.

use lowtide_log::time;
use lowtide_oom::without_prefix;
use serde_json::{Map, Value};

/// The text, and for each of its lines the number of the line it comes from.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct CarriedText {
    pub(crate) text: String,
    lines: Vec<u64>,
    records: usize,
}

/// What one line carries.
struct Record {
    text: String,
    level: Option<Level>,
    time: Option<String>,
}

/// Levels as far as they say how to read a line.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Level {
    Trace,
    Debug,
    Info,
    Warning,
    Error,
}

/// Where loggers and collectors put the text: python-json-logger, zap, Docker, structlog, CloudWatch, Loki, Google, journald.
const TEXTS: [&str; 10] =
    ["message", "msg", "log", "event", "text", "body", "line", "textPayload", "short_message", "MESSAGE"];
/// Objects that some of them put it into: Rust's tracing, Google, OpenTelemetry.
const AROUND_TEXT: [&str; 3] = ["fields", "jsonPayload", "body"];
const LEVELS: [&str; 6] = ["level", "levelname", "severity", "lvl", "log.level", "severityText"];
const TIMES: [&str; 6] = ["time", "timestamp", "ts", "asctime", "@timestamp", "datetime"];
/// Where errors stand that go with the text.
const ERRORS: [&str; 14] = [
    "exc_info",
    "exception",
    "exc_text",
    "traceback",
    "stack_trace",
    "stacktrace",
    "stack",
    "error",
    "err",
    "error.stack_trace",
    "reason",
    "detail",
    "cause",
    "stderr",
];
/// Figures that tell how far a run is.
const PROGRESS: [&str; 6] = ["step", "global_step", "iteration", "iter", "epoch", "loss"];

impl CarriedText {
    /// The text of a log, nearly all lines of which are objects with a text.
    pub(crate) fn of(log: &str) -> Option<Self> {
        if !without_prefix(log).trim_start().starts_with('{') {
            return None;
        }
        let records: Vec<(&str, Option<Record>)> = log.lines().map(|line| (line, record(line))).collect();
        let filled = records.iter().filter(|(line, _)| !line.trim().is_empty()).count();
        let carried: Vec<&Record> = records.iter().filter_map(|(_, record)| record.as_ref()).collect();
        if carried.is_empty() || carried.len() * 5 < filled * 4 {
            return None;
        }
        // A level that all lines have is of who collected them; a clock that some have would be no margin.
        let first = carried[0].level;
        let levels_differ = carried.len() < 3 || carried.iter().any(|record| record.level != first);
        let all_have_time = carried.len() == filled && carried.iter().all(|record| record.time.is_some());
        let mut text = Self { text: String::with_capacity(log.len()), lines: Vec::new(), records: carried.len() };
        for (number, (line, record)) in (1..).zip(&records) {
            let Some(record) = record else {
                text.push(number, "", "", line);
                continue;
            };
            let clock = record.time.as_deref().filter(|_| all_have_time).unwrap_or_default();
            let mut level =
                record.level.filter(|_| levels_differ).map(|level| level.word(&record.text)).unwrap_or_default();
            for line in record.text.split('\n') {
                text.push(number, clock, level, line.trim_end_matches('\r'));
                level = "";
            }
        }
        Some(text)
    }

    fn push(&mut self, number: u64, clock: &str, level: &str, line: &str) {
        for part in [clock, level] {
            self.text.push_str(part);
            self.text.push_str(if part.is_empty() { "" } else { " " });
        }
        self.text.push_str(line);
        self.text.push('\n');
        self.lines.push(number);
    }

    /// The line of the log that a line of the text comes from, both from 1.
    pub(crate) fn line(&self, line: u64) -> u64 {
        let known = usize::try_from(line).ok().and_then(|line| self.lines.get(line.checked_sub(1)?));
        known.copied().unwrap_or(line)
    }

    /// Whether it is of a single object, which may say more in its other members.
    pub(crate) const fn is_single(&self) -> bool {
        self.records == 1
    }
}

fn record(line: &str) -> Option<Record> {
    let object = object(without_prefix(line.trim_start()))?;
    let mut text = text_of(&object)?;
    text.truncate(text.trim_end_matches(['\n', '\r']).len());
    for name in PROGRESS {
        if let Some(figure @ Value::Number(_)) = object.get(name) {
            text.push_str(&format!(" {name}: {figure}"));
        }
    }
    for error in ERRORS.iter().filter_map(|name| object.get(*name).and_then(error_of)) {
        if !text.contains(error.trim()) {
            text.push('\n');
            text.push_str(error.trim_end_matches(['\n', '\r']));
        }
    }
    let time = first(&object, &TIMES, Value::as_str).and_then(clock);
    Some(Record { text, level: first(&object, &LEVELS, Level::of), time })
}

/// A line that is an object and nothing else. Python writes losses that are no number as `NaN`, which JSON has not.
fn object(line: &str) -> Option<Map<String, Value>> {
    if !line.starts_with('{') {
        return None;
    }
    let strict = || serde_json::from_str(line).ok();
    let of_python = || {
        serde_json::from_str(&line.replace("NaN", "null").replace("-Infinity", "null").replace("Infinity", "null")).ok()
    };
    strict().or_else(of_python)
}

/// The first of the names that is a member with a value of the wanted kind.
fn first<'a, T>(object: &'a Map<String, Value>, names: &[&str], wanted: impl Fn(&'a Value) -> Option<T>) -> Option<T> {
    names.iter().find_map(|name| object.get(*name).and_then(&wanted))
}

fn text_of(object: &Map<String, Value>) -> Option<String> {
    let inside = || {
        first(object, &AROUND_TEXT, |value| {
            let inner = value.as_object()?;
            first(inner, &TEXTS, Value::as_str).or_else(|| inner.get("stringValue")?.as_str())
        })
    };
    first(object, &TEXTS, Value::as_str).or_else(inside).map(str::to_owned)
}

/// An error as text, or as an object with its stack or its message.
fn error_of(value: &Value) -> Option<&str> {
    let within = || first(value.as_object()?, &["stack", "stack_trace", "message", "msg"], Value::as_str);
    value.as_str().or_else(within).filter(|error| !error.trim().is_empty())
}

/// A date and a time in the one form that is known before a line.
fn clock(value: &str) -> Option<String> {
    let time = time(value).filter(|time| time.len() > 10 && value.starts_with(time))?;
    Some(format!("{}Z", time.replacen(' ', "T", 1).replace('/', "-")))
}

impl Level {
    /// By its name, or by the number that bunyan and pino give it.
    fn of(value: &Value) -> Option<Self> {
        let name = match value {
            Value::String(name) => name.to_ascii_lowercase(),
            Value::Number(number) => number.to_string(),
            _ => return None,
        };
        Some(match &*name {
            "trace" | "10" => Self::Trace,
            "debug" | "20" => Self::Debug,
            "info" | "information" | "notice" | "default" | "30" => Self::Info,
            "warn" | "warning" | "40" => Self::Warning,
            "error" | "err" | "critical" | "fatal" | "alert" | "emergency" | "panic" | "50" | "60" => Self::Error,
            _ => return None,
        })
    }

    /// The word for it before a text; none before a piece of a traceback or the word of a shell, which stand at the margin.
    fn word(self, text: &str) -> &'static str {
        let is_sentence = text.trim().contains(' ') && !text.starts_with([' ', '\t']) && !text.starts_with("Traceback");
        match self {
            _ if !is_sentence => "",
            Self::Trace => "TRACE",
            Self::Debug => "DEBUG",
            Self::Info => "INFO",
            Self::Warning => "WARNING",
            Self::Error => "ERROR",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn carried(log: &str) -> Option<String> {
        CarriedText::of(log).map(|carried| carried.text)
    }

    #[test]
    fn the_text_of_loggers_and_collectors() {
        for (log, expected) in [
            (r#"{"log":"a \"b\"\n","stream":"stderr","time":"x"}"#, "a \"b\"\n"),
            (r#"{"level":30,"time":1700000000000,"pid":7,"msg":"started now"}"#, "INFO started now\n"),
            (r#"{"event": "a step", "step": 12, "loss": 2.5}"#, "a step step: 12 loss: 2.5\n"),
            (
                r#"{"timestamp":"2026-01-02 03:04:05,123","level":"ERROR","message":"it failed"}"#,
                "2026-01-02T03:04:05Z ERROR it failed\n",
            ),
            (
                r#"{"labels":{"app":"train"},"line":"one","timestamp":"2026-01-02T03:04:05.1Z"}"#,
                "2026-01-02T03:04:05Z one\n",
            ),
            (r#"{"event": "a step", "step": 12, "loss": NaN}"#, "a step step: 12\n"),
            (r#"{"fields":{"message":"deep"},"target":"x"}"#, "deep\n"),
            (r#"{"body":{"stringValue":"deeper"}}"#, "deeper\n"),
            (
                r#"{"message":"failed","exc_info":"Traceback (most recent call last):\n  File \"t.py\"\nValueError: x"}"#,
                "failed\nTraceback (most recent call last):\n  File \"t.py\"\nValueError: x\n",
            ),
            (
                r#"{"msg":"failed","err":{"type":"Error","message":"x","stack":"Error: x\n    at y"}}"#,
                "failed\nError: x\n    at y\n",
            ),
            (r#"trainer-1  | {"msg":"behind a name"}"#, "behind a name\n"),
        ] {
            assert_eq!(carried(log).as_deref(), Some(expected), "{log}");
        }
    }

    #[test]
    fn lines_are_counted_as_in_the_log() {
        let log = "{\"msg\":\"one\\ntwo\"}\n\n{\"msg\":\"three\"}\nKilled\n{\"msg\":\"four\"}\n{\"msg\":\"five\"}\n";
        let carried = CarriedText::of(log).unwrap();
        assert_eq!(carried.text, "one\ntwo\n\nthree\nKilled\nfour\nfive\n");
        assert_eq!((1..=8).map(|line| carried.line(line)).collect::<Vec<_>>(), [1, 1, 2, 3, 4, 5, 6, 8]);
    }

    #[test]
    fn levels_are_kept_where_they_tell_lines_apart() {
        let log =
            |levels: [&str; 3]| levels.map(|level| format!("{{\"level\":\"{level}\",\"msg\":\"a b\"}}\n")).concat();
        assert_eq!(carried(&log(["info", "info", "error"])).as_deref(), Some("INFO a b\nINFO a b\nERROR a b\n"));
        assert_eq!(carried(&log(["info"; 3])).as_deref(), Some("a b\na b\na b\n"));
    }

    #[test]
    fn other_logs_carry_nothing() {
        for log in [
            "",
            "plain\n{\"msg\":\"x\"}\n",
            "{\"step\":3,\"loss\":2.5}\n{\"step\":4,\"loss\":2.4}\n",
            "{\"msg\":\"cut",
            "{'msg': 'x'}\n",
        ] {
            assert_eq!(carried(log), None, "{log}");
        }
    }
}
