//! An object of JSON in a line of a log, as far as a log needs one: members in order, texts without their escapes.
//!
//! A parser of whole documents would do more, and would be a dependency of this crate for the sake of single lines.

/// A member's value.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Value<'a> {
    Text(String),
    Object(Object<'a>),
    /// A list, a number, a word: as it stands there.
    Other(&'a str),
}

/// The members of an object, in order.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Object<'a>(Vec<(String, Value<'a>)>);

/// Objects within objects are read so deep.
const DEEPEST: usize = 3;

impl<'a> Object<'a> {
    /// Reads a line that is an object and nothing else.
    pub(super) fn of(line: &'a str) -> Option<Self> {
        let (object, rest) = object(line.trim(), DEEPEST)?;
        rest.is_empty().then_some(object)
    }

    /// The first of the names that is a member with a value of the wanted kind.
    pub(super) fn first<T>(&self, names: &[&str], wanted: impl Fn(&Value<'a>) -> Option<T>) -> Option<T> {
        names.iter().find_map(|name| {
            let (_, value) = self.0.iter().find(|(known, _)| known == name)?;
            wanted(value)
        })
    }

    pub(super) fn members(&self) -> impl Iterator<Item = (&str, &Value<'a>)> {
        self.0.iter().map(|(name, value)| (&**name, value))
    }
}

fn object(text: &str, depth: usize) -> Option<(Object<'_>, &str)> {
    let mut rest = text.strip_prefix('{')?.trim_start();
    let mut members = Vec::new();
    loop {
        if let Some(after) = rest.strip_prefix('}') {
            return Some((Object(members), after));
        }
        let (name, after) = string(rest)?;
        let (value, after) = value(after.trim_start().strip_prefix(':')?.trim_start(), depth)?;
        members.push((name, value));
        let after = after.trim_start();
        rest = after.strip_prefix(',').unwrap_or(after).trim_start();
    }
}

fn value(text: &str, depth: usize) -> Option<(Value<'_>, &str)> {
    if text.starts_with('"') {
        return string(text).map(|(text, rest)| (Value::Text(text), rest));
    }
    if text.starts_with('{') && depth > 1 {
        return object(text, depth - 1).map(|(object, rest)| (Value::Object(object), rest));
    }
    let end = if text.starts_with(['{', '[']) { end_of_group(text)? } else { text.find([',', '}'])? };
    (end > 0).then(|| (Value::Other(text[..end].trim_end()), &text[end..]))
}

/// Where a list or an object ends, with its last bracket.
fn end_of_group(text: &str) -> Option<usize> {
    let (mut depth, mut is_string, mut is_escaped) = (0_usize, false, false);
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' => is_escaped = is_string,
            b'"' => is_string = !is_string,
            b'{' | b'[' if !is_string => depth += 1,
            b'}' | b']' if !is_string => {
                depth = depth.checked_sub(1)?;
                if depth == 0 {
                    return Some(at + 1);
                }
            }
            _ => {}
        }
    }
    None
}

fn string(text: &str) -> Option<(String, &str)> {
    let inner = text.strip_prefix('"')?;
    let mut plain = String::new();
    let mut rest = inner.chars();
    loop {
        match rest.next()? {
            '"' => return Some((plain, rest.as_str())),
            '\\' => plain.push(escaped(&mut rest)?),
            other => plain.push(other),
        }
    }
}

fn escaped(rest: &mut std::str::Chars<'_>) -> Option<char> {
    Some(match rest.next()? {
        'n' => '\n',
        'r' => '\r',
        't' => '\t',
        'b' => '\u{8}',
        'f' => '\u{c}',
        'u' => unicode(rest)?,
        other => other,
    })
}

/// Four digits, or twice four for what lies beyond them.
fn unicode(rest: &mut std::str::Chars<'_>) -> Option<char> {
    let unit =
        |rest: &mut std::str::Chars<'_>| u32::from_str_radix(&rest.by_ref().take(4).collect::<String>(), 16).ok();
    let first = unit(rest)?;
    if !(0xD800..0xDC00).contains(&first) {
        return Some(char::from_u32(first).unwrap_or(char::REPLACEMENT_CHARACTER));
    }
    let mut second = rest.clone();
    let low = (second.next() == Some('\\') && second.next() == Some('u')).then(|| unit(&mut second)).flatten();
    let Some(low) = low.filter(|low| (0xDC00..0xE000).contains(low)) else {
        return Some(char::REPLACEMENT_CHARACTER);
    };
    *rest = second;
    char::from_u32(0x1_0000 + ((first - 0xD800) << 10) + (low - 0xDC00))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(line: &str, name: &str) -> Option<String> {
        Object::of(line)?.first(&[name], |value| match value {
            Value::Text(text) => Some(text.clone()),
            Value::Object(_) | Value::Other(_) => None,
        })
    }

    #[test]
    fn members_are_read_whatever_stands_between_them() {
        let line =
            r#" {"a": [1, {"msg": "]"}], "n":-3.5e2, "o":{"p":{"q":{"r":1}}}, "msg" : "x \"y\"\t\\", "t":true} "#;
        assert_eq!(text(line, "msg").as_deref(), Some("x \"y\"\t\\"));
        let names: Vec<String> = Object::of(line)
            .into_iter()
            .flat_map(|object| object.members().map(|(name, _)| name.to_owned()).collect::<Vec<_>>())
            .collect();
        assert_eq!(names, ["a", "n", "o", "msg", "t"]);
        assert_eq!(text("{}", "msg"), None);
    }

    #[test]
    fn escapes_are_taken_off() {
        assert_eq!(
            text(r#"{"m":"a\nb\/\u003cc\u00e9\ud83d\ude00\ud83dx"}"#, "m").as_deref(),
            Some("a\nb/<cé😀\u{fffd}x")
        );
    }

    #[test]
    fn what_is_cut_or_no_object_is_none() {
        for line in [
            r#"{"msg":"cut"#,
            r#"{"msg""#,
            r#"{"msg":}"#,
            r#"{"a":1} trailing"#,
            "[1]",
            "{a}",
            "{",
            "",
            r#"{"m":"\u12"}"#,
        ] {
            assert_eq!(Object::of(line), None, "{line}");
        }
    }
}
