//! Only the end of a process: status 137, signal 9, a shell's `Killed`. Many causes; the kernel's killer is one.

use crate::message::{Message, without_prefix};
use crate::phrase::{begins_with_number, end_of, has_any, has_any_word, has_number_after, number_after, without_signs};
use crate::talk::without_failures;
use crate::{Certainty, Engine, Oom, ProcessUse, Source};

pub(super) fn read(message: &Message<'_>) -> Option<Oom> {
    let line = &*message.line;
    // A process that writes past the end of a full `/dev/shm` ends by the bus error.
    if is_bus_error(line) {
        return Some(Oom { certainty: Certainty::Slight, ..Oom::host(Engine::Unknown, Source::SharedMemory) });
    }
    // gunicorn is no surer than the question it asks.
    if line.contains("was sent SIGKILL! Perhaps out of memory") {
        return Some(Oom { certainty: Certainty::Possible, ..Oom::host(Engine::Unknown, Source::ExitStatus) });
    }
    if !(is_status(line) || is_signal(line) || is_shell_killed(line)) || has_any(line, SENT) || is_treated(line) {
        return None;
    }
    let pid = number_after(line, "(pid: ").or_else(|| number_after(line, "received by PID "));
    Some(Oom {
        certainty: Certainty::Slight,
        processes: pid.map(|pid| ProcessUse { pid, name: None, used: None }).into_iter().collect(),
        ..Oom::host(Engine::Unknown, Source::ExitStatus)
    })
}

/// How whoever ends a process says so himself.
const SENT: &[&str] = &[
    "Sending ",
    "sending ",
    "Send ",
    "Killing ",
    "killing ",
    "forcefully ",
    "will be killed",
    "kill -9",
    "timeout",
    "Timeout",
    "timed out",
    // What a function gave back is no status of a process.
    "from call to",
];

/// Whether a line is about what is done when a process ends so: a subject of a change, a comment, a rule.
fn is_treated(line: &str) -> bool {
    const WORDS: &str = "may might could handle handles handling if when treat treats retry retries catch fix fixes fixed means mean expected unless whether";
    let head = ["137", "-9", "SIGKILL", "ignal 9"].iter().filter_map(|status| line.find(status)).min();
    let (clause, behind) = line.split_at(head.unwrap_or(0));
    if behind.split_whitespace().nth(1).is_some_and(|word| matches!(word, "means" | "mean")) {
        return true;
    }
    let clause = clause.rsplit(['.', ';', '!', '?']).next().unwrap_or(clause);
    has_any_word(&without_failures(clause), WORDS)
}

/// A status is a number right after one of the words for it, where a process or what make built ended.
fn is_status(line: &str) -> bool {
    if !has_any(line, &["137", "-9"]) {
        return false;
    }
    let lower = line.to_ascii_lowercase();
    let has = |name: &str, is_of_process: fn(&str, &str) -> bool| {
        lower.match_indices(name).any(|(at, _)| {
            let (before, rest) = (&lower[..at], &line[at + name.len()..]);
            is_kill_status(rest) && is_of_process(before, rest)
        })
    };
    ENDED.iter().any(|name| has(name, |_, _| true))
        || NUMBERED.iter().any(|name| has(name, |before, rest| is_word_behind(before) && ends_process(before, rest)))
        || has("rc", |before, rest| is_word_behind(before) && rest.starts_with('='))
        || line.contains("*** [") && line.contains("] Error 137")
}

/// What a status is called where the name says by itself that something ended.
const ENDED: [&str; 12] = [
    "exit",
    "exited",
    "exited with",
    "exit code",
    "exitcode",
    "exit_code",
    "exit status",
    "exitstatus",
    "exit_status",
    "exit value",
    "error code",
    "docker container",
];
/// What it is called where words before it have to.
const NUMBERED: [&str; 3] = ["code", "status", "status of"];

/// Whether a word begins behind a text: no `barcode`.
fn is_word_behind(before: &str) -> bool {
    !before.ends_with(|c: char| c.is_alphanumeric())
}

/// How many words before the name of a status an end may stand: `returned a non-zero code`.
const NEAR_END: usize = 3;

