//! The text form in which Prometheus reads metrics, version 0.0.4.

use std::fmt::Write;

use lowtide_core::printable_lines;

/// The content type of the text.
pub(crate) const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// A text of metric families. Each is written once, as a whole, and only if it has a series.
#[derive(Debug, Default)]
pub(super) struct Exposition {
    text: String,
}

/// What kind of metric a family is.
#[derive(Debug, Clone, Copy)]
pub(super) enum Kind {
    Gauge,
    Counter,
}

/// One series: its labels and its value.
pub(super) type Series<'a> = (Vec<(&'static str, &'a str)>, f64);

impl Exposition {
    /// Writes a family. Of series with the same labels only the first counts, for a server refuses the whole page
    /// otherwise.
    pub(super) fn family<'a>(
        &mut self,
        name: &str,
        kind: Kind,
        help: &str,
        all_series: impl IntoIterator<Item = Series<'a>>,
    ) {
        let mut lines: Vec<(String, f64)> = Vec::new();
        for (labels, value) in all_series {
            let labels = written(&labels);
            if !lines.iter().any(|(other, _)| *other == labels) {
                lines.push((labels, value));
            }
        }
        if lines.is_empty() {
            return;
        }
        let kind = match kind {
            Kind::Gauge => "gauge",
            Kind::Counter => "counter",
        };
        let help = help.replace('\\', r"\\").replace('\n', r"\n");
        self.line(format_args!("# HELP {name} {help}"));
        self.line(format_args!("# TYPE {name} {kind}"));
        for (labels, value) in lines {
            self.line(format_args!("{name}{labels} {}", number(value)));
        }
    }

    pub(super) fn into_text(self) -> String {
        self.text
    }

    fn line(&mut self, line: std::fmt::Arguments<'_>) {
        writeln!(self.text, "{line}").expect("writing to a string cannot fail");
    }
}

/// Prometheus has floating-point values only; bytes are exact up to 8 PiB.
pub(super) fn wide(value: u64) -> f64 {
    value as f64
}

fn written(labels: &[(&'static str, &str)]) -> String {
    if labels.is_empty() {
        return String::new();
    }
    let parts: Vec<String> = labels.iter().map(|(name, value)| format!("{name}=\"{}\"", escaped(value))).collect();
    format!("{{{}}}", parts.join(","))
}

fn escaped(value: &str) -> String {
    // The format knows a line end; what else may not be shown is written out.
    let value = printable_lines(value).replace('\t', r"\t").replace('\r', r"\r");
    value.replace('\\', r"\\").replace('"', "\\\"").replace('\n', r"\n")
}

fn number(value: f64) -> String {
    match value {
        _ if value.is_nan() => "NaN".to_owned(),
        f64::INFINITY => "+Inf".to_owned(),
        f64::NEG_INFINITY => "-Inf".to_owned(),
        _ => value.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::{Exposition, Kind};

    #[test]
    fn labels_and_help_are_escaped_and_no_series_comes_twice() {
        let mut page = Exposition::default();
        page.family("a_bytes", Kind::Gauge, "Two\nlines \\ here.", [(vec![("name", "a\"b\\c\nd")], 1.0)]);
        page.family("b_total", Kind::Counter, "Once.", [(vec![], 2.0), (vec![], 3.0)]);
        page.family("c", Kind::Gauge, "Not finite.", [(vec![("x", "1")], f64::NAN), (vec![("x", "2")], f64::INFINITY)]);
        page.family("d", Kind::Gauge, "Nothing.", []);
        let expected = concat!(
            "# HELP a_bytes Two\\nlines \\\\ here.\n# TYPE a_bytes gauge\na_bytes{name=\"a\\\"b\\\\c\\nd\"} 1\n",
            "# HELP b_total Once.\n# TYPE b_total counter\nb_total 2\n",
            "# HELP c Not finite.\n# TYPE c gauge\nc{x=\"1\"} NaN\nc{x=\"2\"} +Inf\n",
        );
        assert_eq!(page.into_text(), expected);
    }
}
