//! Variables of the environment that a script reads its batch from.

use lowtide_config::python::is_name;
use lowtide_config::{Config, Syntax, unquoted, whole_number};

use crate::{Key, key_of_option};

/// A variable that a script reads a number from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Variable {
    /// Its name.
    pub name: String,
    /// What the script takes where it is not set.
    pub default: Option<u64>,
}

/// How Python reads a variable, up to its name.
const READS: [&str; 3] = ["environ.get(", "environ[", "getenv("];

/// The variable that a script reads a number from; `None` where it reads none, or several that may be meant.
#[must_use]
pub fn variable(script: &Config, key: Key) -> Option<Variable> {
    if script.syntax != Syntax::Python {
        return None;
    }
    let lines = script.text.lines().map(|line| line.split('#').next().unwrap_or_default());
    let read = lines.flat_map(read_in).filter(|variable| key_of_option(&variable.name) == Some(key));
    let mut all: Vec<Variable> = read.collect();
    all.dedup_by(|other, first| other.name == first.name);
    match all.as_slice() {
        [only] => Some(only.clone()),
        _ => None,
    }
}

fn read_in(line: &str) -> impl Iterator<Item = Variable> {
    let places = READS.iter().flat_map(|read| line.match_indices(read));
    places.filter_map(|(at, read)| variable_at(line[at + read.len()..].trim_start()))
}

/// `"BATCH_SIZE", "32")`, `'BATCH_SIZE', 32)`, `"BATCH_SIZE"]`
fn variable_at(text: &str) -> Option<Variable> {
    let quote = text.chars().next().filter(|quote| matches!(quote, '"' | '\''))?;
    let (name, rest) = text[1..].split_once(quote)?;
    let default = rest.trim_start().strip_prefix(',').and_then(default_of);
    is_name(name).then(|| Variable { name: name.to_owned(), default })
}

/// A plain number that stands before the end of a call, in quotes or not: `"32")`, `8 * 4)`.
fn default_of(text: &str) -> Option<u64> {
    let value = text[..text.find([')', ','])?].trim();
    let plain = unquoted(value);
    // In quotes nothing is computed.
    whole_number(plain).filter(|_| plain == value || !plain.contains('*'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_script_reads() {
        let told = |text: &str, key| {
            let script = Config::parse_as(Syntax::Python, "t.py", text).unwrap();
            variable(&script, key).map(|it| (it.name, it.default))
        };
        let named = |name: &str, default| Some((name.to_owned(), default));
        let text = "import os\nBATCH_SIZE=int(os.environ.get(\"BATCH_SIZE\",\"32\"))\n\
                    ACCUM = int(os.getenv('GRAD_ACCUM', 1))\nLR = os.environ['LR']  # os.environ['BATCH']\n";
        assert_eq!(told(text, Key::Batch), named("BATCH_SIZE", Some(32)));
        assert_eq!(told(text, Key::Accumulation), named("GRAD_ACCUM", Some(1)));
        assert_eq!(told("b = environ[ 'BS' ]\nc = environ['BS']\n", Key::Batch), named("BS", None));
        assert_eq!(told("a, b = environ['BS'], environ['BATCH_SIZE']\n", Key::Batch), None);
        assert_eq!(told("b = os.environ.get(name, 4)\n", Key::Batch), None);
    }

    #[test]
    fn defaults_that_are_plain_numbers() {
        for (default, number) in [
            ("32", Some(32)),
            ("'1_024' ", Some(1024)),
            ("8 * 4", Some(32)),
            ("'8 * 4'", None),
            ("2 ** 5", None),
            ("8 + 4", None),
            ("1 << 5", None),
            ("32.0", None),
            ("BATCH", None),
            ("f(8)", None),
        ] {
            let script = format!("b = int(os.environ.get('BS', {default}))\n");
            let script = Config::parse_as(Syntax::Python, "t.py", &script).unwrap();
            let expected = Some(Variable { name: "BS".to_owned(), default: number });
            assert_eq!(variable(&script, Key::Batch), expected, "{default}");
        }
    }
}
