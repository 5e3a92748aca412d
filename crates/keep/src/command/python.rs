//! What Python files set a name to, as far as it is written down plainly.
//!
//! A file that sets a name in any other way than by a plain number makes it unknown: an older number elsewhere would be
//! a wrong one.

use lowtide_config::whole_number;

use crate::command::found::Found;

/// What the assignments of a file leave a name at; the last of them counts.
pub(crate) fn assigned(text: &str, name: &str, file: &str) -> Found {
    let code = without_comments(text);
    let mut found = Found::Nowhere;
    for line in code.lines().map(str::trim_end) {
        if line.contains("import *") || line.trim_start().starts_with("exec(") {
            found = Found::Unknown(format!("{name} may be set by `{}` in {file}", line.trim()));
            continue;
        }
        let Some(Assignment { targets, value, is_plain }) = assignment(line) else { continue };
        if !has_word(targets, name) {
            continue;
        }
        let target = targets.split(':').next().unwrap_or_default().trim_end();
        found = match number(value) {
            Some(number) if is_plain && target == name => Found::Number(number),
            _ if is_plain && target == name => no_number(name, value, file),
            _ => Found::Unknown(format!("{name} is set by `{}` in {file}, which is no plain number", line.trim())),
        };
    }
    found
}

/// The default that a script gives an option of this name: of a field, an argument of the command line, a dictionary.
pub(crate) fn defaulted(text: &str, name: &str, file: &str) -> Found {
    let code = without_comments(text);
    let mut found = Found::Nowhere;
    for at in words(&code, name) {
        let here = default_at(&code, at, name, file);
        found = match (found, here) {
            (found, Found::Nowhere) => found,
            (Found::Nowhere, here) => here,
            (found, here) if found == here => found,
            (unknown @ Found::Unknown(_), _) | (_, unknown @ Found::Unknown(_)) => unknown,
            (Found::Number(_), Found::Number(_)) => Found::Unknown(format!("{name} has several values in {file}")),
        };
    }
    found
}

fn default_at(code: &str, at: usize, name: &str, file: &str) -> Found {
    let (before, after) = (&code[..at], &code[at + name.len()..]);
    let line_start = before.rfind('\n').map_or(0, |end| end + 1);
    let line = code[line_start..].lines().next().unwrap_or_default().trim();
    let of = |value: &str| match number(value) {
        Some(number) => Found::Number(number),
        None => no_number(name, value, file),
    };
    // `add_argument("--name", type=int, default=3)`
    if before.ends_with("\"--") || before.ends_with("'--") {
        let rest = &after[..closing(after)];
        return match argument(rest, "default") {
            Some(value) => of(value),
            None => Found::Unknown(format!("{name} has no default in {file}")),
        };
    }
    let quoted = before.ends_with(['"', '\'']);
    let rest = if quoted { after.get(1..).unwrap_or_default() } else { after }.trim_start();
    if quoted && let Some(value) = rest.strip_prefix(':') {
        return of(value[..value_end(value)].trim());
    }
    // `name = 3`, `name: int = field(default=3)`
    let line_after = rest.lines().next().unwrap_or_default();
    let Some(Assignment { targets, value, is_plain }) = assignment(line_after) else { return Found::Nowhere };
    let is_set = targets.trim().is_empty() || targets.starts_with(':');
    if !is_set {
        return Found::Nowhere;
    }
    let value_at = code.len() - rest.len() + line_after.len() - value.len();
    let value = code[value_at..][..value_end(&code[value_at..])].trim();
    if value == name || value.strip_suffix(name).is_some_and(|owner| owner.ends_with('.')) {
        // It is passed on as it is.
        return Found::Nowhere;
    }
    let is_field = before[line_start..].trim().is_empty() && is_plain && depth(before) == 0;
    let in_defaults = enclosing(before).is_some_and(|call| call.ends_with("set_defaults"));
    match value.strip_prefix("field(") {
        Some(field) if is_field => match argument(&field[..closing(field)], "default") {
            Some(value) => of(value),
            None => no_number(name, value, file),
        },
        _ if is_field || in_defaults => of(value),
        _ => Found::Unknown(format!("{name} is set by `{line}` in {file}, whatever the command line says")),
    }
}

fn no_number(name: &str, value: &str, file: &str) -> Found {
    let value: String = value.trim().chars().take(60).collect();
    Found::Unknown(format!("{name} is `{value}` in {file}, which is no number"))
}

