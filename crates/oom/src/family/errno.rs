//! The operating system's own words: errno 12, Windows 8 and 1455.

use super::cuda::refuses;
use crate::level::is_level;
use crate::message::Message;
use crate::message::without_prefix;
use crate::names::is_only_named;
use crate::phrase::{has_any, has_any_caseless, has_any_word, has_number_after, has_word};
use crate::talk::{is_only_mentioned, tells_of_oneself};
use crate::{Certainty, Engine, Oom, Source};

pub(super) fn read(message: &Message<'_>) -> Option<Oom> {
    let line = &*message.line;
    if has_any(line, &["/dev/shm", "shared memory segment"]) && line.contains("No space left on device") {
        return Some(Oom { certainty: Certainty::Likely, ..Oom::host(Engine::Linux, Source::SharedMemory) });
    }
    if line.contains("[Errno 28] No space left on device") && makes_lock(message) {
        return Some(Oom { certainty: Certainty::Likely, ..Oom::host(Engine::Linux, Source::SharedMemory) });
    }
    if has_any(
        line,
        &[
            "WinError 1455",
            "os error 1455",
            "paging file is too small",
            "WinError 8]",
            "WinError 1450",
            "Insufficient system resources exist",
            "Not enough memory resources are available",
            "successfully diagnosed a low virtual memory condition",
        ],
    ) {
        return Some(Oom::host(Engine::Windows, Source::Heap));
    }
    if PAGE_FILES.iter().any(|words| line.contains(words)) {
        return Some(Oom::host(Engine::Windows, Source::Heap));
    }
    // Notebooks on the web tell it in their own words.
    if is_of_notebook(line) {
        return Some(Oom::host(Engine::Unknown, Source::Cgroup));
    }
    let lack = ["Not enough memory", "not enough memory"].into_iter().find_map(|phrase| line.find(phrase));
    let is_reported = |at: usize| !is_only_mentioned(line, at, at + "not enough memory".len());
    if lack.is_some_and(is_reported) && has_any(line, &["rror", "rrno", "(os error 8)"]) {
        let is_of_windows = has_any(line, &["WinError", "os error", ":\\"]);
        let engine = if is_of_windows { Engine::Windows } else { Engine::Unknown };
        return Some(Oom { certainty: Certainty::Likely, ..Oom::host(engine, Source::Heap) });
    }
    if ["os error", "rrno"].iter().any(|name| has_number_after(line, name, "12")) || is_no_memory(line) {
        return Some(Oom::host(Engine::Linux, Source::Heap));
    }
    let phrase = ["Cannot allocate memory", "cannot allocate memory", "virtual memory exhausted"];
    let (at, phrase) = phrase.into_iter().find_map(|phrase| Some((line.find(phrase)?, phrase)))?;
    // What the device's runtime refused keeps its place, whatever the system's last error was.
    if refuses(&line[..at]) {
        return None;
    }
    // What a program notes for who looks for its own mistakes is no end of it.
    let is_noted = has_any_word(&line[..at], "debug trace");
    (!is_noted && !is_only_mentioned(line, at, at + phrase.len())).then(|| Oom::host(Engine::Linux, Source::Heap))
}

/// Whether a disk is full where Python makes a lock that processes share, or joblib tries to: such locks lie in `/dev/shm`.
fn makes_lock(message: &Message<'_>) -> bool {
    const FRAMES: [&str; 3] = ["multiprocessing/synchronize.py", "multiprocessing\\synchronize.py", "SemLock("];
    message.line.contains("joblib/_multiprocessing_helpers.py") || has_any(&message.lines_above(), &FRAMES)
}

/// `Error: spawn ENOMEM`, `mmap() = -1 ENOMEM`, `ENOMEM: not enough memory`: the name of the number where something failed by it, and
/// not where it is told of what may fail.
fn is_no_memory(line: &str) -> bool {
    const NAME: &str = "ENOMEM";
    let Some(at) = line.find(NAME).filter(|_| has_word(line, NAME)) else { return false };
    let (before, after) =
        (without_prefix(&line[..at]).trim_end_matches(['\'', '"', '`', ' ']), &line[at + NAME.len()..]);
    let is_told = has_any_caseless(before, &["error: ", "failed", "returned "]);
    let is_value = before.ends_with([':', '=']) && !before.ends_with("::")
        || ["= -", ": -", "=-", "code", "errno", "= -1"].iter().any(|end| before.ends_with(end))
        || before.ends_with('(') && after.starts_with(')');
    // `worker: spawn ENOMEM`, `FATAL spawn ENOMEM`
    let mut words = before.split_whitespace().rev();
    let is_call = words.next().is_some_and(|word| word.bytes().all(|byte| byte.is_ascii_lowercase()))
        && words.next().is_some_and(|word| word.ends_with(':') || is_capital_level(word));
    let opens = before.is_empty() && after.starts_with(": ");
    (opens || is_told || is_value || is_call)
        && !is_supposed(before, after)
        && !is_code(before, after)
        && !is_only_named(line, at, at + NAME.len())
}

