//! Whether a note of the kernel is of another day or another program than the run of a log.

use lowtide_log::{TracebackKind, tracebacks};

/// Minutes of an hour and of a day.
const HOUR: i64 = 60;
const DAY: i64 = 24 * HOUR;
/// Minutes of a year whose months have 31 days.
const YEAR: i64 = 12 * 31 * DAY;
/// Clocks of different zones are no further apart.
const ZONES: i64 = 16 * HOUR;
/// A note about another program that is so much older is of no concern.
const OLD: i64 = 2 * HOUR;
/// Programs that trainings run as, by the beginnings of their names.
const TRAINERS: [&str; 9] =
    ["python", "pt_main_thread", "torchrun", "accelerate", "deepspeed", "ray", "ipykernel", "jupyter", "uv"];
const MONTHS: [&str; 12] = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

/// Whether the kernel's note about the end of `victim` is none of a run's, by the log before and after it.
pub(crate) fn is_of_another_day(note: &str, victim: Option<&str>, before: &str, after: &str) -> bool {
    let is_foreign = victim.is_some_and(|victim| is_foreign(victim, before));
    if let Some(noted) = minute(note)
        && let Some(of_run) = last_minute(before).or_else(|| last_minute(after))
    {
        let older = of_run.since(noted);
        return older > ZONES || older > OLD && is_foreign;
    }
    // A run that ended by an error of its own was not ended by the kernel.
    let mut errors = tracebacks(before.as_bytes()).filter(|traceback| traceback.kind == TracebackKind::Error);
    let is_own = |error: &str| !["emory", "rocess", "orker", "illed"].iter().any(|word| error.contains(word));
    is_foreign && errors.any(|traceback| traceback.error.is_some_and(|error| is_own(&error)))
}

/// Whether a program is not the one that a log is of, as far as names tell.
fn is_foreign(victim: &str, before: &str) -> bool {
    let is_trainer = TRAINERS.iter().any(|name| victim.starts_with(name));
    let is_named = before.lines().filter(|line| !is_of_kernel(line)).any(|line| line.contains(victim));
    !is_trainer && !is_named
}

/// A minute, of a year where that is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Minute {
    year: Option<i64>,
    /// From the beginning of the year; months have 31 days here.
    of_year: i64,
}

impl Minute {
    /// How many minutes lie between an earlier one and this one; less than nothing where that is the later one. Where a year is
    /// not written, they are taken to be less than half a year apart.
    fn since(self, earlier: Self) -> i64 {
        let of_year = self.of_year - earlier.of_year;
        match self.year.zip(earlier.year) {
            Some((ours, theirs)) => (ours - theirs) * YEAR + of_year,
            None => (of_year + YEAR / 2).rem_euclid(YEAR) - YEAR / 2,
        }
    }
}

/// The last minute that a line tells which is not the kernel's.
fn last_minute(text: &str) -> Option<Minute> {
    text.lines().rev().filter(|line| !is_of_kernel(line)).find_map(minute)
}

/// `[Mon Nov 16 03:12:44 2026] ...`, `Nov 16 03:12:44 box kernel: ...`
fn is_of_kernel(line: &str) -> bool {
    let is_dmesg = || {
        let day = line.strip_prefix('[').and_then(|rest| rest.split(' ').nth(1));
        day.is_some_and(|month| MONTHS.contains(&month))
    };
    line.contains(" kernel: ") || line.contains("kernel: [") || is_dmesg()
}

/// The minute of a line: `2026-11-19 10:00:00`, `Nov 16 03:12:44`, `Mon Nov 16 03:12:44 2026`.
fn minute(line: &str) -> Option<Minute> {
    let clock = line.match_indices(':').map(|(at, _)| at).find(|at| is_clock(line, *at))? - 2;
    let of_day = line[clock..clock + 2].parse::<i64>().ok()? * HOUR + line[clock + 3..clock + 5].parse::<i64>().ok()?;
    let head = line[..clock].trim_end_matches(['T', ' ']);
    let of_year = |month: i64, day: i64| {
        let is_date = (1..=12).contains(&month) && (1..=31).contains(&day);
        is_date.then(|| ((month - 1) * 31 + day - 1) * DAY + of_day)
    };
    let mut parts = head.rsplit(['-', '/']);
    if let (Some(day), Some(month), Some(year)) = (parts.next(), parts.next(), parts.next())
        && let (Ok(day), Ok(month)) = (day.parse(), month.parse())
        && let Some(Ok(year)) = year.get(year.len().saturating_sub(4)..).map(str::parse)
        && let Some(of_year) = of_year(month, day)
    {
        return Some(Minute { year: Some(year), of_year });
    }
    let mut words = head.rsplit([' ', '[']).filter(|word| !word.is_empty());
    let day = words.next()?.parse().ok()?;
    let name = words.next()?;
    let month = MONTHS.iter().position(|month| *month == name)? as i64 + 1;
    let year = line.get(clock + 8..).and_then(|rest| rest.trim_start().get(..4)).and_then(|year| year.parse().ok());
    Some(Minute { year: year.filter(|year| *year > 1999), of_year: of_year(month, day)? })
}