/// A number or a product of them; what has a comma in it is a tuple in Python.
fn number(text: &str) -> Option<u64> {
    if text.contains(',') { None } else { whole_number(text) }
}

struct Assignment<'a> {
    targets: &'a str,
    value: &'a str,
    /// At the left edge, to one target, by `=` alone.
    is_plain: bool,
}

/// A line as an assignment of any kind; `==` and arguments in brackets are none.
fn assignment(line: &str) -> Option<Assignment<'_>> {
    let bytes = line.as_bytes();
    let mut level = 0;
    let mut places = Vec::new();
    for (at, byte) in bytes.iter().enumerate() {
        match byte {
            b'(' | b'[' | b'{' => level += 1,
            b')' | b']' | b'}' => level -= 1,
            b'=' if level <= 0 => {
                let (before, twice) = (at.checked_sub(1).map(|at| bytes[at]), at.checked_sub(2).map(|at| bytes[at]));
                let shifts = matches!(before, Some(b'<' | b'>')) && before == twice;
                let compares = matches!(before, Some(b'=' | b'!' | b'<' | b'>')) && !shifts;
                if !compares && bytes.get(at + 1) != Some(&b'=') {
                    places.push(at);
                }
            }
            _ => {}
        }
    }
    let (first, last) = (*places.first()?, *places.last()?);
    let targets = line[..last].trim_end_matches(['+', '-', '*', '/', '%', '&', '|', '^', '@', '<', '>', ':']);
    let is_plain = first == last && targets.len() == last && !line.starts_with([' ', '\t']);
    Some(Assignment { targets, value: &line[last + 1..], is_plain })
}

/// The value of an argument among those of a call.
fn argument<'a>(arguments: &'a str, name: &str) -> Option<&'a str> {
    words(arguments, name).find_map(|at| {
        let value = arguments[at + name.len()..].trim_start().strip_prefix('=')?;
        (!value.starts_with('=') && depth(&arguments[..at]) == 0).then(|| value[..value_end(value)].trim())
    })
}

/// Where a value ends: at a comma, a bracket or a line that it does not open itself.
fn value_end(text: &str) -> usize {
    ends(text, |byte| matches!(byte, b',' | b'\n' | b';'))
}

/// Where the bracket closes that is open at the beginning.
fn closing(text: &str) -> usize {
    ends(text, |_| false)
}

fn ends(text: &str, also: impl Fn(u8) -> bool) -> usize {
    let mut level = 0;
    let end = text.bytes().position(|byte| {
        match byte {
            b'(' | b'[' | b'{' => level += 1,
            b')' | b']' | b'}' => level -= 1,
            _ => {}
        }
        level < 0 || (level == 0 && also(byte))
    });
    end.unwrap_or(text.len())
}

/// How many brackets are open at the end of a text.
fn depth(text: &str) -> i32 {
    let opens = text.bytes().filter(|byte| matches!(byte, b'(' | b'[' | b'{')).count();
    let closes = text.bytes().filter(|byte| matches!(byte, b')' | b']' | b'}')).count();
    i32::try_from(opens).unwrap_or(0) - i32::try_from(closes).unwrap_or(0)
}

/// What stands before the innermost bracket that is open at the end of a text.
fn enclosing(text: &str) -> Option<&str> {
    let mut level = 0;
    let open = text.bytes().rposition(|byte| {
        match byte {
            b'(' | b'[' | b'{' => level -= 1,
            b')' | b']' | b'}' => level += 1,
            _ => {}
        }
        level < 0
    })?;
    Some(text[..open].trim_end())
}

fn has_word(text: &str, word: &str) -> bool {
    words(text, word).next().is_some()
}

/// Where a word stands by itself.
fn words<'a>(text: &'a str, word: &'a str) -> impl Iterator<Item = usize> + 'a {
    let within = |character: char| character.is_alphanumeric() || character == '_';
    text.match_indices(word)
        .map(|(at, _)| at)
        .filter(move |at| !text[..*at].ends_with(within) && !text[at + word.len()..].starts_with(within))
}

/// A text without comments and without strings that are no names.
fn without_comments(text: &str) -> String {
    let mut code = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(character) = rest.chars().next() {
        let long = ["\"\"\"", "'''"].into_iter().find(|quote| rest.starts_with(quote));
        let length = match (long, character) {
            (Some(quote), _) => rest[3..].find(quote).map_or(rest.len(), |end| end + 6),
            (None, '#') => rest.find('\n').unwrap_or(rest.len()),
            (None, '"' | '\'') => {
                let end = string_end(rest, character);
                let text = &rest[..end];
                let is_name = text.chars().all(|it| it.is_alphanumeric() || matches!(it, '_' | '-' | '"' | '\''));
                code.push_str(if is_name { text } else { "''" });
                rest = &rest[end..];
                continue;
            }
            _ => {
                code.push(character);
                rest = &rest[character.len_utf8()..];
                continue;
            }
        };
        code.extend(rest[..length].chars().filter(|character| *character == '\n'));
        rest = &rest[length..];
    }
    code
}