/// A level as loggers write it where nothing sets it apart.
fn is_capital_level(word: &str) -> bool {
    is_level(word) && word.bytes().all(|byte| byte.is_ascii_uppercase())
}

/// `it shall fail if: ENOMEM`, `fails with ENOMEM when memory is short`, and not `Error when calling fork: ENOMEM`: where the last
/// clause opens with a condition, or one follows, and nothing tells of a failure.
fn is_supposed(before: &str, after: &str) -> bool {
    const CONDITIONS: &str = "if when shall unless";
    let is_clause = |part: &&str| part.contains(char::is_alphanumeric);
    let clause = before.rsplit([',', ';']).find(is_clause).unwrap_or(before);
    let is_condition = |word: &str| CONDITIONS.split(' ').any(|known| known.eq_ignore_ascii_case(word));
    let mut words = clause.split(|c: char| !c.is_alphanumeric());
    let is_told = |word: &str| has_any_caseless(word, &["error", "failed"]);
    let is_opened = words.find(|word| is_condition(word) || is_told(word)).is_some_and(is_condition);
    let follows = [" if ", " when "].iter().any(|word| after.starts_with(word));
    is_opened || follows && !has_any_caseless(before, &["error:", "failed"]) && !tells_of_oneself(after)
}

/// `ret = -ENOMEM;`, `assert(errno == ENOMEM);`
fn is_code(before: &str, after: &str) -> bool {
    let assigned = before.trim_end_matches('-').trim_end().strip_suffix('=');
    // To a name alone, or one behind its type.
    let is_assigned = assigned.is_some_and(|name| name.split_whitespace().count() < 3 && !name.contains([':', ',']));
    ["==", "!="].iter().any(|sign| before.ends_with(sign))
        || after.starts_with(");")
        || after.starts_with(';') && is_assigned
}

/// `The paging file is too small for this operation to complete.` in other languages of Windows.
pub(crate) const PAGE_FILES: [&str; 10] = [
    "页面文件太小",
    "分頁檔太小",
    "ページング ファイルが小さすぎる",
    "페이징 파일이 너무 작",
    "Auslagerungsdatei ist zu klein",
    "fichier de pagination est insuffisant",
    "archivo de paginación es demasiado pequeño",
    "arquivo de paginação é muito pequeno",
    "ile di paging è troppo piccolo",
    "Файл подкачки слишком мал",
];

/// `Your session crashed after using all available RAM.`, `Your notebook tried to allocate more memory than is available.`
fn is_of_notebook(line: &str) -> bool {
    let is_told = |head: &str| has_any_caseless(head, &["notebook", "sesi", "sess", "crash"]);
    NOTEBOOKS.iter().any(|words| line.split_once(words).is_some_and(|(head, _)| is_told(head)))
}

/// Colab, in the languages of its page, and Kaggle.
const NOTEBOOKS: [&str; 6] = [
    "using all available RAM",
    "allocate more memory than is available",
    "toda la RAM disponible",
    "toda la memoria RAM disponible",
    "toda a RAM disponível",
    "toute la RAM disponible",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_the_number_is_a_report_where_something_failed_by_it() {
        for line in [
            "FATAL spawn ENOMEM",
            "when forking worker, spawn failed with ENOMEM",
            "Error when calling fork: ENOMEM",
            "OSError when calling fork(): errno=ENOMEM",
            "mmap(NULL, 4096) = -1 ENOMEM (Cannot allocate memory)",
            "foo: probe failed, err = -ENOMEM",
            "spawn failed (errno=ENOMEM)",
            "spawn failed: ENOMEM; trying again",
            "spawn failed with ENOMEM when I start it",
        ] {
            assert!(is_no_memory(line), "{line}");
        }
        for line in [
            "ret = -ENOMEM;",
            "int ret = -ENOMEM; goto out;",
            "errno = ENOMEM;",
            "assert(errno == ENOMEM);",
            "return ERR_PTR(-ENOMEM);",
            "fails with error code ENOMEM when memory is short",
            "mmap() shall fail if: ENOMEM",
            "when errno=ENOMEM",
        ] {
            assert!(!is_no_memory(line), "{line}");
        }
    }
}
