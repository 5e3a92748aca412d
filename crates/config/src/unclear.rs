//! Settings that are there without a plain value: what a program computes, changes later or passes on.

use crate::Setting;
use crate::python::without_comment;

/// A setting whose value the text does not tell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unclear {
    /// The keys that lead to it, outermost first.
    pub path: Vec<String>,
    /// The line it stands in, from 1.
    pub line: usize,
    /// What stands there, cut to a bounded length.
    pub text: String,
    /// Why its value is not known.
    pub kind: UnclearKind,
}

/// Why the value of a setting is not known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum UnclearKind {
    /// It is set where the reader of plain values does not follow: under an `if`, in a dictionary, by an expression.
    Computed,
    /// Its value is changed again: `steps //= 8`.
    Changed,
    /// It is a variable of a function's own, which is another one than the file's.
    Local,
    /// It stands for the value of another setting: `*anchor`.
    Alias,
}

const LONGEST: usize = 80;

/// How a statement changes the value that a name has.
const CHANGES: [&str; 12] = ["//=", "**=", ">>=", "<<=", "+=", "-=", "*=", "/=", "%=", "|=", "&=", "^="];

impl Unclear {
    pub(crate) fn new(path: Vec<String>, line: usize, text: &str, kind: UnclearKind) -> Self {
        Self { path, line, text: text.trim().chars().take(LONGEST).collect(), kind }
    }
}

/// Every name that a Python file sets in another way than by one of the settings that were read in it.
pub(crate) fn in_python(text: &str, settings: &[Setting]) -> Vec<Unclear> {
    let mut found = Vec::new();
    let mut start = 0;
    let mut in_string = false;
    // How far the function is indented that a line stands in.
    let mut function: Option<usize> = None;
    for (index, line) in text.split_inclusive('\n').enumerate() {
        let was_in_string = in_string;
        if line.matches("\"\"\"").count() % 2 == 1 || line.matches("'''").count() % 2 == 1 {
            in_string = !in_string;
        }
        if !was_in_string {
            let code = without_comment(line);
            let is_read = |name: &str, at: usize| {
                settings.iter().any(|setting| setting.span.start == at && setting.path.iter().any(|key| key == name))
            };
            let indent = code.len() - code.trim_start().len();
            if !code.trim().is_empty() {
                function = function.filter(|outer| indent > *outer);
            }
            for (name, kind) in names_set(code, start, &is_read) {
                let is_local = function.is_some()
                    && !code.contains(&format!(".{name}"))
                    && !code.contains(['"', '\''])
                    && !text.contains(&format!("global {name}"));
                let kind = if is_local { UnclearKind::Local } else { kind };
                found.push(Unclear::new(vec![name], index + 1, code, kind));
            }
            if function.is_none() && (code.trim_start().starts_with("def ") || code.trim_start().starts_with("async "))
            {
                function = Some(indent);
            }
        }
        start += line.len();
    }
    found
}

/// The names that a line sets and that are not read, by where their values stand.
fn names_set(code: &str, start: usize, is_read: &dyn Fn(&str, usize) -> bool) -> Vec<(String, UnclearKind)> {
    let mut found = Vec::new();
    for word in words(code) {
        let name = &code[word.from..word.to];
        let after = &code[word.end..];
        if let Some(option) = name.strip_prefix("--") {
            let option = option.replace('-', "_");
            let is_default = code.find("default=").is_some_and(|at| is_read(&option, start + at + "default=".len()));
            if word.is_quoted && !is_default {
                found.push((option, UnclearKind::Computed));
            }
            continue;
        }
        if code.contains("add_argument(") || is_annotation(&code[..word.from]) {
            continue;
        }
        let rest = after.trim_start_matches([' ', '\t', ']']);
        if CHANGES.iter().any(|sign| rest.starts_with(sign)) {
            found.push((name.to_owned(), UnclearKind::Changed));
            continue;
        }
        let Some(value) = value_after(code, &word, rest) else { continue };
        let at = code.len() - value.len();
        let passes_on = value.trim().trim_end_matches([',', ')', ' ']).rsplit('.').next() == Some(name);
        if !is_read(name, start + at) && !passes_on {
            found.push((name.to_owned(), UnclearKind::Computed));
        }
    }
    found.extend(several_at_once(code));
    found
}

