//! One number in a configuration file, read and changed in place: Python assignments, YAML and JSON.

use std::ops::Range;
use std::path::Path;

/// The languages of configuration files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Language {
    /// `batch_size = 12` at the left margin, as nanoGPT has it.
    Python,
    /// Keys by indentation; a path's parts are joined by dots.
    Yaml,
    /// Keys of objects; a path's parts are joined by dots.
    Json,
}

impl Language {
    /// The language of a file, by its name.
    pub(crate) fn of(path: &Path) -> Option<Self> {
        match path.extension()?.to_str()? {
            "py" => Some(Self::Python),
            "yaml" | "yml" => Some(Self::Yaml),
            "json" => Some(Self::Json),
            _ => None,
        }
    }

    /// The number that a key has; of several assignments the last.
    pub(crate) fn number(self, text: &str, key: &str) -> Option<u64> {
        product(self.value(text, key)?)
    }

    /// The value that a key has, as it is written.
    pub(crate) fn value<'a>(self, text: &'a str, key: &str) -> Option<&'a str> {
        Some(&text[self.place(text, key)?])
    }

    /// The text with another value for a key; `None` where the key is not there. Everything else stays as it is.
    pub(crate) fn changed(self, text: &str, key: &str, value: &str) -> Option<String> {
        let place = self.place(text, key)?;
        Some(format!("{}{value}{}", &text[..place.start], &text[place.end..]))
    }

    /// Where the value of a key stands.
    fn place(self, text: &str, key: &str) -> Option<Range<usize>> {
        match self {
            Self::Python => in_python(text, key),
            Self::Yaml => in_yaml(text, key),
            Self::Json => in_json(text, key),
        }
    }
}

/// A whole number, or a product of some, as in `5 * 8`.
pub(crate) fn product(text: &str) -> Option<u64> {
    text.split('*').try_fold(1_u64, |all, factor| all.checked_mul(factor.trim().replace('_', "").parse().ok()?))
}

/// Lines with the place at which each begins.
fn lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.split_inclusive('\n').scan(0, |at, line| {
        let begin = *at;
        *at += line.len();
        Some((begin, line))
    })
}

/// The place of a value that stands between `from` and a comment or the end of a line.
fn value_in(line: &str, begin: usize, from: usize) -> Range<usize> {
    let rest = &line[from..];
    let end = rest.find('#').unwrap_or(rest.len());
    let value = &rest[..end];
    let start = begin + from + (value.len() - value.trim_start().len());
    start..start + value.trim().len()
}

fn in_python(text: &str, key: &str) -> Option<Range<usize>> {
    lines(text)
        .filter_map(|(begin, line)| {
            let rest = line.strip_prefix(key)?;
            // `key: int = 3` and `key = 3`, but neither `key == 3` nor `keys = 3`.
            let equals = line.find('=')?;
            let between = line[key.len()..equals].trim();
            let assigns = (between.is_empty() || between.starts_with(':')) && !line[equals + 1..].starts_with('=');
            (assigns && rest.starts_with([' ', '=', ':', '\t'])).then(|| value_in(line, begin, equals + 1))
        })
        .last()
}

fn in_yaml(text: &str, key: &str) -> Option<Range<usize>> {
    let parts: Vec<&str> = key.split('.').collect();
    // The indentation of each part of the path that was found so far.
    let mut found: Vec<usize> = Vec::new();
    for (begin, line) in lines(text) {
        let indent = line.len() - line.trim_start_matches(' ').len();
        let bare = line.trim();
        if bare.is_empty() || bare.starts_with('#') || bare == "---" {
            continue;
        }
        while found.last().is_some_and(|above| indent <= *above) {
            found.pop();
        }
        // Deeper than the next part of the path could be: below a key that is not on it.
        let Some((name, _)) = bare.split_once(':') else { continue };
        if found.len() < parts.len()
            && name.trim_matches(['"', '\'']) == parts[found.len()]
            && is_level(text, begin, indent, &found)
        {
            if found.len() + 1 == parts.len() {
                let place = value_in(line, begin, indent + name.len() + 1);
                return (!place.is_empty()).then_some(place);
            }
            found.push(indent);
        }
    }
    None
}

/// Whether a line is a direct child of the last part found: no line between has a smaller indentation and is a key of
/// its own.
fn is_level(text: &str, begin: usize, indent: usize, found: &[usize]) -> bool {
    let least = found.last().map_or(0, |above| above + 1);
    let mut between =
        text[..begin].lines().rev().filter(|line| !line.trim().is_empty() && !line.trim().starts_with('#'));
    let nearer = between.find(|line| line.len() - line.trim_start_matches(' ').len() < indent);
    match nearer {
        None => indent >= least,
        Some(line) => found.last().is_some_and(|above| line.len() - line.trim_start_matches(' ').len() == *above),
    }
}

fn in_json(text: &str, key: &str) -> Option<Range<usize>> {
    let mut reader = Json { text: text.as_bytes(), at: 0, depth: 0 };
    reader.find(&key.split('.').collect::<Vec<_>>())
}

/// Walks over JSON as far as a value.
struct Json<'a> {
    text: &'a [u8],
    at: usize,
    depth: usize,
}

const DEEPEST: usize = 100;

