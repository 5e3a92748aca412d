//! A post as the log in it was: without colours, entities of HTML, and what a collector put before every line.

use std::borrow::Cow;

use lowtide_log::{shared_margin, without_colours, without_margin};
use lowtide_oom::without_prefix;

/// Longer texts are logs from files, which nobody prepares for others to read.
pub(crate) const LONGEST_POST: usize = 64 << 10;

/// Entities of HTML, and the marks it sets around code.
const ENTITIES: [(&str, &str); 12] = [
    ("<pre>", ""),
    ("</pre>", ""),
    ("<code>", ""),
    ("</code>", ""),
    ("<br>", ""),
    ("<br/>", ""),
    ("&quot;", "\""),
    ("&#39;", "'"),
    ("&#x27;", "'"),
    ("&lt;", "<"),
    ("&gt;", ">"),
    ("&amp;", "&"),
];

/// The text of a post, with as many lines as before.
pub(crate) fn readable(text: &str) -> Cow<'_, str> {
    let mut text = match without_colours(text.as_bytes()) {
        Cow::Borrowed(_) => Cow::Borrowed(text),
        Cow::Owned(plain) => Cow::Owned(String::from_utf8_lossy(&plain).into_owned()),
    };
    for (entity, sign) in ENTITIES {
        if text.contains(entity) {
            text = Cow::Owned(text.replace(entity, sign));
        }
    }
    if text.contains("**") {
        text = Cow::Owned(without_emphasis(&text));
    }
    match shared_indentation(&text) {
        0 => text,
        blanks => {
            Cow::Owned(text.lines().map(|line| format!("{}\n", line.get(blanks..).unwrap_or_default())).collect())
        }
    }
}

/// The text without the stars of Markdown around an error, which stand in the middle of its message; those of code stay.
fn without_emphasis(text: &str) -> String {
    let bare = |line: &str| match line.matches("**").count() {
        stars if stars % 2 == 0 && line.split("**").skip(1).step_by(2).any(|bold| bold.contains("rror")) => {
            line.replace("**", "")
        }
        _ => line.to_owned(),
    };
    text.split('\n').map(bare).collect::<Vec<String>>().join("\n")
}

/// How many blanks or tabs every line begins with.
fn shared_indentation(text: &str) -> usize {
    let lines = text.lines().filter(|line| !line.trim().is_empty());
    lines.map(|line| line.len() - line.trim_start_matches([' ', '\t']).len()).min().unwrap_or_default()
}

/// The text without a margin that nobody else knows how to take off, where all its lines have one.
pub(crate) fn without_shared_margin(text: &str) -> Option<String> {
    let margin = shared_margin(text)?;
    if without_prefix(&format!("{margin} x")).trim_start() == "x" {
        return None;
    }
    Some(text.lines().map(|line| format!("{}\n", without_margin(line, margin).unwrap_or(line))).collect())
}

/// The text without what every line has before it: the mark of a quotation, or a margin that is known wherever lines are read.
pub(crate) fn without_known_margin(text: &str) -> Option<String> {
    let margin = match text.lines().all(|line| line.is_empty() || line.starts_with('>')) {
        true => ">",
        false => shared_margin(text)?.trim_end(),
    };
    let has_blank =
        text.lines().next().is_some_and(|first| first.get(margin.len()..).is_some_and(|rest| rest.starts_with(' ')));
    let bare = |line: &'_ str| -> String {
        let rest = without_margin(line, margin).unwrap_or(line);
        // Where no blank is behind the margin, one that is there is the text's own.
        let is_own = !has_blank && line[..line.len() - rest.len()].ends_with(' ');
        format!("{}{rest}\n", if is_own { " " } else { "" })
    };
    Some(text.lines().map(bare).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_put_around_a_log_is_taken_off() {
        assert_eq!(readable("\x1b[31mif a &lt; b &amp;&amp; c\x1b[0m\n"), "if a < b && c\n");
        assert_eq!(readable("<pre><code>Killed\n</code></pre>\n"), "Killed\n\n");
        assert!(matches!(readable("plain"), Cow::Borrowed("plain")));
        assert_eq!(readable("    a\n\n      b\n"), "a\n\n  b\n");
        assert_eq!(readable("**AError: no memory.** Tried 2\n"), "AError: no memory. Tried 2\n");
        assert_eq!(readable("f(*a, **b) # error\n"), "f(*a, **b) # error\n");
    }

    #[test]
    fn marks_are_taken_off_without_a_blank_of_the_text() {
        let lines = ["a", " b", "c", "d"];
        let bare = |mark: &str| without_known_margin(&lines.map(|line| format!("{mark}{line}\n")).concat());
        for mark in ["> ", "[rank3]: ", "[default1]:", "2026-01-02T03:04:05Z "] {
            assert_eq!(bare(mark).as_deref(), Some("a\n b\nc\nd\n"), "{mark}");
        }
        assert_eq!(bare(""), None);
    }

    #[test]
    fn margins_that_every_line_has_are_taken_off() {
        let bare = |margin: &str| {
            let log = ["a 1", "  b", "c", "Killed"];
            without_shared_margin(&log.map(|line| format!("{margin}{line}\n")).concat())
        };
        for margin in [
            "[pod/train-0/trainer] ",
            "(RayTrainWorker pid=2817, ip=10.0.0.4) ",
            "2026-01-02 03:04:05,123 - trainer - ERROR - ",
            "[2026-01-02 03:04:05,123] [ERROR] [launch.py:88:main] ",
        ] {
            assert_eq!(bare(margin).as_deref(), Some("a 1\n  b\nc\nKilled\n"), "{margin}");
        }
        for margin in ["", "> ", "[rank3]: ", "llama_model_load: ", "RuntimeError 3: "] {
            assert_eq!(bare(margin), None, "{margin}");
        }
    }
}