/// `terminated with code 137`, and neither `country code 137` nor `server returned status code 137 items`.
fn ends_process(before: &str, rest: &str) -> bool {
    const ENDS: [&str; 7] = ["exit", "return", "non-zero", "nonzero", "finish", "terminat", "died"];
    const BEHIND: &str = "after at in on for from while when with because and during by";
    let mut near = before.split_whitespace().rev().take(NEAR_END);
    let has_ended =
        near.any(|word| ENDS.iter().any(|end| word.trim_start_matches(['(', '[', '"', '\'']).starts_with(end)));
    // What is counted stands right behind its number.
    let counted = without_signs(rest).trim_start_matches(|c: char| c.is_ascii_digit() || c == '-').strip_prefix(' ');
    let word = counted.map(|rest| &rest[..rest.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(rest.len())]);
    let is_count =
        word.is_some_and(|word| !word.is_empty() && !BEHIND.split(' ').any(|known| known.eq_ignore_ascii_case(word)));
    has_ended && !is_count
}

/// `exitcode  : -7 (pid: 4567)`, `exits with return code = -7`, `died with <Signals.SIGBUS: 7>`, and MPI's `EXIT STRING: Bus error`
fn is_bus_error(line: &str) -> bool {
    let lower = line.to_ascii_lowercase();
    ["exitcode", "return code"].iter().any(|word| has_number_after(&lower, word, "-7"))
        || has_any(line, &["died with <Signals.SIGBUS", "WITH THE EXIT STRING: Bus error"])
}

fn is_kill_status(rest: &str) -> bool {
    let rest = without_signs(rest);
    let rest = rest.strip_prefix("is ").unwrap_or(rest);
    let is_it = |status: &&&str| begins_with_number(rest, status);
    ["137", "-9"].iter().find(is_it).is_some_and(|status| {
        let behind = &without_signs(rest)[status.len()..];
        !behind.trim_start().strip_prefix('(').is_some_and(names_status)
    })
}

/// `CL_IMAGE_FORMAT_MISMATCH)`: what stands in brackets behind a number says that it is of something else.
fn names_status(inner: &str) -> bool {
    let name = inner.split(')').next().unwrap_or_default();
    name.contains('_') && name.bytes().all(|byte| byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b'_')
}

fn is_signal(line: &str) -> bool {
    let words = [
        "Killed signal terminated program",
        "unable to execute command: Killed",
        "internal compiler error: Killed",
        "signal: killed",
        "status=9/KILL",
    ];
    has_any(line, &words) || is_named_signal(line) || is_numbered_signal(line)
}

/// How far before the name of a signal a word for an end may stand: `terminated by another process: signal=SIGKILL`.
const NEAR: usize = 48;

/// `died with <Signals.SIGKILL: 9>`, `terminated by SIGKILL`, `(signal: 9, SIGKILL: kill)`, `status of 9(SIGKILL)`: how something ended,
/// and not what somebody sends, a service is to be ended by, or the name in code.
fn is_named_signal(line: &str) -> bool {
    const OWN: [&str; 5] = ["--signal", "hasattr(", "stopped: ", "sent ", "send "];
    const ASKED: [&str; 3] = ["on close", "on shutdown", "on stop"];
    line.match_indices("SIGKILL").any(|(at, _)| {
        let before = end_of(&line[..at], NEAR).to_ascii_lowercase();
        let head = before.trim_end_matches(['<', '[', '(', '"', '\'', ' ']);
        let head = head.strip_suffix("signals.").map_or(head, |head| head.trim_end_matches(['<', '(', ' ']));
        let is_ended = ["killed", "terminated", "died", "exited"].iter().any(|word| head.contains(word))
            && has_any_word(head, "by with via on signal")
            || head.ends_with(':') && has_any(head, &["killed:", "terminated:", "died:", "exited:"]);
        // `npm ERR! signal SIGKILL`
        let is_error = head.ends_with("signal")
            && has_any_word(head, "err error")
            && line[at + "SIGKILL".len()..].trim().is_empty();
        // By its number, too, or as a field.
        let is_numbered = head.ends_with('9') || head.ends_with("signal: 9,") || head.ends_with("negsignal.");
        let is_field = ["signal_name=", "signal=", "signal\":"]
            .iter()
            .any(|field| head.strip_suffix(field).is_some_and(is_word_behind));
        let is_own = has_any(&before, &OWN) || has_any(&line[at..], &ASKED);
        // In code.
        let is_code = before.ends_with("signal.") && !before.ends_with("negsignal.") || before.ends_with("::");
        (is_ended || is_error || is_numbered || is_field) && !is_own && !is_code
    })
}