/// Where a string of one line ends that begins a text.
fn string_end(text: &str, quote: char) -> usize {
    let mut escaped = false;
    for (at, character) in text.char_indices().skip(1) {
        match character {
            '\n' => return at,
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            _ if character == quote => return at + 1,
            _ => {}
        }
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn told(found: Found) -> String {
        match found {
            Found::Number(number) => number.to_string(),
            Found::Unknown(why) => why,
            Found::Nowhere => "nowhere".to_owned(),
        }
    }

    #[test]
    fn the_last_assignment_counts() {
        let cases = [
            ("n = 4 # n = 5\nm = 3\n", "4"),
            ("n = 5 * 8\n", "40"),
            ("n: int = 4\n", "4"),
            ("n = 4\nn = 40 // world\n", "n is `40 // world` in c.py, which is no number"),
            ("BS = 3\nn = BS\nx = n\n", "n is `BS` in c.py, which is no number"),
            ("n = BS\nn = 3\n", "3"),
            ("n = 40\nn //= 8\n", "n is set by `n //= 8` in c.py, which is no plain number"),
            ("n = 5\nif True:\n    n = 20\n", "n is set by `n = 20` in c.py, which is no plain number"),
            ("n, m = 4, 5\n", "n is set by `n, m = 4, 5` in c.py, which is no plain number"),
            ("n = 4,5\n", "n is `4,5` in c.py, which is no number"),
            ("n = '4'\n", "n is `'4'` in c.py, which is no number"),
            ("n = 4; m = 5\n", "n is set by `n = 4; m = 5` in c.py, which is no plain number"),
            ("globals()['n'] = 4\n", "n is set by `globals()['n'] = 4` in c.py, which is no plain number"),
            ("n = 4\nfrom base import *\n", "n may be set by `from base import *` in c.py"),
            ("from base import *\nn = 4\n", "4"),
            ("assert n == 4\nassert n <= 4\nf(n=4)\nx = n * 2\n\"\"\"\nn = 4\n\"\"\"\n", "nowhere"),
            ("", "nowhere"),
        ];
        for (text, expected) in cases {
            assert_eq!(told(assigned(text, "n", "c.py")), expected, "{text}");
        }
    }

    #[test]
    fn defaults_of_scripts() {
        let cases = [
            ("class A(B):\n    n: int = field(default=16, metadata={'help': 'default=3'})\n", "16"),
            ("class A(B):\n    n: int = field(\n        default=16)\n", "16"),
            ("class A(B):\n    n: int = 16\n    m: int = 3\n", "16"),
            ("p.add_argument(\n    '--n',\n    type=int,\n    default=3,\n    help='n (default=4)',\n)\n", "3"),
            (
                "p.add_argument('-n', \"--n\", default=os.cpu_count())",
                "n is `os.cpu_count()` in c.py, which is no number",
            ),
            ("p.add_argument('--n', type=int)", "n has no default in c.py"),
            ("p.set_defaults(m=3, n=4)", "4"),
            ("C(trainer_defaults={'n': 4, 'm': 5})", "4"),
            ("T(n=16)", "n is set by `T(n=16)` in c.py, whatever the command line says"),
            ("a.n = 16\n", "n is set by `a.n = 16` in c.py, whatever the command line says"),
            ("T(n=args.n)\nif args.n == 4:\n    x = args.n * 3\nprint(f'n = {a.n}')  # n = 3\n", "nowhere"),
            ("class A:\n    n: int = 3\nclass B:\n    n: int = 4\n", "n has several values in c.py"),
            ("class A:\n    n: int = 3\nclass B:\n    n: int = 3\n", "3"),
        ];
        for (text, expected) in cases {
            assert_eq!(told(defaulted(text, "n", "c.py")), expected, "{text}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_survived(text in "[n:=+/<{}()\\[\\]\"',\\\\ \n0-9#.ü-]{0,40}") {
            let _ = (assigned(&text, "n", "c.py"), defaulted(&text, "n", "c.py"));
        }
    }
}
