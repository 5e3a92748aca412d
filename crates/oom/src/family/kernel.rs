//! The Linux kernel's killer, that of macOS (jetsam), and the user-space killers that take its place.

use lowtide_core::Bytes;

use crate::message::Message;
use crate::phrase::{between, has_any, number_after, size_after};
use crate::{Certainty, Engine, Oom, ProcessUse, Source};

pub(super) fn read(message: &Message<'_>) -> Option<Oom> {
    let line = &*message.line;
    if has_any(line, &["OS_REASON_JETSAM", "JETSAM_REASON", "vm-compressor-space-shortage"]) {
        return Some(Oom::host(Engine::Unknown, Source::Kernel));
    }
    if let Some(oom) = earlyoom(message) {
        return Some(oom);
    }
    let victim = victim(message)?;
    let limit = limit(message.body());
    // Of a group alone the kernel prints what it uses and what it may.
    let is_of_group = has_any(line, &["emory cgroup out of memory", "CONSTRAINT_MEMCG"]) || is_counter(line);
    let source = if is_of_group || limit.is_some() { Source::Cgroup } else { Source::Kernel };
    // A unit's notes do not say at whose limit it was.
    let is_open = victim.is_none() && limit.is_none() && has_any(line, &UNITS);
    Some(Oom {
        certainty: if is_open { Certainty::Likely } else { Certainty::Sure },
        limit,
        in_use: victim.as_ref().and_then(|victim| victim.used),
        processes: victim.into_iter().collect(),
        ..Oom::host(Engine::Linux, source)
    })
}

/// The process the kernel ended; `Some(None)` when the line is the kernel's but names none.
fn victim(message: &Message<'_>) -> Option<Option<ProcessUse>> {
    let line = &*message.line;
    if has_any(line, &["ut of memory: Kill", "oom_reaper: reaped process"]) || is_killed_process(line) {
        return Some(killed(line, message.body()));
    }
    if line.contains("oom-kill:constraint=") {
        let name = between(line, "task=", ",").map(str::to_owned);
        return Some(number_after(line, ",pid=").map(|pid| ProcessUse { pid, name, used: None }));
    }
    if is_counter(line) {
        return Some(None);
    }
    if has_any(line, &["invoked oom-killer", "System OOM encountered"]) {
        let name = between(line, "victim process: ", ",").map(str::to_owned);
        return Some(number_after(line, "pid: ").map(|pid| ProcessUse { pid, name, used: None }));
    }
    let by_service = has_any(line, &["oomd[", "oomd: ", "systemd-oomd killed ", "earlyoom"]) || has_any(line, &UNITS);
    // At its start earlyoom says at which limits it will send what.
    let is_sent = || has_any(line, &["sending SIG", "illing process"]) && sent(line).is_some();
    (by_service && (has_any(line, &["illed", "oom-kill"]) || is_sent()))
        .then(|| killed(line, message.body()).or_else(|| sent(line)))
}

/// What systemd notes of a unit of which a process was ended.
const UNITS: [&str; 2] = ["A process of this unit has been killed by the OOM killer", "Failed with result 'oom-kill'"];

/// earlyoom, whose lines do not name it where it was started by hand: `sending SIGTERM to process 1234 "python": badness 900, VmRSS
/// 20000 MiB`, and in its first releases `Out of memory! Killing pid 1234 python`.
fn earlyoom(message: &Message<'_>) -> Option<Oom> {
    let line = &*message.line;
    if let Some((_, rest)) = line.split_once("ut of memory! Killing p") {
        let rest = rest.strip_prefix("rocess ").or_else(|| rest.strip_prefix("id ")).unwrap_or(rest);
        let pid = number_after(rest, "")?;
        let name = rest.trim_start_matches(|c: char| c.is_ascii_digit()).trim_matches([' ', '"', '(', ')', ':', ',']);
        let name = name.split([' ', '"', ')', ',', ':']).next().filter(|name| !name.is_empty()).map(str::to_owned);
        return Some(ended(ProcessUse { pid, name, used: size_after(rest, "VmRSS ") }));
    }
    if line.contains("badness ") && line.contains("VmRSS ") && has_any(line, &["sending SIG", "illing process"]) {
        return sent(line).map(ended);
    }
    // The line above it, where the log ends with that.
    let is_low = line.contains("low memory! at or below SIG");
    is_low.then(|| Oom { certainty: Certainty::Likely, ..Oom::host(Engine::Linux, Source::Kernel) })
}

fn ended(victim: ProcessUse) -> Oom {
    Oom { in_use: victim.used, processes: vec![victim], ..Oom::host(Engine::Linux, Source::Kernel) }
}

/// A line of a control group's `memory.events` with a kill in it: `oom_kill 1`.
fn is_counter(line: &str) -> bool {
    let count = line.trim().strip_prefix("oom_kill ").or_else(|| line.trim().strip_prefix("memory.events: oom_kill "));
    count.and_then(|count| count.trim().parse::<u64>().ok()).is_some_and(|count| count > 0)
}

/// Before 5.x the kernel tells in one line what it will kill and in the next what it killed.
fn is_killed_process(line: &str) -> bool {
    line.contains("Killed process ") && line.contains("-rss:")
}

fn killed(line: &str, body: &str) -> Option<ProcessUse> {
    let text = if line.contains("Kill process ") && body.contains("Killed process ") { body } else { line };
    let (at, word) = ["Killed process ", "reaped process ", "Kill process "]
        .into_iter()
        .find_map(|word| Some((text.find(word)?, word)))?;
    let rest = &text[at + word.len()..];
    let pid = number_after(rest, "")?;
    let used = if word == "Killed process " { resident(rest) } else { None };
    Some(ProcessUse { pid, name: between(rest, "(", ")").map(str::to_owned), used })
}

/// earlyoom's `sending SIGTERM to process 63745 uid 1000 "python3": badness 748, VmRSS 5384 MiB`.
fn sent(line: &str) -> Option<ProcessUse> {
    let (_, rest) = line.split_once("to process ").or_else(|| line.split_once("illing process "))?;
    let name = between(rest, "\"", "\"").map(str::to_owned);
    Some(ProcessUse { pid: number_after(rest, "")?, name, used: size_after(rest, "VmRSS ") })
}

/// Resident memory: anonymous pages, file pages and shared pages together.
fn resident(text: &str) -> Option<Bytes> {
    let anonymous = size_after(text, "anon-rss:")?;
    let others = ["file-rss:", "shmem-rss:"].into_iter().filter_map(|name| size_after(text, name));
    Some(others.fold(anonymous, |sum, part| Bytes(sum.get().saturating_add(part.get()))))
}

/// `memory: usage 8388608kB, limit 8388608kB, failcnt 12`; the kernel prints 2^53 kB for no limit.
fn limit(body: &str) -> Option<Bytes> {
    let (_, rest) = body.split_once("memory: usage ")?;
    size_after(rest, "limit ").filter(|limit| limit.get() < 1 << 50)
}