/// Whether a type follows: `name: `, which no `else: ` is.
fn is_annotation(before: &str) -> bool {
    let name = before.trim().strip_suffix(':').unwrap_or_default();
    let is_name = !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    is_name && !matches!(name, "else" | "try" | "finally")
}

/// What is given to a name: behind `=`, `:=`, an annotation, or the colon of a dictionary.
fn value_after<'a>(code: &'a str, word: &Word, rest: &'a str) -> Option<&'a str> {
    let given = match rest.strip_prefix(":=") {
        Some(given) => given,
        None if word.is_quoted && rest.starts_with(':') => &rest[1..],
        None if !word.is_quoted && rest.starts_with(':') && code[..word.from].trim().is_empty() => {
            rest[rest.find('=')?..].strip_prefix('=')?
        }
        None => rest.strip_prefix('=').filter(|given| !given.starts_with(['=', '}']))?,
    };
    Some(given.trim_start())
}

/// `batch_size, steps = 12, 4`: the names but the last, which stands before the sign.
fn several_at_once(code: &str) -> Vec<(String, UnclearKind)> {
    let Some((names, _)) = code.split_once('=').filter(|(names, _)| names.contains(',')) else { return Vec::new() };
    let names: Vec<&str> = names.split(',').map(str::trim).collect();
    let is_name = |name: &&str| !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    match names.iter().all(is_name) {
        true => names[..names.len() - 1].iter().map(|name| ((*name).to_owned(), UnclearKind::Computed)).collect(),
        false => Vec::new(),
    }
}

/// A name in code, or a string that is nothing but a name.
struct Word {
    from: usize,
    to: usize,
    /// Behind it and its quotes.
    end: usize,
    is_quoted: bool,
}

fn words(code: &str) -> Vec<Word> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let mut words = Vec::new();
    let mut at = 0;
    while let Some(character) = code[at..].chars().next() {
        if matches!(character, '"' | '\'') {
            let from = at + 1;
            let Some(length) = code[from..].find(character) else { break };
            let to = from + length;
            let is_name = length > 0 && code[from..to].chars().all(|c| is_part(c) || c == '-');
            if is_name {
                words.push(Word { from, to, end: to + 1, is_quoted: true });
            }
            at = to + 1;
        } else if is_part(character) {
            let length = code[at..].find(|c| !is_part(c)).unwrap_or(code.len() - at);
            words.push(Word { from: at, to: at + length, end: at + length, is_quoted: false });
            at += length;
        } else {
            at += character.len_utf8();
        }
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::python;

    #[test]
    fn names_without_a_plain_value() {
        for (text, expected) in [
            ("steps = 4\nsteps //= 8\n", &["steps"][..]),
            ("steps = 4\nif x:\n    steps = 8\n", &["steps"]),
            ("size, steps = 12, 4\n", &["steps", "size"]),
            ("args.steps = 4\ncfg['size'] = 3\n", &["steps", "size"]),
            ("d = {'steps': 4}\n", &["steps"]),
            ("p.add_argument('--grad-steps', required=True)\n", &["grad_steps"]),
            ("p.add_argument(\n    '--steps',\n    default=4,\n)\n", &["steps"]),
            ("p.add_argument('--steps', default=max(1, 4))\nf(size=64 // n, x=1)\n", &[]),
            ("@dataclass\nclass A:\n    steps: int = 4\n", &["steps"]),
            ("f(\n    steps=64 // n,\n    size=4\n)\n", &["steps", "size"]),
            ("if a: steps = 4\nelse: steps = 5\n", &["steps", "steps"]),
            // Read, passed on, compared or told.
            ("steps = 4  # steps //= 2\nf(a, steps=3)\np.add_argument('--size', default=4)\n", &[]),
            ("n: int = 4\nf(steps=steps, size=args.size)\nif n == 3 or n >= 4: pass\n", &[]),
            ("print(f\"{n=}\", 'steps = 3')\n'''\nn += 1\n'''\n", &[]),
        ] {
            let found = in_python(text, &python::settings(text));
            let names: Vec<&str> = found.iter().map(|unclear| &*unclear.path[0]).collect();
            assert_eq!(names, expected, "{text}");
        }
    }
}
