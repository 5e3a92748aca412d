//! Variables that a script of the shell sets above the command that it hands them to: `BATCH=32`, then `--batch-size $BATCH`.

use std::ops::Range;

use crate::Setting;

/// Gives options whose value is a variable the place and the value that the variable is set to. That counts only where the
/// script sets it once, at the beginning of a line above, to plain text, and hands it on once: another value would change
/// nothing else then.
pub(super) fn resolve(text: &str, settings: &mut [Setting]) {
    for setting in settings.iter_mut().filter(|setting| setting.value.starts_with('$')) {
        let Some(name) = name_of(&setting.value) else { continue };
        let Some(span) = assignment(text, name).filter(|span| span.end < setting.span.start) else { continue };
        let value = text[span.clone()].trim_matches(['"', '\'']);
        if uses(text, name) == 1 && !value.is_empty() && !value.contains(['$', '`', ' ', '\\', '"', '\'']) {
            setting.value = value.to_owned();
            setting.span = span;
        }
    }
}

/// `$BATCH`, `${BATCH}`
fn name_of(value: &str) -> Option<&str> {
    let name = value.strip_prefix('$')?;
    let name = name.strip_prefix('{').map_or(Some(name), |name| name.strip_suffix('}'))?;
    let is_name = name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    (is_name && name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')).then_some(name)
}

/// Where the one value of a variable stands.
fn assignment(text: &str, name: &str) -> Option<Range<usize>> {
    let mut found = None;
    let mut start = 0;
    for line in text.split_inclusive('\n') {
        let at = start;
        start += line.len();
        let trimmed = line.trim_start();
        let own = trimmed.strip_prefix("export ").unwrap_or(trimmed);
        let Some(rest) = own.strip_prefix(name).and_then(|rest| rest.strip_prefix('=')) else { continue };
        // Under a condition, or twice, it need not be the one that counts.
        if found.is_some() || trimmed.len() < line.len() {
            return None;
        }
        let value = rest.split(['#', ';']).next().unwrap_or_default().trim_end();
        let from = at + line.len() - rest.len();
        found = Some(from..from + value.len());
    }
    found
}

/// How often a text hands a variable on.
fn uses(text: &str, name: &str) -> usize {
    let is_whole = |rest: &str| !rest.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_');
    let rests =
        text.split('$').skip(1).map(|rest| rest.strip_prefix(['{', '(']).unwrap_or(rest).trim_start_matches('('));
    let direct = rests.filter_map(|rest| rest.strip_prefix(name)).filter(|rest| is_whole(rest)).count();
    // Arithmetic takes a name without its sign.
    let in_arithmetic = text.split("$((").skip(1).filter(|rest| {
        let inside = rest.split("))").next().unwrap_or_default();
        inside.split(|c: char| !c.is_ascii_alphanumeric() && c != '_' && c != '$').any(|word| word == name)
    });
    // The one that stands directly behind the brackets is counted already.
    direct.max(1) + in_arithmetic.count()
}

#[cfg(test)]
mod tests {
    use crate::{Config, Syntax};

    fn batch(text: &str) -> (String, String) {
        let config = Config::parse_as(Syntax::Command, "run.sh", text).unwrap();
        let setting = config.settings.iter().rfind(|setting| setting.path == ["batch_size"]).unwrap();
        (setting.value.clone(), config.text[setting.span.clone()].to_owned())
    }

    #[test]
    fn a_variable_set_once_above() {
        for text in [
            "BATCH=32\npython train.py --batch-size $BATCH\n",
            "#!/bin/bash\nexport BATCH=32  # big\npython train.py \\\n  --batch-size ${BATCH} --lr 1\n",
        ] {
            assert_eq!(batch(text), ("32".to_owned(), "32".to_owned()), "{text}");
        }
        assert_eq!(batch("BATCH=\"32\"\npython a.py --batch-size=$BATCH\n"), ("32".to_owned(), "\"32\"".to_owned()));
    }

    #[test]
    fn what_leaves_it_open() {
        for text in [
            "BATCH=32\nBATCH=16\npython train.py --batch-size $BATCH\n",
            "if true; then\n  BATCH=32\nfi\npython train.py --batch-size $BATCH\n",
            "BATCH=${1:-32}\npython train.py --batch-size $BATCH\n",
            "python train.py --batch-size $BATCH\nBATCH=32\n",
            "BATCH=32\npython train.py --steps $((64 / BATCH)) --batch-size $BATCH\n",
            "BATCH=32\npython train.py --out $BATCH --batch-size $BATCH\n",
        ] {
            assert_eq!(batch(text).0, "$BATCH", "{text}");
        }
    }
}
