//! Times of day, as loggers write them.

use crate::bar::bar;

/// How far into a line a time is looked for.
const FARTHEST: usize = 200;

/// The time of a line, with its date where it has one: `2025-10-24 18:33:07`, `[18:33:07]`.
#[must_use]
pub fn time(line: &str) -> Option<&str> {
    let bytes = line.as_bytes();
    let has = |at: usize, form: &str| {
        let text = bytes.get(at..at + form.len());
        text.is_some_and(|text| {
            text.iter().zip(form.bytes()).all(|(byte, form)| match form {
                b'0' => byte.is_ascii_digit(),
                b'-' => matches!(byte, b'-' | b'/'),
                form => *byte == form,
            })
        })
    };
    let is_apart = |at: usize| at == 0 || !bytes[at - 1].is_ascii_digit();
    let clock = (0..bytes.len().min(FARTHEST)).find(|&at| has(at, "00:00:00") && is_apart(at))?;
    let date = clock.checked_sub(11).filter(|&at| has(at, "0000-00"));
    // A bar shows how long it took.
    let start = date.or_else(|| bar(bytes).is_none().then_some(clock))?;
    line.get(start..clock + 8)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_as_logs_write_them() {
        for (line, expected) in [
            ("2025-10-24 18:33:07,123 INFO", Some("2025-10-24 18:33:07")),
            ("2025-10-24T18:33:07Z", Some("2025-10-24T18:33:07")),
            ("2025/10/24 18:33:07 step 3", Some("2025/10/24 18:33:07")),
            ("[18:33:07] hello", Some("18:33:07")),
            ("12/100 [00:00:03<00:00:21, 4.1it/s]", None),
            ("12it [00:00:03, 4.1it/s]", None),
            ("Epoch 3/9 ━━━━━━━╸━━━ 45/100 10:00:12 • 10:00:15 4.1it/s", None),
            ("118:33:07", None),
            ("no time", None),
        ] {
            assert_eq!(time(line), expected, "{line}");
        }
    }
}
