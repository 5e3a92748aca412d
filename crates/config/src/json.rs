//! JSON, with the place of every value; comments after `//` are read over, as DeepSpeed's configurations have them.

use crate::Setting;

const DEEPEST: usize = 64;

/// Every plain value with the keys that lead to it; the line and the problem where the text is no JSON.
pub(crate) fn settings(text: &str) -> Result<Vec<Setting>, (usize, String)> {
    let mut reader = Reader { text, at: 0, path: Vec::new(), settings: Vec::new() };
    let end = reader.value().and_then(|()| reader.blank()).and_then(|()| match reader.at == text.len() {
        true => Ok(()),
        false => Err("something stands after the end".to_owned()),
    });
    match end {
        Ok(()) => Ok(reader.settings),
        Err(problem) => {
            let before = &text.as_bytes()[..reader.at.min(text.len())];
            Err((before.iter().filter(|byte| **byte == b'\n').count() + 1, problem))
        }
    }
}

struct Reader<'a> {
    text: &'a str,
    at: usize,
    path: Vec<String>,
    settings: Vec<Setting>,
}

impl Reader<'_> {
    fn value(&mut self) -> Result<(), String> {
        self.blank()?;
        if self.path.len() > DEEPEST {
            return Err("it is nested too deep".to_owned());
        }
        match self.peek() {
            Some(b'{') => self.group(),
            Some(b'[') => self.list(),
            Some(b'"') => {
                let start = self.at;
                let value = self.string()?;
                self.put(start, value);
                Ok(())
            }
            Some(_) => self.word(),
            None => Err("it ends too early".to_owned()),
        }
    }

    fn group(&mut self) -> Result<(), String> {
        self.at += 1;
        self.blank()?;
        while self.peek() != Some(b'}') {
            let key = self.string()?;
            self.blank()?;
            self.expect(b':')?;
            self.path.push(key);
            self.value()?;
            self.path.pop();
            self.comma(b'}')?;
        }
        self.at += 1;
        Ok(())
    }

    fn list(&mut self) -> Result<(), String> {
        self.at += 1;
        self.blank()?;
        let mut index = 0_usize;
        while self.peek() != Some(b']') {
            self.path.push(index.to_string());
            self.value()?;
            self.path.pop();
            self.comma(b']')?;
            index += 1;
        }
        self.at += 1;
        Ok(())
    }

    fn word(&mut self) -> Result<(), String> {
        let start = self.at;
        let is_part = |byte: &u8| byte.is_ascii_alphanumeric() || b"+-._".contains(byte);
        let length = self.text.as_bytes()[start..].iter().take_while(|byte| is_part(byte)).count();
        if length == 0 {
            return Err("a value is missing".to_owned());
        }
        self.at += length;
        self.put(start, self.text[start..self.at].to_owned());
        Ok(())
    }

    /// A string; escapes stay as they are written, for no setting of ours has any.
    fn string(&mut self) -> Result<String, String> {
        self.expect(b'"')?;
        let start = self.at;
        loop {
            match self.peek() {
                Some(b'"') => break,
                Some(b'\\') => self.at += 2,
                Some(b'\n') | None => return Err("a string is not closed".to_owned()),
                Some(_) => self.at += 1,
            }
        }
        let value = self.text.get(start..self.at).ok_or("a string is not closed")?.to_owned();
        self.at += 1;
        Ok(value)
    }

    fn comma(&mut self, end: u8) -> Result<(), String> {
        self.blank()?;
        match self.peek() {
            Some(b',') => {
                self.at += 1;
                self.blank()
            }
            Some(byte) if byte == end => Ok(()),
            _ => Err("a comma or a bracket is missing".to_owned()),
        }
    }

    fn expect(&mut self, byte: u8) -> Result<(), String> {
        if self.peek() != Some(byte) {
            return Err(format!("a `{}` is missing", char::from(byte)));
        }
        self.at += 1;
        Ok(())
    }

    fn blank(&mut self) -> Result<(), String> {
        loop {
            let rest = &self.text[self.at..];
            let blanks = rest.len() - rest.trim_start().len();
            self.at += blanks;
            if !rest[blanks..].starts_with("//") {
                return Ok(());
            }
            self.at += rest[blanks..].find('\n').unwrap_or(rest.len() - blanks);
        }
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn put(&mut self, start: usize, value: String) {
        self.settings.push(Setting::new(self.path.clone(), start..self.at, value));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::shown;

    #[test]
    fn nested_keys_with_their_places() {
        let text = "{\"a\": {\"b\": 3, \"c\": [true, \"x\\\"y\"]}, // note\n \"d\": null}\n";
        let found = shown(&settings(text).unwrap(), text);
        let found: Vec<_> = found.iter().map(|(key, value, at)| (&**key, &**value, &**at)).collect();
        assert_eq!(
            found,
            [("a.b", "3", "3"), ("a.c.0", "true", "true"), ("a.c.1", "x\\\"y", "\"x\\\"y\""), ("d", "null", "null")]
        );
    }

    #[test]
    fn what_is_no_json() {
        for (text, line) in
            [("{\"a\": }", 1), ("{\n\"a\": 1\n\"b\": 2}", 3), ("{} x", 1), ("[\"\\", 1), ("{\"a", 1), ("", 1)]
        {
            assert_eq!(settings(text).unwrap_err().0, line, "{text}");
        }
        assert!(settings(&"[".repeat(100_000)).is_err());
    }
}