/// Whether at this colon stands the first of a clock: `03:12:44`.
fn is_clock(line: &str, at: usize) -> bool {
    let Some(text) = at.checked_sub(2).and_then(|start| line.as_bytes().get(start..start + 8)) else { return false };
    text.iter().zip(b"00:00:00").all(|(byte, form)| if *form == b'0' { byte.is_ascii_digit() } else { byte == form })
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOTE: &str =
        "[Mon Nov 16 03:12:44 2026] Out of memory: Killed process 991 (chrome) total-vm:1kB, anon-rss:1kB";

    #[test]
    fn minutes_as_logs_write_them() {
        let minutes = ["2026-11-16T03:12:44Z a", "[Mon Nov 16 03:12:44 2026] a", "2026/11/16 03:12:59 a"].map(minute);
        assert!(minutes[0].is_some() && minutes.iter().all(|minute| *minute == minutes[0]), "{minutes:?}");
        let without_year = minute("Nov 16 03:12:44 box kernel: a").expect("a date");
        assert_eq!((without_year.year, minutes[0].map(|it| it.since(without_year))), (None, Some(0)));
        assert_eq!(["03:12:44 a", "step 3", "é12:00:00"].map(minute), [None; 3]);
    }

    #[test]
    fn what_is_no_date_is_no_minute() {
        for line in [
            "data/2026/1763600000000000000/12 03:00:00 a",
            "2026/13/12 03:00:00 a",
            "2026-01-00 03:00:00 a",
            "Nov 99 03:00:00 a",
        ] {
            assert_eq!(minute(line), None, "{line}");
        }
    }

    #[test]
    fn a_note_without_a_year_is_of_the_nearest_one() {
        let before = |time: &str| format!("{time} INFO step 101 loss 2.3\n");
        let note = |time: &str| format!("{time} box kernel: Out of memory: Killed process 991 (python)");
        for (run, kill, expected) in [
            ("2026-12-31 23:58:00", "Jan  1 00:03:12", false),
            ("2027-01-01 00:10:00", "Dec 31 23:59:12", false),
            ("2027-01-03 00:10:00", "Dec 31 23:59:12", true),
            ("2026-11-19 10:00:00", "Nov 16 03:12:44", true),
        ] {
            assert_eq!(is_of_another_day(&note(kill), Some("python"), &before(run), ""), expected, "{run}: {kill}");
        }
    }

    #[test]
    fn a_note_of_another_day_or_of_another_program() {
        let step = |time: &str| format!("{time} INFO step 101 loss 2.3\n");
        let error = "Traceback (most recent call last):\n  File \"t.py\", line 3\nKeyError: 'labels'\n";
        for (note, victim, before, expected) in [
            (NOTE, "chrome", step("2026-11-19 10:00:00"), true),
            (NOTE, "python", step("2026-11-19 10:00:00"), true),
            (NOTE, "chrome", step("2026-11-16 09:00:00"), true),
            // It may be of another zone.
            (NOTE, "python", step("2026-11-16 09:00:00"), false),
            (NOTE, "python", step("2026-11-16 03:10:00"), false),
            (NOTE, "chrome", step("2026-11-16 03:10:00"), false),
            // The log's last line may be long before its end.
            (NOTE, "python", step("2026-11-14 03:10:00"), false),
            (NOTE, "chrome", format!("step 3\n{error}"), true),
            (NOTE, "python3", format!("step 3\n{error}"), false),
            (NOTE, "trainer", format!("$ ./trainer --batch 8\n{error}"), false),
            (NOTE, "chrome", "step 3\n".to_owned(), false),
        ] {
            assert_eq!(is_of_another_day(note, Some(victim), &before, ""), expected, "{victim}: {before}");
        }
        assert!(is_of_another_day(NOTE, Some("python"), "$ dmesg -T\n", &step("2026-11-19 10:00:00")));
    }
}
