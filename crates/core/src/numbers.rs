//! Numbers as people read them.

/// Digits in groups of three: `1,234,567`.
#[must_use]
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let groups: Vec<&str> = digits.as_bytes().rchunks(3).rev().filter_map(|group| str::from_utf8(group).ok()).collect();
    groups.join(",")
}

/// So many of a thing: `1 file`, `2,000 files`.
#[must_use]
pub fn counted(number: u64, thing: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{} {thing}{plural}", grouped(number))
}

/// So many seconds as people say it: `90 seconds`, `3 hours`.
#[must_use]
pub fn span(seconds: u64) -> String {
    match seconds {
        0..120 => counted(seconds, "second"),
        120..7200 => counted(seconds / 60, "minute"),
        7200..172_800 => counted(seconds / 3600, "hour"),
        _ => counted(seconds / 86_400, "day"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_in_groups() {
        let cases = [(0, "0"), (999, "999"), (1000, "1,000"), (1_234_567, "1,234,567")];
        for (number, text) in cases {
            assert_eq!(grouped(number), text);
        }
    }

    #[test]
    fn one_and_several() {
        assert_eq!([0, 1, 2000].map(|number| counted(number, "file")), ["0 files", "1 file", "2,000 files"]);
    }

    #[test]
    fn seconds_as_people_say_them() {
        let cases = [(1, "1 second"), (119, "119 seconds"), (120, "2 minutes"), (7200, "2 hours"), (172_800, "2 days")];
        for (seconds, text) in cases {
            assert_eq!(span(seconds), text);
        }
    }
}