/// `Command terminated by signal 9`, `KILLED BY SIGNAL: 9 (Killed)`
fn is_numbered_signal(line: &str) -> bool {
    let lower = line.to_ascii_lowercase();
    has_number_after(&lower, "signal", "9") && has_any(&lower, &["killed", "terminated", "exited", "died"])
}

/// `[1]  + 12345 killed     python train.py`, as zsh tells how a job ended, alone or behind a bar of progress (`1.8s/it][1]  + 12345
/// killed`), and bash's `[2]+  Killed                  python train.py`.
fn is_job(line: &str) -> bool {
    let line = line.rfind("][").filter(|_| line.contains("%|")).map_or(line, |end| &line[end + 1..]);
    let Some((job, rest)) = line.strip_prefix('[').and_then(|rest| rest.split_once(']')) else { return false };
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let (Some((head, behind)), true) = (rest.split_once("illed"), is_number(job)) else { return false };
    let mut words = head.split_whitespace().filter(|word| !matches!(*word, "+" | "-"));
    let is_process = |word: Option<&str>| word.is_some_and(is_number);
    match words.next() {
        // Without the number of the process, the columns of the shell show it.
        Some("K") => words.next().is_none() && (behind.is_empty() || behind.starts_with("  ")),
        first => is_process(first) && matches!(words.next(), Some("k" | "K")) && words.next().is_none(),
    }
}

/// `Killed` in the languages of glibc, which shells take it from.
const KILLED: [&str; 12] = [
    "Killed",
    "已杀死",
    "强制终止（已杀死）",
    "強制終了",
    "Убито",
    "Getötet",
    "Processus arrêté",
    "Terminado (killed)",
    "Ucciso",
    "Morto",
    "죽었음",
    "Unicestwiony",
];

/// `Killed` alone or behind a bar of progress, as bash writes it (`run.sh: line 5: 12345 Killed   python train.py`), or as
/// srun does (`task 0: Killed`).
fn is_shell_killed(line: &str) -> bool {
    // Bold or as code, where somebody wrote it into a text.
    let line = without_prefix(line).trim().trim_matches(['*', '`']);
    // `it comes no further than "...2.91s/it]Killed"`
    let line = line.strip_suffix('"').filter(|line| line.ends_with("]Killed")).unwrap_or(line);
    if matches!(line, "Killed." | "KILLED" | "zsh: killed" | "Killed: 9") || line.starts_with("zsh: killed ") {
        return true;
    }
    if KILLED.iter().any(|word| is_end_of_job(line, word)) {
        return true;
    }
    let names_job = line.ends_with(": Killed") && has_any(line, &["srun", "task "]);
    if names_job || line.starts_with("make") && line.ends_with("] Killed") {
        return true;
    }
    is_job(line) || lies_over_progress(line)
}

/// `Killedg in train batch: 127687 / 263115`: the shell's word over the beginning of a line that was written again and again.
fn lies_over_progress(line: &str) -> bool {
    let Some(rest) = line.strip_prefix("Killed") else { return false };
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let is_count = || {
        rest.rsplit_once('/').is_some_and(|(before, total)| {
            let done = before.trim_end().rsplit(' ').next().unwrap_or_default();
            is_number(total.trim()) && is_number(done)
        })
    };
    // A word that goes on, not one that is followed by others.
    rest.starts_with(|c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '%') && is_count()
        || rest.contains("%|") && rest.trim_end().ends_with(']')
}

/// Whether a shell says in this word how a job ended: alone, behind a bar, behind a step that was announced and never ended
/// (`Loading the database...Killed`), or behind the number of the process.
fn is_end_of_job(line: &str, word: &str) -> bool {
    let Some((before, after)) = line.split_once(word) else { return false };
    // Of tqdm, of Keras, and of pip while it downloads.
    let is_bar = before.trim_end().ends_with(']') && before.contains("%|")
        || before.contains("ETA: ")
        || before.contains("B/s eta ");
    let is_apart = before.ends_with(' ') && (after.is_empty() || after.starts_with(' '));
    // `run.sh: line 5: 12345 Killed`, with the word for `line` in the shell's language.
    let names_line = before.matches(": ").count() >= 2 && before.trim_end().ends_with(|c: char| c.is_ascii_digit());
    let is_announced = before.trim_end().ends_with("...");
    after.is_empty() && (before.is_empty() || is_bar || is_announced) || is_apart && names_line
}