impl Json<'_> {
    fn find(&mut self, path: &[&str]) -> Option<Range<usize>> {
        self.blanks();
        let Some((first, rest)) = path.split_first() else {
            let start = self.at;
            self.value()?;
            return Some(start..self.at);
        };
        self.expect(b'{')?;
        loop {
            self.blanks();
            let name = self.string()?;
            self.blanks();
            self.expect(b':')?;
            if &self.text[name] == first.as_bytes() {
                return self.find(rest);
            }
            self.value()?;
            self.blanks();
            self.expect(b',')?;
        }
    }

    /// Goes over one value.
    fn value(&mut self) -> Option<()> {
        self.blanks();
        match self.text.get(self.at)? {
            b'"' => self.string().map(drop),
            open @ (b'{' | b'[') => {
                let (object, close) = (*open == b'{', if *open == b'{' { b'}' } else { b']' });
                self.depth += 1;
                if self.depth > DEEPEST {
                    return None;
                }
                self.at += 1;
                self.blanks();
                while *self.text.get(self.at)? != close {
                    if object {
                        self.blanks();
                        self.string()?;
                        self.blanks();
                        self.expect(b':')?;
                    }
                    self.value()?;
                    self.blanks();
                    if *self.text.get(self.at)? == b',' {
                        self.at += 1;
                        self.blanks();
                    }
                }
                self.at += 1;
                self.depth -= 1;
                Some(())
            }
            _ => {
                let rest = &self.text[self.at..];
                let end = rest.iter().position(|byte| b",]} \t\r\n".contains(byte)).unwrap_or(rest.len());
                self.at += end;
                (end > 0).then_some(())
            }
        }
    }

    /// Goes over a string, and gives what stands between its quotes.
    fn string(&mut self) -> Option<Range<usize>> {
        self.expect(b'"')?;
        let start = self.at;
        loop {
            match self.text.get(self.at)? {
                b'"' => break,
                b'\\' => self.at += 2,
                _ => self.at += 1,
            }
        }
        self.at += 1;
        Some(start..self.at - 1)
    }

    fn blanks(&mut self) {
        while self.text.get(self.at).is_some_and(u8::is_ascii_whitespace) {
            self.at += 1;
        }
    }

    fn expect(&mut self, byte: u8) -> Option<()> {
        let here = self.text.get(self.at) == Some(&byte);
        self.at += usize::from(here);
        here.then_some(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const PYTHON: &str = "# a comment\nbatch_size = 12 # samples\nbatch_sizes = 3\n\
                          gradient_accumulation_steps = 5 * 8\n\
                          if batch_size == 4:\n    batch_size = 9\nlr: float = 1e-3\nn: int = 1_000\n";
    const YAML: &str = "trainer:\n  # how often\n  accumulate_grad_batches: 1  # steps\n  inner:\n    batch_size: 7\n\
                        data:\n  other: {a: 1}\n  batch_size: 64\nbatch_size: 3\n";
    const JSON: &str = "{\n  \"a\": {\"batch_size\": [1, {\"x\": \"}\"}]},\n  \
                        \"data\": {\"batch_size\": 64, \"b\": null},\n\
                        \"batch_size\": 3\n}\n";

    #[test]
    fn numbers_are_read() {
        let cases = [
            (Language::Python, PYTHON, "batch_size", Some(12)),
            (Language::Python, PYTHON, "gradient_accumulation_steps", Some(40)),
            (Language::Python, PYTHON, "n", Some(1000)),
            (Language::Python, PYTHON, "lr", None),
            (Language::Python, PYTHON, "batch", None),
            (Language::Yaml, YAML, "data.batch_size", Some(64)),
            (Language::Yaml, YAML, "trainer.accumulate_grad_batches", Some(1)),
            (Language::Yaml, YAML, "trainer.inner.batch_size", Some(7)),
            (Language::Yaml, YAML, "trainer.batch_size", None),
            (Language::Yaml, YAML, "batch_size", Some(3)),
            (Language::Yaml, YAML, "data", None),
            (Language::Json, JSON, "data.batch_size", Some(64)),
            (Language::Json, JSON, "batch_size", Some(3)),
            (Language::Json, JSON, "a.batch_size", None),
            (Language::Json, JSON, "b", None),
        ];
        for (language, text, key, expected) in cases {
            assert_eq!(language.number(text, key), expected, "{language:?} {key}");
        }
    }

    #[test]
    fn only_the_value_changes() {
        let changed = Language::Python.changed(PYTHON, "batch_size", "6").unwrap();
        assert_eq!(changed, PYTHON.replace("batch_size = 12 #", "batch_size = 6 #"));
        let changed = Language::Yaml.changed(YAML, "trainer.accumulate_grad_batches", "16").unwrap();
        assert_eq!(changed, YAML.replace("batches: 1  #", "batches: 16  #"));
        let changed = Language::Json.changed(JSON, "data.batch_size", "4").unwrap();
        assert_eq!(changed, JSON.replace("64", "4"));
    }

    proptest! {
        #[test]
        fn any_text_is_survived(text in "[a-c:={}\\[\\]\",\\\\ \n0-9#.]{0,60}", key in "[a-c.]{0,5}") {
            for language in [Language::Python, Language::Yaml, Language::Json] {
                let _ = language.changed(&text, &key, "1");
            }
        }
    }
}
