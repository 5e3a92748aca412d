//! The Linux kernel's killer, that of macOS (jetsam), and the user-space killers that take its place.

use lowtide_core::Bytes;

use crate::message::Message;
use crate::phrase::{between, has_any, number_after, size_after};
use crate::{Engine, Oom, ProcessUse, Source};

pub(super) fn read(message: &Message<'_>) -> Option<Oom> {
    let line = &*message.line;
    if has_any(line, &["OS_REASON_JETSAM", "JETSAM_REASON", "vm-compressor-space-shortage"]) {
        return Some(Oom::host(Engine::Unknown, Source::Kernel));
    }
    let victim = victim(message)?;
    let limit = limit(message.body());
    // Of a group alone the kernel prints what it uses and what it may.
    let is_of_group = has_any(line, &["emory cgroup out of memory", "CONSTRAINT_MEMCG"]) || is_counter(line);
    let source = if is_of_group || limit.is_some() { Source::Cgroup } else { Source::Kernel };
    Some(Oom {
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
    let by_service = has_any(
        line,
        &[
            "systemd-oomd",
            "earlyoom",
            "A process of this unit has been killed by the OOM killer",
            "Failed with result 'oom-kill'",
        ],
    );
    (by_service && has_any(line, &["illed", "oom-kill", "sending SIG", "illing process"]))
        .then(|| killed(line, message.body()).or_else(|| sent(line)))
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
